"""``partage demo``: programs that share cards, for real, in half a minute.

On the cards of this machine, or on simulated ones where it has none. Everything happens in a ledger
of its own, in a folder that is gone at the end; the user's is not touched. What is done is told in
:mod:`partage.cli.demo.steps`, who takes part in :mod:`partage.cli.demo.roles`.
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

from partage.cli import objects, tables
from partage.cli.demo import judging, steps
from partage.core import errors
from partage.fence import levels
from partage.local import fencing, places, sessions, simulating

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
    problem: str  # why the story could not be told to its end; empty if it was
    promises: tuple[judging.Promise, ...]


@click.command(epilog=_EXAMPLES)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="json prints what was promised, and whether it was kept.",
)
@click.pass_context
def demo(context: click.Context, *, output: str) -> None:
    """Let programs share cards, take too much, wait, and be killed; then say which promises held.

    Uses the GPUs of this machine, or simulated ones if it has none. Takes some ten seconds, and
    leaves nothing behind.

    Exit code 0: every promise was kept; 1: one was not.
    """
    sessions.unfence(os.environ)
    _check()
    telling = _Quiet() if output == "json" else _Loud()
    report = _told(telling)
    if output == "json":
        click.echo(objects.written("Demo", report))
    else:
        _conclude(report)
    if report.problem or not all(promise.kept for promise in report.promises):
        context.exit(1)


class _Loud:
    """For a person; click leaves the colours out where no terminal is."""

    def heading(self, text: str) -> None:
        click.secho(f"\n{tables.printable(text)}", bold=True)

    def typed(self, command: str) -> None:
        click.secho(f"$ {tables.printable(command)}", fg="cyan")

    def seen(self, text: str) -> None:
        click.echo(f"  {tables.printable(text)}")

    def table(self, text: str) -> None:
        click.echo(text)


class _Quiet:
    """For a program, which reads the end alone."""

    def heading(self, text: str) -> None:
        pass

    def typed(self, command: str) -> None:
        pass

    def seen(self, text: str) -> None:
        pass

    def table(self, text: str) -> None:
        pass


def _check() -> None:
    """Refuse what would fail half way."""
    fencing.check(levels.Level.HOOK)
    try:
        found = importlib.util.find_spec("cuda.bindings")
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise errors.PartageError(
            "the programs of the demo need the Python package cuda-bindings",
            instead="pip install cuda-bindings",
        )


def _told(telling: steps.Telling) -> Report:
    facts, problem = judging.Facts(), ""
    since_s = time.monotonic()
    with _terminated(), tempfile.TemporaryDirectory(prefix="partage-demo-") as folder:
        _settle(Path(folder))
        try:
            steps.tell(Path(folder), telling, facts)
        except steps.Stuck as error:
            problem = str(error)
    return Report(
        simulated=facts.simulated,
        seconds=round(time.monotonic() - since_s, 1),
        problem=problem,
        promises=judging.judged(facts),
    )


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Whoever ends the demo, by whatever signal, ends its programs."""
    signals = (signal.SIGTERM, signal.SIGHUP)
    caught = [each for each in signals if signal.getsignal(each) is not signal.SIG_IGN]
    before = [signal.signal(each, signal.default_int_handler) for each in caught]
    try:
        yield
    finally:
        for each, handler in zip(caught, before, strict=True):
            signal.signal(each, handler)


def _settle(folder: Path) -> None:
    """A ledger of its own, for this process and its children; on simulated cards if need be."""
    os.environ[places.VARIABLE] = str(folder / "state")
    cards = os.environ.get(simulating.VARIABLE) or ("" if _has_cards() else _CARDS)
    if cards:
        os.environ.pop("SIMCUDA_STATE", None)
        os.environ.setdefault("SIMCUDA_KERNEL_US", "1000")
        simulating.switch(cards, os.environ)


def _has_cards() -> bool:
    """Asked by a child: who has opened one NVML cannot open another, and it may be useless."""
    asked = [sys.executable, "-c", _HAS_CARDS]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def _conclude(report: Report) -> None:
    cards = "simulated cards" if report.simulated else "cards"
    click.secho(f"\nWhat was promised, as seen in these {report.seconds} s on {cards}", bold=True)
    for promise in report.promises:
        word = (
            click.style("kept:", fg="green") if promise.kept else click.style("BROKEN:", fg="red")
        )
        click.echo(f"{word} {tables.printable(promise.text)}")
    if report.problem:
        click.echo(f"partage: {tables.printable(report.problem)}", err=True)
