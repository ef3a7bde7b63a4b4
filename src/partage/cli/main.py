"""The ``partage`` command."""

from __future__ import annotations

import click

import partage
from partage.cli import agent, demo, entry, explain, extender, fence, fit, inspect, simulate, top


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(partage.__version__, message="partage %(version)s")
def commands() -> None:
    """Share GPUs: one ledger for every request language."""


commands.add_command(agent.agent)
commands.add_command(demo.demo)
commands.add_command(explain.explain)
commands.add_command(extender.extender)
commands.add_command(fence.fence)
commands.add_command(fit.fit)
commands.add_command(inspect.inspect)
commands.add_command(simulate.simulate)
commands.add_command(top.top)


def main() -> None:
    """Run a command."""
    entry.run(commands, "partage")
