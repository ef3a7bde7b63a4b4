"""Waiting for a grant: asleep until something changes, and then only one decides.

Everybody who waits hears the same bell. Each looks whether he was granted something meanwhile; if
not, the first of those who wait and live decides for all, and the others sleep on. So a hundred
waiting programs cost little more than one. Foreign processes ring no bell: for them the first looks
again from time to time.

A disk that is full or read-only, and others who do not let the ledger go, cost nobody his place: he
is told once, and tries again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from partage.local import (
    bells,
    databases,
    entries,
    granting,
    leases,
    machine,
    processes,
    reasons,
    sessions,
    sweeping,
)

_LOOK_S = 2.0  # between two looks of the first, if nothing rings
_HANGS_S = 3 * _LOOK_S  # after which the first is believed not to look any more
_MOMENT_S = 0.5  # that others take to decide
# After a ring: a process closes its files, and rings, a moment before it has ended.
_SOON_S = (0.01, 0.05, 0.25)

Show = Callable[[granting.Outcome], None]
Done = TypeVar("Done")


class Watch(msgspec.Struct, frozen=True):
    """What one who waits needs from outside."""

    show: Show  # called with where one stands
    live: bool  # whether somebody looks at that all the time
    warn: Callable[[str], None]  # called with what keeps one from the ledger
    monotonic: Callable[[], float]
    now: Callable[[], float]  # since 1970
    deadline_s: float | None  # on the monotonic clock; None: for ever


def until_granted(
    here: sessions.Session,
    lease: leases.Lease,
    first: granting.Outcome,
    watch: Watch,
) -> entries.Entry:
    """Wait, and show where one stands."""
    outcome, troubles = first, _Troubles(watch)
    with bells.hung(here.place.leases) as bell:
        # Whoever ended between the first decision and now rang for nobody.
        outcome = _look(here, lease, outcome, watch, troubles)
        pauses_s = iter(_SOON_S)
        while outcome.entry.grant is None:
            watch.show(outcome)
            left_s = _left_s(watch)
            if left_s <= 0:
                raise hindered(troubles.now) if troubles.now else too_late(outcome)
            if bell.wait(min(next(pauses_s, _LOOK_S), left_s)):
                pauses_s = iter(_SOON_S)
            outcome = _look(here, lease, outcome, watch, troubles)
    return outcome.entry


def until_written(write: Callable[[], Done], watch: Watch, sleep: Callable[[float], None]) -> Done:
    """Write what belongs to a grant that was waited for, as soon as the disk lets one."""
    troubles = _Troubles(watch)
    while True:
        try:
            return write()
        except databases.Unwritable as error:
            troubles.meet(error)
            if _left_s(watch) <= 0:
                raise hindered(error) from error
        sleep(min(_LOOK_S, _left_s(watch)))


def too_late(outcome: granting.Outcome) -> reasons.NoRoom:
    """Why one goes without a grant."""
    why = reasons.told(outcome.waiting)
    behind = outcome.waiting is not None and outcome.waiting.behind
    return reasons.NoRoom(
        why if behind else f"there is no room now: {why}",
        instead="wait longer, or ask for less; `partage ps` shows who has what",
    )


def hindered(trouble: databases.Unwritable) -> reasons.NoRoom:
    """The same, where the ledger did not let one know."""
    return reasons.NoRoom(f"the time to wait is over: {trouble.what}", instead=trouble.instead)


def _left_s(watch: Watch) -> float:
    """How long one may still wait, at least as long as between two looks if that is for ever."""
    return _LOOK_S if watch.deadline_s is None else max(0, watch.deadline_s - watch.monotonic())


def _patience_s(watch: Watch) -> float:
    """How long one may wait for others who decide: there is always a moment for that."""
    return databases.BUSY_S if watch.deadline_s is None else max(_MOMENT_S, _left_s(watch))


class _Troubles:
    """What keeps one who waits from the ledger; told once, until it is over."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.now: databases.Unwritable | None = None

    def meet(self, error: databases.Unwritable) -> None:
        if self.now is None:
            self._watch.warn(f"{error.what}; this keeps its place, and tries again")
        self.now = error


def _look(
    here: sessions.Session,
    lease: leases.Lease,
    before: granting.Outcome,
    watch: Watch,
    troubles: _Troubles,
) -> granting.Outcome:
    """Where one stands now; as before, if the ledger cannot be written: one can wait."""
    try:
        outcome = _found(here, lease, before, watch)
    except databases.Unwritable as error:
        troubles.meet(error)
        return before
    troubles.now = None
    return outcome


def _found(
    here: sessions.Session,
    lease: leases.Lease,
    before: granting.Outcome,
    watch: Watch,
) -> granting.Outcome:
    here.book.renew()
    mine = sweeping.one(here.place, lease.token, here.book.one(lease.token))
    if mine is not None and mine.grant is not None:
        return granting.Outcome(mine)
    if mine is not None and not _due(here, mine, watch.now()):
        return granting.peek(here, lease.token) if watch.live else before
    seen = machine.see(here.driver)
    outcome = granting.again(here, seen, lease.token, watch.now(), _patience_s(watch))
    if outcome.others:
        bells.ring(lease.path)
    return outcome


def _due(here: sessions.Session, mine: entries.Entry, now_s: float) -> bool:
    """Whether it is one's own turn to decide: as the first, or because he does not.

    He may hang, in a terminal that was stopped by Ctrl-S for example.
    """
    return abs(now_s - granting.decided_s(here)) > _HANGS_S or _first(here, mine)


def _first(here: sessions.Session, mine: entries.Entry) -> bool:
    """Whether nobody comes before who waits and lives, and whom nobody has stopped."""
    return not any(
        sweeping.waits(here.place, each) and not processes.stopped(each.pid)
        for each in here.book.ahead_of(mine)
    )
