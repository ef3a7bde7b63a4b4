"""Waiting for a grant: asleep until something changes, and then only one decides.

All programs that wait get the same wakeup. Each looks whether it was granted something meanwhile;
if not, the first that waits and lives decides for all, and the others sleep on. So a hundred
waiting programs cost little more than one. Foreign processes cause no wakeup: for them the first
looks again from time to time.

A disk that is full or read-only, and others who do not let the ledger go, cost nobody their place:
they are told once, and try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from partage.fence import processes
from partage.local.ledger import database, liveness, session
from partage.local.machine import machine
from partage.local.queue import decision, wait_reasons, wakeup
from partage.local.state import entries, leases

_LOOK_S = 2.0  # between two looks of the first, if there is no wakeup
_HANGS_S = 3 * _LOOK_S  # after which the first is believed not to look any more
_MOMENT_S = 0.5  # that others take to decide
# After a wakeup: a process closes its files, which causes it, a moment before it has ended.
_SOON_S = (0.01, 0.05, 0.25)

Show = Callable[[decision.Outcome], None]
Done = TypeVar("Done")


class Watch(msgspec.Struct, frozen=True):
    """What a program that waits needs from outside."""

    show: Show  # called with its place in the queue
    live: bool  # whether somebody looks at that all the time
    warn: Callable[[str], None]  # called with what keeps it from the ledger
    monotonic: Callable[[], float]
    now: Callable[[], float]  # since 1970
    deadline_s: float | None  # on the monotonic clock; None: for ever


def until_granted(
    opened: session.Session,
    lease: leases.Lease,
    first: decision.Outcome,
    watch: Watch,
) -> entries.Entry:
    """Wait, and show the place in the queue."""
    outcome, troubles = first, _Troubles(watch)
    with wakeup.watching(opened.state.leases) as wakeups:
        # A program that ended between the first decision and now woke nobody.
        outcome = _look(opened, lease, outcome, watch, troubles)
        pauses_s = iter(_SOON_S)
        while outcome.entry.grant is None:
            watch.show(outcome)
            left_s = _left_s(watch)
            if left_s <= 0:
                raise hindered(troubles.now) if troubles.now else too_late(outcome)
            if wakeups.wait(min(next(pauses_s, _LOOK_S), left_s)):
                pauses_s = iter(_SOON_S)
            outcome = _look(opened, lease, outcome, watch, troubles)
    return outcome.entry


def until_written(write: Callable[[], Done], watch: Watch, sleep: Callable[[float], None]) -> Done:
    """Write what belongs to a grant that was waited for, as soon as the disk allows it."""
    troubles = _Troubles(watch)
    while True:
        try:
            return write()
        except database.Unwritable as error:
            troubles.meet(error)
            if _left_s(watch) <= 0:
                raise hindered(error) from error
        sleep(min(_LOOK_S, _left_s(watch)))


def too_late(outcome: decision.Outcome) -> wait_reasons.NoRoom:
    """The error for a program that goes without a grant."""
    why = wait_reasons.reason(outcome.waiting)
    behind = outcome.waiting is not None and outcome.waiting.behind
    return wait_reasons.NoRoom(
        why if behind else f"there is no room now: {why}",
        instead="wait longer, or ask for less; `partage ps` shows who has what",
    )


def hindered(trouble: database.Unwritable) -> wait_reasons.NoRoom:
    """The same, where the ledger could not be used."""
    return wait_reasons.NoRoom(f"the time to wait is over: {trouble.what}", instead=trouble.instead)


def _left_s(watch: Watch) -> float:
    """How long it may still wait, at least as long as between two looks if that is for ever."""
    return _LOOK_S if watch.deadline_s is None else max(0, watch.deadline_s - watch.monotonic())


def _patience_s(watch: Watch) -> float:
    """How long it may wait for others who decide: there is always a moment for that."""
    return database.BUSY_S if watch.deadline_s is None else max(_MOMENT_S, _left_s(watch))


class _Troubles:
    """What keeps a program that waits from the ledger; told once, until it is over."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.now: database.Unwritable | None = None

    def meet(self, error: database.Unwritable) -> None:
        if self.now is None:
            self._watch.warn(f"{error.what}; this program keeps its place, and tries again")
        self.now = error


def _look(
    opened: session.Session,
    lease: leases.Lease,
    before: decision.Outcome,
    watch: Watch,
    troubles: _Troubles,
) -> decision.Outcome:
    """Where it stands now; as before, if the ledger cannot be written: it can wait."""
    try:
        outcome = _decided(opened, lease, before, watch)
    except database.Unwritable as error:
        troubles.meet(error)
        return before
    troubles.now = None
    return outcome


def _decided(
    opened: session.Session,
    lease: leases.Lease,
    before: decision.Outcome,
    watch: Watch,
) -> decision.Outcome:
    opened.book.renew()
    mine = liveness.living_entry(opened.state, lease.token, opened.book.entry(lease.token))
    if mine is not None and mine.grant is not None:
        return decision.Outcome(mine)
    if mine is not None and not _due(opened, mine, watch.now()):
        return decision.peek(opened, lease.token) if watch.live else before
    seen = machine.see(opened.driver)
    outcome = decision.again(opened, seen, lease.token, watch.now, _patience_s(watch))
    if outcome.others:
        wakeup.send(lease.path)
    return outcome


def _due(opened: session.Session, mine: entries.Entry, now_s: float) -> bool:
    """Whether this process has to decide: as the first, or because the first does not.

    That one may hang, in a terminal that was stopped by Ctrl-S for example.
    """
    return abs(now_s - decision.decided_s(opened)) > _HANGS_S or _first(opened, mine)


def _first(opened: session.Session, mine: entries.Entry) -> bool:
    """Whether no other that waits, lives and is not stopped comes before it."""
    return not any(
        liveness.waits(opened.state, ahead) and not processes.stopped(ahead.pid)
        for ahead in opened.book.ahead_of(mine)
    )
