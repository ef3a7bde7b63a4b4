"""The commands of ``partage``.

Commands are imported when they are called: ``partage run`` is between a person and the program, and
should not load what only the extender needs.
"""

from __future__ import annotations

import importlib
import os
import signal

import click

import partage

_COMMANDS = {
    "run": "start a program with a share of a card",
    "ps": "show cards, programs and the queue",
    "top": "the same, live; or a node's agent",
    "watch": "see what gets around its fence",
    "fit": "would a share fit, and where",
    "resize": "change the share of a program that runs",
    "doctor": "examine this machine",
    "setup": "one ledger for all users of this machine",
    "demo": "see programs share cards",
    "completion": "complete commands in a shell",
    "fence": "limits, and who uses what",
    "extender": "decide beside kube-scheduler",
    "agent": "give containers of a node their cards",
    "inspect": "show a cluster's cards and tenants",
    "explain": "why is a pod pending",
    "simulate": "compare policies on recorded workloads",
}
# They read what was written before they make anything, the folder of simulated cards too.
_CAREFUL = ("run", "fit", "setup")


class _Commands(click.Group):
    """A group whose members are modules or folders of this package, each named like its command.

    A folder's command is in its module ``command``: what else is in there can then be imported
    without it.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Without importing them all."""
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"partage.cli.{cmd_name}")
        if hasattr(module, "__path__"):
            module = importlib.import_module(f"partage.cli.{cmd_name}.command")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Who mistypes a command is told which one it may have been."""
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command {name!r}.{_meant(name)}", ctx)
        return super().resolve_command(ctx, args)


def _meant(mistyped: str) -> str:
    import difflib

    near = difflib.get_close_matches(mistyped, _COMMANDS, n=1)
    return f" Did you mean {near[0]!r}?" if near else ""


def _simulated(_context: click.Context, _option: click.Parameter, cards: str | None) -> None:
    if cards:
        from partage.local import simulating

        simulating.turn(cards, os.environ)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(partage.__version__, message="partage %(version)s")
@click.option(
    "--simulate",
    metavar="CARDS",
    envvar="PARTAGE_SIMULATE",
    callback=_simulated,
    expose_value=False,
    help="Use simulated cards, for example 2x16GiB; $PARTAGE_SIMULATE.",
)
@click.pass_context
def commands(context: click.Context, /) -> None:
    """Share GPUs: one ledger for every request language."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # there is something to undo now
    if os.environ.get("PARTAGE_SIMULATE") and context.invoked_subcommand not in _CAREFUL:
        from partage.local import simulating

        simulating.furnish(os.environ)
