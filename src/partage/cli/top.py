"""``partage top``: what the cards and containers of this node do, live."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import click
import msgspec

from partage.cli import top_drawing, top_sampling
from partage.fence import roots

_APART_S = 1.0
_EPILOG = f"""\b
Examples:
  partage top                              live; q quits
  partage top --once | grep training
  partage top --agent http://10.0.0.7:9437
  partage top --root {roots.DEFAULT}            without an agent: tenants by name
  partage top -o json | jq '.containers[] | select(.refused > 0) | .pod'
"""


@click.command(epilog=_EPILOG)
@click.option("--once", is_flag=True, help="Print once; also what is done where no terminal is.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="json prints once.",
)
@click.option(
    "--agent",
    metavar="URL",
    help=f"The agent of a node; {top_sampling.DEFAULT_AGENT} if it answers.",
)
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    envvar="PARTAGE_ROOT",
    metavar="DIR",
    help="A folder of fences to read in place of an agent; $PARTAGE_ROOT.",
)
def top(*, once: bool, output: str, agent: str | None, root: Path | None) -> None:
    """Show what cards and containers use now, beside what they asked for.

    GOT is the time of the card, WAITED the time that launches were held back, both in the last
    second.
    """
    with top_sampling.source(agent, root) as source:
        if output == "table" and not once and sys.stdout.isatty():
            from partage.cli import top_screen

            top_screen.show(source)
            return
        sample = top_sampling.sampled(source, wait=time.sleep, apart_s=_APART_S)
    if output == "json":
        click.echo(_json(sample))
    else:
        _print(sample)


def _print(sample: top_sampling.Sample) -> None:
    text = top_drawing.plain(sample)
    if not text:
        click.echo("No cards and no containers.", err=True)
    elif sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        _draw(sample)
    else:
        click.echo(text)


def _draw(sample: top_sampling.Sample) -> None:
    from rich import console

    screen = console.Console()
    unicode = screen.encoding.lower().startswith("utf")
    screen.print(top_drawing.drawn(sample, heading=sample.report.node, unicode=unicode))


def _json(sample: top_sampling.Sample) -> str:
    """The report, and in each container what it got in the last second."""
    plain = msgspec.to_builtins(sample.report)
    for each, row in zip(sample.report.containers, plain["containers"], strict=True):
        rate = sample.rates.get(each.key)
        row["got_percent"] = rate.compute_percent if rate else None
        row["throttled_percent"] = rate.throttled_percent if rate else None
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
