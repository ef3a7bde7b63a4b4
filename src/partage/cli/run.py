"""``partage run``: start a program with a share of a card."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import click

from partage.cli import asking
from partage.core import errors
from partage.fence import levels
from partage.local import entries, requests, running

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_EXAMPLES = """\b
Examples:
  partage run --memory 4GiB --compute 30% -- python train.py
  partage run --memory 25% --cards 2 --name sweep -- torchrun train.py
  partage run --memory 8GiB --compute 30%:80% --no-wait -- ./serve
  partage run --exclusive --model A100 --wait 10m -- python bench.py
  partage run --limits aliyun.com/gpu-mem=3 -- python train.py
  partage --simulate 2x16GiB run --memory 4GiB -- python train.py

\b
Exit codes: the program's own; before it starts 2 for a request that cannot
be used or can never fit, 75 if there was no room in time, 126 and 127 if the
program cannot be started or found, 130 if the queue was left by Ctrl-C, 1 for
everything else.
"""
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = r"(?:[0-9]{1,6}[smhd])+|[0-9]{1,9}"  # not compiled: few write one


def _seconds(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """``10m``, ``1h30m``, ``90``: seconds."""
    if text is None:
        return None
    if not re.fullmatch(_DURATION, text):
        raise errors.InputError(
            f"--wait: {text!r} is no time", instead="write for example 90s, 10m or 1h30m"
        )
    if text.isdecimal():
        return float(text)
    parts = re.findall(r"(\d+)([smhd])", text)
    return float(sum(int(number) * _UNITS_S[unit] for number, unit in parts))


def _programs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from partage.cli import names  # for a shell that completes, and nobody else

    return names.programs(context, parameter, incomplete)


@click.command(
    epilog=_EXAMPLES,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@asking.options
@click.option(
    "--fence",
    type=click.Choice([str(level) for level in levels.Level]),
    metavar="LEVEL",
    help="The weakest fence that will do; advisory runs without limits in force if need be.",
)
@click.option("--name", metavar="NAME", help="What others see; python-17, say.")
@click.option(
    "--priority",
    type=click.IntRange(-entries.MOST_PRIORITY, entries.MOST_PRIORITY),
    default=0,
    help="In the queue, higher first.",
)
@click.option("--no-wait", is_flag=True, help="Fail at once if there is no room.")
@click.option("--wait", "wait_s", metavar="TIME", callback=_seconds, help="At most so long: 10m.")
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=_programs
)
def run(
    *,
    wishes: requests.Wishes,
    fence: str | None,
    name: str | None,
    priority: int,
    no_wait: bool,
    wait_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Start a program with a share of a card, and keep it to that share.

    Waits in a queue if there is no room. The program takes the place of this command: its exit
    code, its signals and its terminal are its own. The share is given back when its last process
    has ended.
    """
    if name is not None:
        entries.check_name(name)
    if no_wait and wait_s:
        raise errors.InputError("--no-wait and --wait", instead="write one of them")
    wanted = running.Run(
        command=command,
        wishes=asking.within_sight(wishes),
        name=name or "",
        priority=priority,
        fence=levels.Level(fence) if fence else None,
        wait_s=0.0 if no_wait else wait_s,
    )
    asking.warn(wishes)
    running.run(wanted, asking.note, _telling)


def _telling() -> running.Telling:
    from partage.cli import run_telling  # for those who wait, and nobody else

    return run_telling.telling(sys.stderr)
