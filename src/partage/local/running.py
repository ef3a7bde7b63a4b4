"""Running: take a grant, wait for it if need be, put the fence up, and become the program."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from partage.core import errors
from partage.fence import levels
from partage.local import (
    contexts,
    databases,
    entries,
    fencing,
    granting,
    leases,
    machine,
    places,
    requests,
    sessions,
    simulating,
    starting,
)

if TYPE_CHECKING:
    from partage.local import waiting

_AT_ONCE_S = 5.0  # for who decides, even if one does not want to wait


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What a person wants to run, and how."""

    command: tuple[str, ...]
    wishes: requests.Wishes
    name: str = ""
    priority: int = 0
    fence: levels.Level | None = None  # at least; None: one that keeps what is asked for
    wait_s: float | None = None  # None: for ever; 0: not at all


class Telling(msgspec.Struct, frozen=True):
    """How one who waits is told where he stands in the queue."""

    show: Callable[[granting.Outcome], None]
    live: bool  # whether somebody looks at that all the time
    done: Callable[[], None]  # called when that is over, or something else is written; often


def run(wanted: Run, note: Callable[[str], None], telling: Callable[[], Telling]) -> None:
    """Returns only by an error: this process becomes the program.

    ``note`` says what one should know of the ledger; ``telling`` is asked for if one has to wait.
    """
    if fencing.inside(os.environ) or sessions.fenced(os.environ):
        raise errors.InputError(
            f"this is already a program with a share ({os.environ.get('PARTAGE_NAME', '')})",
            instead="start the program as it is, or leave that share first",
        )
    requests.check(wanted.wishes)
    program = starting.check(wanted.command[0], os.environ.get("PATH"))
    fence = fencing.choose(program, wanted.fence, limited=requests.limited(wanted.wishes))
    if fence.hindrance:
        note(f"the fence does not reach {program}: {fence.hindrance}")
    with sessions.opened(os.environ) as here:
        if not here.place.shared:
            note(alone(here.place))
        lease, told = _granted(here, wanted, fence, note, telling)
    starting.become(wanted.command, lease, told)


def alone(place: places.Place) -> str:
    """What one should know of a ledger that is not shared."""
    if simulating.on():
        return f"cards are simulated; their ledger is yours alone ({place.path})"
    return (
        f"the ledger {place.path} is yours alone, and knows nothing of what others were granted; "
        '`sudo "$(command -v partage)" setup` makes one for all'
    )


def _granted(
    here: sessions.Session,
    wanted: Run,
    fence: fencing.Chosen,
    note: Callable[[str], None],
    telling: Callable[[], Telling],
) -> tuple[leases.Lease, dict[str, str]]:
    seen = machine.see(here.driver)
    if seen.present:
        from partage.local import watch as escapes  # for those who do not come first

        escapes.warn(here, note)
    node = machine.understood(seen, (), here.place).node
    demand = requests.demand(wanted.wishes, node.cards)
    granting.check_possible(node, demand)
    asking = granting.Asking(
        demand=demand, program=wanted.command[0], name=wanted.name, priority=wanted.priority
    )
    started_s = time.monotonic()
    lease, outcome = _asked(here, seen, asking, wanted.wait_s)

    def written(entry: entries.Entry) -> dict[str, str]:
        with databases.explained(lease.path):
            lease.write(entry)
            fenced = _fenced(here, seen, entry, fence)
            lease.write(_told(entry, fenced.level))
        return fencing.environment(entry, fenced, node)

    try:
        # Most need not wait. For them nothing is loaded that belongs to waiting, and no bell is
        # hung: the kernel takes some ten milliseconds to take one down.
        if outcome.entry.grant is not None:
            return lease, written(outcome.entry)
        from partage.local import waiting

        if wanted.wait_s == 0:
            raise waiting.too_late(outcome)
        deadline_s = None if wanted.wait_s is None else started_s + wanted.wait_s
        with _watching(deadline_s, note, telling()) as watch:
            entry = waiting.until_granted(here, lease, outcome, watch)
            return lease, waiting.until_written(lambda: written(entry), watch, time.sleep)
    except BaseException:
        granting.leave(here, lease)
        raise


def _asked(
    here: sessions.Session, seen: machine.Seen, asking: granting.Asking, wait_s: float | None
) -> tuple[leases.Lease, granting.Outcome]:
    """A place in the queue; for the ledger, too, nobody waits longer than he wants."""
    patience_s = databases.BUSY_S if wait_s is None else wait_s or _AT_ONCE_S
    try:
        return granting.ask(here, seen, asking, time.time(), min(patience_s, databases.BUSY_S))
    except databases.Busy as error:
        if patience_s >= databases.BUSY_S:
            raise
        from partage.local import waiting

        raise waiting.hindered(error) from error


@contextlib.contextmanager
def _watching(
    deadline_s: float | None, note: Callable[[str], None], telling: Telling
) -> Iterator[waiting.Watch]:
    from partage.local import waiting

    def warn(text: str) -> None:
        telling.done()  # a terminal's lines are drawn anew, below this one
        note(text)

    try:
        yield waiting.Watch(
            show=telling.show,
            live=telling.live,
            warn=warn,
            monotonic=time.monotonic,
            now=time.time,
            deadline_s=deadline_s,
        )
    finally:
        telling.done()


def _fenced(
    here: sessions.Session, seen: machine.Seen, entry: entries.Entry, fence: fencing.Chosen
) -> fencing.Fenced:
    known = (
        contexts.costs(here, seen, entry.container)
        if entry.container and fence.level is levels.Level.HOOK
        else {}
    )
    return fencing.put(here.place, entry, fence, context_bytes=known, inherited=os.environ)


def _told(entry: entries.Entry, level: levels.Level) -> entries.Entry:
    """The entry with the level in force."""
    if entry.grant is None or entry.container is None:
        return entry
    container = msgspec.structs.replace(entry.container, fence=str(level))
    grant = msgspec.structs.replace(entry.grant, containers=(container,))
    return msgspec.structs.replace(entry, grant=grant)
