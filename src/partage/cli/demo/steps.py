"""The story of ``partage demo``: what is done, step by step, and what was seen of it.

Everything is done as a person would do it, by commands, and told as it happens. What happened is
written down as facts; what they are worth is told in :mod:`partage.cli.demo.judging`.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from partage.cli import gpushare_table
from partage.cli.demo import judging, roles, starting, watching
from partage.local import places, views

Stuck = watching.Stuck

_TIMEOUT_S = 30.0
_PROOF_KERNELS = 20  # that a neighbour has to run before it counts as going on
_GIB = 1024


class Telling(Protocol):
    """How whoever watches is told."""

    def heading(self, text: str) -> None:
        """What comes now."""

    def typed(self, command: str) -> None:
        """A command, as a person would type it."""

    def seen(self, text: str) -> None:
        """What came of it."""

    def table(self, text: str) -> None:
        """Lines as they are."""


def tell(folder: Path, telling: Telling, facts: judging.Facts) -> None:
    """Tell the story, and fill in the facts; Stuck, or another error, where it cannot go on."""
    with watching.watching() as watch:
        try:
            view = watch.until(lambda _: True, "a look at the cards", timeout_s=_TIMEOUT_S)
            facts.simulated, cast = view.simulated, roles.cast(view)
            _open(view, cast, telling)
            with _story(folder, telling, facts, watch, cast) as story:
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
    telling: Telling,
    facts: judging.Facts,
    watch: watching.Watch,
    cast: roles.Cast,
) -> Iterator[_Story]:
    """A story of which nothing stays when it is over."""
    story = _Story(folder, telling, facts, watch, cast)
    try:
        yield story
    finally:
        story.clear()


class _Story:
    """The steps; each leaves behind what the next one needs."""

    def __init__(
        self,
        folder: Path,
        telling: Telling,
        facts: judging.Facts,
        watch: watching.Watch,
        cast: roles.Cast,
    ) -> None:
        self._folder = folder
        self._telling = telling
        self._facts = facts
        self._watch = watch
        self._cast = cast
        self._programs: dict[str, starting.Program] = {}

    def start(self) -> None:
        """Those for whom there is room."""
        self._telling.heading("Programs start, each with a share of a card")
        for role in self._cast.first:
            program = self._run(role)
            total_bytes = program.started().total_bytes
            mine = _tenant(self._view(), role.name)
            self._telling.seen(
                f"runs on card {mine.index} with {mine.memory_mib} MiB; "
                f"CUDA shows it a card of {total_bytes >> 20} MiB"
            )
        whole = self._cast.whole
        self._facts.exclusive = whole.name if whole else None

    def ask_too_much(self) -> None:
        """One goes past its share, and its neighbours go on."""
        role = self._cast.greedy
        asked_mib = role.memory_mib * 3 // 2
        self._telling.heading(
            f"{role.name} asks CUDA for {roles.amount(asked_mib)}, "
            f"and has {roles.amount(role.memory_mib)}"
        )
        before = {name: each.kernels() for name, each in self._programs.items()}
        code = self._programs[role.name].allocate(asked_mib)
        self._facts.asked = judging.Asked(role.name, asked_mib, role.memory_mib, code)
        self._telling.seen(f"cuMemAlloc: {code}")
        since = {name: self._went_on(name, count) for name, count in before.items()}
        self._facts.went_on = {name: n for name, n in since.items() if name != role.name}
        shown = ", ".join(f"{name} {kernels}" for name, kernels in since.items())
        self._telling.seen(f"kernels since then: {shown}")

    def wait_for_room(self) -> None:
        """One waits until another ends."""
        waiter, holder = self._cast.waiting, self._cast.ending
        self._telling.heading(f"There is no room for {waiter.name}, until {holder.name} ends")
        waiting = self._waits(waiter)
        self._telling.seen(f"{holder.name} ends")
        self._facts.ended = self._turn(waiting, holder, lambda: self._end(holder))

    def kill(self) -> None:
        """One is killed, and the next has its share."""
        waiter, holder = self._cast.next, self._programs[self._cast.waiting.name]
        self._telling.heading(f"{holder.role.name} is killed while {waiter.name} waits")
        waiting = self._waits(waiter)
        self._telling.typed(f"kill -9 {holder.pid}  # {holder.role.name}")
        self._facts.killed = self._turn(waiting, holder.role, holder.kill)
        self._end(holder.role)

    def show(self) -> None:
        """What people look at, while programs run."""
        self._telling.heading("Who has what now")
        self._telling.typed("partage ps")
        self._telling.table(_ps())
        view = self._view()
        words = "simulated cards" if view.simulated else "cards"
        self._telling.heading(f"The same {words} in the table of kubectl inspect gpushare")
        self._telling.table(gpushare_table.summary([row(view)]))

    def end(self) -> None:
        """Everybody ends, and nothing is left of them."""
        for role in self._cast.last:
            self._end(role)
        view = self._view()
        there = [each.name for each in view.tenants]
        self._facts.left = (*there, *(each.name for each in view.waiting))

    def clear(self) -> None:
        """Whatever happened, no process stays."""
        for program in self._programs.values():
            program.clear()

    def _run(self, role: roles.Role) -> starting.Program:
        program = starting.Program(role, self._folder)
        self._programs[role.name] = program
        self._telling.typed(program.typed)
        return program

    def _end(self, role: roles.Role) -> None:
        self._facts.exits = {**self._facts.exits, role.name: self._programs[role.name].ended()}

    def _turn(
        self, waiting: starting.Program, holder: roles.Role, leave: Callable[[], None]
    ) -> judging.Turn:
        """A holder leaves, and who waits has the share, and runs."""
        waiter = waiting.role
        before = _tenant(self._view(), holder.name)
        left_s = time.time()
        leave()
        waiting.started()
        ran_s = time.time()
        after = _tenant(self._view(), waiter.name)
        self._telling.seen(
            f"{waiter.name} has {after.memory_mib} MiB of card {after.index} "
            f"{1000 * (after.granted_at - left_s):.0f} ms later, and runs"
        )
        return judging.Turn(
            waiter=waiter.name,
            holder=holder.name,
            asked_s=waiting.asked_s,
            left_s=left_s,
            granted_s=after.granted_at,
            ran_s=ran_s,
            same_card=after.uuid == before.uuid,
        )

    def _waits(self, role: roles.Role) -> starting.Program:
        """Start one for whom there is no room, and see it wait."""
        program = self._run(role)
        view = self._watch.until(
            lambda view: any(each.name == role.name for each in view.waiting),
            f"that {role.name} waits",
            timeout_s=_TIMEOUT_S,
        )
        for each in view.waiting:
            self._telling.seen(f"{each.name} waits at place {each.place}: {each.reason}")
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
        """One that was taken after this call."""
        now_ns = time.time_ns()
        return self._watch.until(
            lambda view: view.taken_ns > now_ns, "a look at the ledger", timeout_s=_TIMEOUT_S
        )


def row(view: views.View) -> gpushare_table.NodeRow:
    """This machine in whole GiB; what was granted is rounded up: no more looks free than is."""
    return gpushare_table.NodeRow(
        name=view.node,
        address="127.0.0.1",
        used=tuple(-(-card.granted_mib // _GIB) for card in view.cards),
        total=tuple(card.memory_mib // _GIB for card in view.cards),
    )


def _open(view: views.View, cast: roles.Cast, telling: Telling) -> None:
    what = (
        "Partage on simulated cards" if view.simulated else "Partage on the cards of this machine"
    )
    telling.heading(f"{what}: {roles.described(view.cards)}")
    for variable in (places.SIMULATION, places.VARIABLE):
        if variable in os.environ:
            telling.typed(f"export {variable}={os.environ[variable]}")
    if cast.whole is None:
        telling.seen("no card is left over for a program that wants a whole one")


def _tenant(view: views.View, name: str) -> views.TenantView:
    found = next((each for each in view.tenants if each.name == name), None)
    if found is None:
        raise watching.Stuck(f"{name} runs, and the ledger does not know it")
    return found


def _ps() -> str:
    """The real command."""
    done = subprocess.run([*starting.PARTAGE, "ps"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise watching.Stuck(f"`partage ps` ended with {done.returncode}: {done.stderr}")
    return done.stdout.rstrip()
