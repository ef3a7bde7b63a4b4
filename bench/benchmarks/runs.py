"""Runs: what ``partage run`` costs before the program starts, and how many grants a ledger gives.

The start is the time of ``partage run -- python -c pass`` less that of ``python -c pass``, whole
processes by the clock, in turns, on simulated cards. A real driver adds what it takes to open NVML.

A grant is the whole transaction: the lease made and locked, everybody's lease looked at, the queue
settled by the core, the row written, and all of it given back. The floor is a transaction that
writes and removes one row in the same file. Several processes ask for theirs at the same time, as
fast as they can.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from bench.measurement import durations, results
from native import parts
from partage.core import demands
from partage.local.ledger import ledger, session
from partage.local.machine import machine, simulated_driver
from partage.local.queue import decision
from partage.local.requests import requests
from partage.local.state import leases

_CARDS = "4x64GiB"
_STARTS = 25
_GRANTS = 300
_LIVING = 50
_PROCESSES = 4
_AIM_MS = 150
_AIM_GRANTS = {0: 40.0, _LIVING: 150.0}  # times the floor


def run() -> Iterator[results.Result]:
    """All lines."""
    if not (parts.LIB / "simulated" / "libnvidia-ml.so.1").exists():
        yield results.Note("left out: build the simulated driver first, with `python -m native`")
        return
    with tempfile.TemporaryDirectory(prefix="partage-bench-") as folder, _environment_kept():
        os.environ["PARTAGE_STATE"] = folder
        simulated_driver.switch(_CARDS, os.environ)
        yield from _starts()
        with session.opened(os.environ) as opened:
            yield from _grants(opened)
        yield _together()


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    """The benchmarks that come later have other cards, and processes that inherit."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _starts() -> Iterator[results.Result]:
    plain = [sys.executable, "-c", "pass"]
    partage = str(pathlib.Path(sys.executable).with_name("partage"))
    shared = [partage, "run", "--memory", "4GiB", "--compute", "30%", "--", *plain]
    _called(shared)  # the first one measures what a context costs
    took_us, bare_us = durations.compare_us(
        lambda: _called(shared), lambda: _called(plain), rounds=_STARTS
    )
    yield results.Amount(
        what=f"from the command to the program, over its bare start ({bare_us / 1000:.0f} ms)",
        amount=(took_us - bare_us) / 1000,
        unit="ms",
        aim=_AIM_MS,
    )


def _called(command: list[str]) -> None:
    # An installed package has its bytecode; a checkout writes it in the first round.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, env=environment)


def _grants(opened: session.Session) -> Iterator[results.Result]:
    seen = machine.see(opened.driver)
    held: list[leases.Lease] = []
    for living in (0, _LIVING):
        while len(held) < living:
            held.append(decision.ask(opened, seen, _asking(), time.time)[0])
        took_us, floor_us = durations.compare_us(
            lambda: _granted(opened, seen), lambda: _row(opened.book), rounds=_GRANTS
        )
        yield results.Line(
            what=f"a grant taken and given back, {living} others living",
            took_us=took_us,
            floor="writing a row",
            floor_us=floor_us,
            aim=_AIM_GRANTS[living],
        )
    for lease in held:
        decision.leave(opened, lease)


def _asking() -> decision.Asking:
    wishes = requests.Wishes(memory="1GiB", compute="1%")
    demand: demands.PodDemand = requests.demand(wishes, ())
    return decision.Asking(demand=demand, program="bench")


def _granted(opened: session.Session, seen: machine.Seen) -> None:
    lease, outcome = decision.ask(opened, seen, _asking(), time.time)
    if outcome.entry.grant is None:
        raise RuntimeError("there should have been room")
    decision.leave(opened, lease)


def _row(book: ledger.Ledger) -> None:
    with book.deciding():
        book.set_fact("bench", "row")


def _together() -> results.Result:
    """Processes that ask as fast as they can, on one ledger."""
    with multiprocessing.get_context("spawn").Pool(_PROCESSES) as pool:
        rates = pool.map(_rate, [_GRANTS] * _PROCESSES)
    return results.Amount(
        what=f"grants a second on one ledger, {_PROCESSES} processes at once",
        amount=sum(rates),
        unit="/s",
    )


def _rate(count: int) -> float:
    simulated_driver.switch(os.environ["PARTAGE_SIMULATE"], os.environ)
    with session.opened(os.environ) as opened:
        seen = machine.see(opened.driver)
        began = time.monotonic()
        for _ in range(count):
            _granted(opened, seen)
        return count / (time.monotonic() - began)
