"""The story of ``partage demo``: what is done, step by step, and what was seen of it.

Everything is done by commands, as a user would do it, and shown as it happens. What happened is
written down as facts, which :mod:`partage.cli.commands.demo.verdict` judges.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from partage.cli.commands.demo import launcher, observer, roles, verdict
from partage.cli.display import gpushare_table
from partage.local.state import location
from partage.local.view import views

Stuck = observer.Stuck

_TIMEOUT_S = 30.0
_PROOF_KERNELS = 20  # that a neighbour has to run before it counts as going on
_GIB = 1024


class Narrator(Protocol):
    """How the story is shown."""

    def heading(self, text: str) -> None:
        """The next step."""

    def typed(self, command: str) -> None:
        """A command, as a user would type it."""

    def seen(self, text: str) -> None:
        """A result."""

    def table(self, text: str) -> None:
        """Lines to print unchanged."""


def run(folder: Path, narrator: Narrator, facts: verdict.Facts) -> None:
    """Run the story, and fill in the facts; raises Stuck, or another error, if it cannot go on."""
    with observer.watching() as watch:
        try:
            view = watch.until(lambda _: True, "a look at the cards", timeout_s=_TIMEOUT_S)
            facts.simulated, cast = view.simulated, roles.cast(view)
            _open(view, cast, narrator)
            with _story(folder, narrator, facts, watch, cast) as story:
                story.start()
                story.ask_too_much()
                story.wait_for_room()
                story.kill()
                story.show()
                story.end()
        finally:
            facts.views, facts.excesses = watch.views, tuple(watch.excesses)


@contextlib.contextmanager
def _story(
    folder: Path,
    narrator: Narrator,
    facts: verdict.Facts,
    watch: observer.Watch,
    cast: roles.Cast,
) -> Iterator[_Story]:
    """A story of which nothing stays when it is over."""
    story = _Story(folder, narrator, facts, watch, cast)
    try:
        yield story
    finally:
        story.clear()


class _Story:
    """The steps; each leaves behind what the next one needs."""

    def __init__(
        self,
        folder: Path,
        narrator: Narrator,
        facts: verdict.Facts,
        watch: observer.Watch,
        cast: roles.Cast,
    ) -> None:
        self._folder = folder
        self._narrator = narrator
        self._facts = facts
        self._watch = watch
        self._cast = cast
        self._programs: dict[str, launcher.Program] = {}

    def start(self) -> None:
        """The programs for which there is room."""
        self._narrator.heading("Programs start, each with a share of a card")
        for role in self._cast.first:
            program = self._run(role)
            total_bytes = program.started().total_bytes
            mine = _tenant(self._view(), role.name)
            self._narrator.seen(
                f"runs on card {mine.index} with {mine.memory_mib} MiB; "
                f"CUDA shows it a card of {total_bytes >> 20} MiB"
            )
        whole = self._cast.whole
        self._facts.exclusive = whole.name if whole else None

    def ask_too_much(self) -> None:
        """One program asks for more than its share, and the others go on."""
        role = self._cast.greedy
        asked_mib = role.memory_mib * 3 // 2
        self._narrator.heading(
            f"{role.name} asks CUDA for {roles.amount(asked_mib)}, "
            f"and has {roles.amount(role.memory_mib)}"
        )
        before = {name: program.kernels() for name, program in self._programs.items()}
        code = self._programs[role.name].allocate(asked_mib)
        self._facts.allocation = verdict.Allocation(role.name, asked_mib, role.memory_mib, code)
        self._narrator.seen(f"cuMemAlloc: {code}")
        since = {name: self._went_on(name, count) for name, count in before.items()}
        self._facts.went_on = {name: n for name, n in since.items() if name != role.name}
        shown = ", ".join(f"{name} {kernels}" for name, kernels in since.items())
        self._narrator.seen(f"kernels since then: {shown}")

    def wait_for_room(self) -> None:
        """A program waits until another one ends."""
        waiter, holder = self._cast.waiting, self._cast.ending
        self._narrator.heading(f"There is no room for {waiter.name} until {holder.name} ends")
        waiting = self._waits(waiter)
        self._narrator.seen(f"{holder.name} ends")
        self._facts.ended = self._turn(waiting, holder, lambda: self._end(holder))

    def kill(self) -> None:
        """A program is killed, and the next one gets its share."""
        waiter, holder = self._cast.next, self._programs[self._cast.waiting.name]
        self._narrator.heading(f"{holder.role.name} is killed while {waiter.name} waits")
        waiting = self._waits(waiter)
        self._narrator.typed(f"kill -9 {holder.pid}  # {holder.role.name}")
        self._facts.killed = self._turn(waiting, holder.role, holder.kill)
        self._end(holder.role)

    def show(self) -> None:
        """The tables that users look at while programs run."""
        self._narrator.heading("Who has which share now")
        self._narrator.typed("partage ps")
        self._narrator.table(_ps())
        view = self._view()
        words = "simulated cards" if view.simulated else "cards"
        self._narrator.heading(f"The same {words} in the table of kubectl inspect gpushare")
        self._narrator.table(gpushare_table.summary([row(view)]))

    def end(self) -> None:
        """All programs end, and nothing is left of them."""
        for role in self._cast.last:
            self._end(role)
        view = self._view()
        tenants = [program.name for program in view.tenants]
        self._facts.left = (*tenants, *(program.name for program in view.waiting))

    def clear(self) -> None:
        """Whatever happened, no process is left."""
        for program in self._programs.values():
            program.clear()

    def _run(self, role: roles.Role) -> launcher.Program:
        program = launcher.Program(role, self._folder)
        self._programs[role.name] = program
        self._narrator.typed(program.typed)
        return program

    def _end(self, role: roles.Role) -> None:
        self._facts.exits = {**self._facts.exits, role.name: self._programs[role.name].ended()}

    def _turn(
        self, waiting: launcher.Program, holder: roles.Role, leave: Callable[[], None]
    ) -> verdict.Turn:
        """A holder ends, and the program that waits gets the share, and runs."""
        waiter = waiting.role
        before = _tenant(self._view(), holder.name)
        left_s = time.time()
        leave()
        waiting.started()
        ran_s = time.time()
        after = _tenant(self._view(), waiter.name)
        self._narrator.seen(
            f"{waiter.name} has {after.memory_mib} MiB of card {after.index} "
            f"{1000 * (after.granted_at - left_s):.0f} ms later, and runs"
        )
        return verdict.Turn(
            waiter=waiter.name,
            holder=holder.name,
            asked_s=waiting.asked_s,
            left_s=left_s,
            granted_s=after.granted_at,
            ran_s=ran_s,
            same_card=after.uuid == before.uuid,
        )

    def _waits(self, role: roles.Role) -> launcher.Program:
        """Start a program for which there is no room, and see it wait."""
        program = self._run(role)
        view = self._watch.until(
            lambda view: any(waiting.name == role.name for waiting in view.waiting),
            f"that {role.name} waits",
            timeout_s=_TIMEOUT_S,
        )
        for waiting in view.waiting:
            self._narrator.seen(f"{waiting.name} waits at place {waiting.place}: {waiting.reason}")
        return program

    def _went_on(self, name: str, before: int) -> int:
        """How many kernels a program has run since; waits until they are some."""
        until_s = time.monotonic() + _TIMEOUT_S
        while True:
            since = self._programs[name].kernels() - before
            if since >= _PROOF_KERNELS or time.monotonic() > until_s:
                return since
            time.sleep(0.01)

    def _view(self) -> views.View:
        return self._watch.next(timeout_s=_TIMEOUT_S)


def row(view: views.View) -> gpushare_table.NodeRow:
    """This machine in whole GiB; what was granted is rounded up: no more looks free than is."""
    return gpushare_table.NodeRow(
        name=view.node,
        address="127.0.0.1",
        used=tuple(-(-card.granted_mib // _GIB) for card in view.cards),
        total=tuple(card.memory_mib // _GIB for card in view.cards),
    )


def _open(view: views.View, cast: roles.Cast, narrator: Narrator) -> None:
    what = (
        "Partage on simulated cards" if view.simulated else "Partage on the cards of this machine"
    )
    narrator.heading(f"{what}: {roles.described(view.cards)}")
    for variable in (location.SIMULATION, location.VARIABLE):
        if variable in os.environ:
            narrator.typed(f"export {variable}={os.environ[variable]}")
    if cast.whole is None:
        narrator.seen("no card is left for a program that asks for a whole one")


def _tenant(view: views.View, name: str) -> views.TenantView:
    tenant = next((tenant for tenant in view.tenants if tenant.name == name), None)
    if tenant is None:
        raise observer.Stuck(f"{name} runs, but is not in the ledger")
    return tenant


def _ps() -> str:
    """The real command."""
    done = subprocess.run([*launcher.PARTAGE, "ps"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise observer.Stuck(f"`partage ps` ended with {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()
