"""``partage run``: start a program with a share of a card."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import click

from partage.cli import notices, share_options
from partage.cli.commands.run import program_hints
from partage.cli.sources import slurm_node
from partage.core import errors
from partage.fence.levels import catalog
from partage.local.requests import requests
from partage.local.run import launch
from partage.local.state import entries, leases

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
  srun --gres=gpu:1 partage run --under-slurm --memory 4GiB -- python train.py

\b
Exit codes: the program's own; before it starts 2 for a request that cannot
be used or can never fit, 75 if there was no room in time, 126 and 127 if the
program cannot be started or found, 130 if Ctrl-C ended the waiting, 1 for
everything else.
"""
_QUIET = "PARTAGE_QUIET"  # it silences the lines of the fence's library, too
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_DURATION = r"(?:[0-9]{1,6}[smhd])+|[0-9]{1,9}"  # not compiled: few write one


def _seconds(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """``10m``, ``1h30m``, ``90``: seconds."""
    if text is None:
        return None
    if not re.fullmatch(_DURATION, text):
        raise errors.InputError(
            f"--wait: {text!r} is not a valid duration", instead="write 90s, 10m or 1h30m"
        )
    if text.isdecimal():
        return float(text)
    parts = re.findall(r"(\d+)([smhd])", text)
    return float(sum(int(number) * _UNITS_S[unit] for number, unit in parts))


def _programs(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from partage.cli import name_completion  # needed only by a shell that completes

    return name_completion.programs(context, parameter, incomplete)


@click.command(
    epilog=_EXAMPLES,
    context_settings={"ignore_unknown_options": False, "allow_interspersed_args": False},
)
@share_options.options
@click.option(
    "--fence",
    type=click.Choice([str(level) for level in catalog.Level]),
    metavar="LEVEL",
    help="The weakest fence to accept; with advisory the program starts even without limits.",
)
@click.option("--name", metavar="NAME", help="The name that others see; python-17 for example.")
@click.option(
    "--priority",
    type=click.IntRange(-entries.MOST_PRIORITY, entries.MOST_PRIORITY),
    default=0,
    help="In the queue, higher goes first.",
)
@share_options.under_slurm
@click.option("--no-wait", is_flag=True, help="Fail at once if there is no room.")
@click.option(
    "--wait", "wait_s", metavar="TIME", callback=_seconds, help="Wait at most this long: 10m."
)
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, shell_complete=_programs
)
def run(
    *,
    wishes: requests.Wishes,
    fence: str | None,
    name: str | None,
    priority: int,
    under_slurm: bool,
    no_wait: bool,
    wait_s: float | None,
    command: tuple[str, ...],
) -> None:
    """Start a program with a share of a card, and keep it to that share.

    Waits in a queue if there is no room. This command becomes the program, so exit code, signals
    and terminal are the program's own. The share is given back when its last process has ended.
    """
    if name is not None:
        entries.check_name(name)
    if no_wait and wait_s:
        raise errors.InputError(
            "--no-wait and --wait contradict each other", instead="write one of them"
        )
    program_hints.check(command, os.environ.get("PATH"))
    request = launch.Run(
        command=command,
        wishes=share_options.restricted_to_visible(wishes, under_slurm=under_slurm),
        name=name or "",
        priority=priority,
        fence=catalog.Level(fence) if fence else None,
        wait_s=0.0 if no_wait else wait_s,
    )
    share_options.warn(wishes)
    notes = _Notes()
    gate = slurm_node.gate(os.environ, under_slurm=under_slurm)
    launch.run(request, notices.note, notes.waiting, notes.started, gate)


class _Notes:
    """What the user is told between the request and the start of the program."""

    def __init__(self) -> None:
        self._waited = False

    def waiting(self) -> launch.WaitDisplay:
        """Called if the program has to wait."""
        from partage.cli.display import waiting_lines  # needed only by those who wait

        self._waited = True
        return waiting_lines.telling(sys.stderr)

    def started(self, lease: leases.Lease) -> None:
        """Which card it is: for a person, and in a log where the reader saw it wait.

        A script that got its card at once finds on stderr what the program writes, and no more.
        """
        if os.environ.get(_QUIET) or not (self._waited or sys.stderr.isatty()):
            return
        if lease.entry is None or lease.entry.container is None:
            return
        indexes = sorted({share.index for share in lease.entry.container.shares})
        cards = f"card{'s' * (len(indexes) > 1)} {', '.join(map(str, indexes))}"
        waited = f" after waiting {_waiting_time(lease.entry)}" if self._waited else ""
        notices.note(f"{lease.entry.name} starts on {cards}{waited}")


def _waiting_time(entry: entries.Entry) -> str:
    from partage.cli.display import tables

    return tables.age(entry.since - entry.asked_at)
