"""``partage demo``: programs that really share cards, in half a minute.

On the cards of this machine, or on simulated ones where it has none. Everything happens in a ledger
of its own, in a folder that is removed at the end; the user's is not touched. The story is in
:mod:`partage.cli.commands.demo.steps`, its programs are in :mod:`partage.cli.commands.demo.roles`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec

from partage.cli import notices
from partage.cli.commands.demo import steps, verdict
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.fence.levels import catalog
from partage.local.ledger import session
from partage.local.machine import simulated_driver
from partage.local.run import program_fence
from partage.local.state import location

_CARDS = "2x16GiB"
_HAS_CARDS = """
from partage.devices import nvml
with nvml.Nvml() as driver:
    raise SystemExit(not any(device.card for device in driver.devices()))
"""
_EXAMPLES = """\b
Examples:
  partage demo
  partage --simulate 1x24GiB demo
  partage demo -o json | jq '.promises[] | select(.kept | not)'
"""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What ``-o json`` prints."""

    simulated: bool
    seconds: float
    problem: str  # why the story stopped before its end; empty if it did not
    promises: tuple[verdict.Promise, ...]


@click.command(epilog=_EXAMPLES)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json prints each promise, and whether it was kept.",
)
@click.pass_context
def demo(context: click.Context, *, output: str) -> None:
    """Let programs share cards, ask for too much, wait and be killed; say which promises held.

    Uses the cards of this machine, or simulated ones if it has none. Takes about ten seconds, and
    leaves nothing behind.

    Exit code 0: every promise was kept; 1: at least one was broken.
    """
    session.unfence(os.environ)
    _check()
    narrator = _SilentNarrator() if output == "json" else _TextNarrator()
    report = _story_report(narrator)
    if output == "json":
        click.echo(json_objects.written("Demo", report))
    else:
        _conclude(report)
    if report.problem or not all(promise.kept for promise in report.promises):
        context.exit(1)


class _TextNarrator:
    """For a user; click leaves the colours out where there is no terminal."""

    def heading(self, text: str) -> None:
        click.secho(f"\n{tables.printable(text)}", bold=True)

    def typed(self, command: str) -> None:
        click.secho(f"$ {tables.printable(command)}", fg="cyan")

    def seen(self, text: str) -> None:
        click.echo(f"  {tables.printable(text)}")

    def table(self, text: str) -> None:
        click.echo(text)


class _SilentNarrator:
    """For a program, which reads the report at the end."""

    def heading(self, text: str) -> None:
        pass

    def typed(self, command: str) -> None:
        pass

    def seen(self, text: str) -> None:
        pass

    def table(self, text: str) -> None:
        pass


def _check() -> None:
    """Refuse what would fail halfway."""
    program_fence.check(catalog.Level.HOOK)
    try:
        package = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        package = None
    if package is None:
        raise errors.PartageError(
            "the programs of the demo need the Python package cuda-bindings",
            instead="pip install cuda-bindings",
        )


def _story_report(narrator: steps.Narrator) -> Report:
    facts, problem = verdict.Facts(), ""
    since_s = time.monotonic()
    with _terminated(), tempfile.TemporaryDirectory(prefix="partage-demo-") as folder:
        _settle(Path(folder))
        try:
            steps.run(Path(folder), narrator, facts)
        except steps.Stuck as error:
            problem = str(error)
    return Report(
        simulated=facts.simulated,
        seconds=round(time.monotonic() - since_s, 1),
        problem=problem,
        promises=verdict.judged(facts),
    )


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """A signal that ends the demo ends its programs, too."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    caught = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = [signal.signal(number, signal.default_int_handler) for number in caught]
    try:
        yield
    finally:
        for number, handler in zip(caught, before, strict=True):
            signal.signal(number, handler)


def _settle(folder: Path) -> None:
    """Its own ledger, for this process and its children; on simulated cards if it has no others."""
    os.environ[location.VARIABLE] = str(folder / "state")
    cards = os.environ.get(simulated_driver.VARIABLE) or ("" if _has_cards() else _CARDS)
    if cards:
        os.environ.pop("SIMCUDA_STATE", None)
        os.environ.setdefault("SIMCUDA_KERNEL_US", "1000")
        simulated_driver.switch(cards, os.environ)


def _has_cards() -> bool:
    """In a child process: a process that opened one NVML cannot open another one."""
    command = [sys.executable, "-c", _HAS_CARDS]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _conclude(report: Report) -> None:
    cards = "simulated cards" if report.simulated else "cards"
    click.secho(f"\nPromises, checked in {report.seconds} s on {cards}", bold=True)
    for promise in report.promises:
        word = (
            click.style("kept:", fg="green") if promise.kept else click.style("BROKEN:", fg="red")
        )
        click.echo(f"{word} {tables.printable(promise.text)}")
    if report.problem:
        notices.note(tables.printable(report.problem))
