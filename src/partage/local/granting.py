"""Granting: the one transaction in which it is decided who starts.

Whoever comes, and whoever is the first to wait when something has changed, does the same: sweep the
ledger, put everybody who lives into the core's Fleet, and let the queue be settled over it. The one
who decides grants for all: a ticket becomes a grant while its owner sleeps, and his lease, which is
locked since he came, holds it from that moment on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Sequence

import msgspec

from partage.core import cards, demands, errors, fleet, grants, refusals
from partage.devices import nvml
from partage.local import (
    databases,
    entries,
    leases,
    machine,
    places,
    processes,
    queueing,
    sessions,
    sweeping,
)

_DECIDED = "decided"  # when it was last decided
_LEAVING_S = 0.5  # for which one who leaves waits for the ledger


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, and by whom."""

    demand: demands.PodDemand
    program: str
    name: str = ""  # empty: one is made from the program's
    priority: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """Where one stands after it was decided."""

    entry: entries.Entry  # with a grant, or waiting
    waiting: queueing.Waiting | None = None
    queue: int = 0  # how many wait
    holders: tuple[entries.Entry, ...] = ()
    foreign: tuple[int, ...] = ()  # processes on the cards that are short
    others: int = 0  # how many others were granted something


class Pass(msgspec.Struct, frozen=True):
    """What a pass over the ledger came to."""

    living: tuple[entries.Entry, ...]
    settled: queueing.Settled
    foreign: tuple[machine.Present, ...] = ()


def ask(
    here: sessions.Session,
    seen: machine.Seen,
    asking: Asking,
    now_s: float,
    patience_s: float = databases.BUSY_S,
) -> tuple[leases.Lease, Outcome]:
    """Take a place in the queue, and what one is granted at once, if anything."""
    lease: leases.Lease | None = None
    try:
        with here.book.deciding(patience_s):
            swept = sweeping.sweep(here.place, here.book)
            lease = leases.create(here.place.leases)  # nobody sweeps meanwhile
            entry = _entry(here.book.next_seq(), lease.token, asking, swept.living, now_s)
            lease.write(entry)
            here.book.add(entry)
            done = _settle(here, seen, (*swept.living, entry), now_s)
    except BaseException:
        if lease is not None:
            lease.end()
        raise
    sweeping.tidy(here.place, swept.ended)
    return lease, _outcome(done, lease.token)


def again(
    here: sessions.Session, seen: machine.Seen, token: str, now_s: float, patience_s: float
) -> Outcome:
    """Decide once more, for oneself and everybody else who waits."""
    with here.book.deciding(patience_s):
        swept = sweeping.sweep(here.place, here.book)
        done = _settle(here, seen, swept.living, now_s)
    sweeping.tidy(here.place, swept.ended)
    return _outcome(done, token)


class Survey(msgspec.Struct, frozen=True):
    """All that a decision would be made from, at one moment, for those who only look."""

    living: tuple[entries.Entry, ...]
    found: machine.Machine
    known: fleet.Fleet
    tickets: list[queueing.Ticket]


def survey(
    place: places.Place, driver: nvml.Nvml, rows: Callable[[], Sequence[entries.Entry]]
) -> Survey:
    """Look at the cards, then at the ledger; nothing is changed."""
    seen = machine.see(driver)
    living = sweeping.look(place, rows()).living
    found = machine.understood(seen, living, place)
    return Survey(living, found, *world(found.node, living))


def peek(here: sessions.Session, token: str) -> Outcome:
    """Where one stands, without deciding anything."""
    now = survey(here.place, here.driver, here.book.all)
    settled = queueing.settle(now.known, now.found.node.name, now.tickets)
    return _outcome(Pass(now.living, settled, now.found.foreign), token)


def decided_s(here: sessions.Session) -> float:
    """When somebody last decided, in seconds since 1970."""
    try:
        return float(here.book.fact(_DECIDED) or 0)
    except ValueError:
        return 0.0


def leave(here: sessions.Session, lease: leases.Lease) -> None:
    """Give up one's place in the queue, or one's grant.

    The end of the lease is what counts. A ledger that cannot be written now, on a full disk say,
    or because somebody hangs who decides, has a row too many until somebody decides again.
    """
    try:
        with contextlib.suppress(errors.LedgerError), here.book.deciding(_LEAVING_S):
            here.book.remove(lease.token)
    finally:
        lease.end()


def world(
    node: cards.Node, living: Sequence[entries.Entry]
) -> tuple[fleet.Fleet, list[queueing.Ticket]]:
    """The fleet of one node with everybody on it, and those who wait."""
    known = fleet.standard()
    known.set_node(node)
    for entry in living:
        if entry.grant is not None:  # the machine may have had another name then
            known.admit(msgspec.structs.replace(entry.grant, node=node.name))
    return known, [ticket(entry) for entry in living if entry.grant is None]


def ticket(entry: entries.Entry) -> queueing.Ticket:
    """An entry that waits."""
    return queueing.Ticket(
        token=entry.token,
        name=entry.name,
        demand=entry.demand,
        priority=entry.priority,
        seq=entry.seq,
    )


def check_possible(node: cards.Node, demand: demands.PodDemand) -> None:
    """Refuse at once what can never fit."""
    known, _ = world(node, ())
    refused = known.refuse(demand)
    if refused and refused[0].never:
        raise errors.InputError(
            f"this can never fit: {refused[0].text}", instead=_smaller(refused[0])
        )


def _smaller(refusal: refusals.Refusal) -> str:
    if refusal.code in (refusals.Code.NO_SUCH_MODEL, refusals.Code.NO_SUCH_CARD):
        return "`partage ps` shows the cards"
    return "ask for less, or for fewer cards; `partage ps` shows what there is"


def _entry(
    seq: int, token: str, asking: Asking, living: Sequence[entries.Entry], now_s: float
) -> entries.Entry:
    taken = {other.name: other for other in living}
    if asking.name in taken:
        owner = places.user_name(taken[asking.name].uid)
        raise errors.InputError(
            f"there is a program {asking.name!r} already, of {owner}",
            instead="choose another --name",
        )
    made = (entries.default_name(asking.program, number) for number in itertools.count(seq))
    return entries.Entry(
        token=token,
        seq=seq,
        uid=os.geteuid(),
        name=asking.name or next(name for name in made if name not in taken),
        boot_id=processes.boot_id(),
        pid=os.getpid(),
        started_ticks=processes.own_ticks(),
        priority=asking.priority,
        asked_at=now_s,
        demand=asking.demand,
    )


def _settle(
    here: sessions.Session,
    seen: machine.Seen,
    living: Sequence[entries.Entry],
    now_s: float,
) -> Pass:
    found = machine.understood(seen, living, here.place)
    known, tickets = world(found.node, living)
    settled = queueing.settle(known, found.node.name, tickets)
    here.book.set_fact(_DECIDED, repr(now_s))
    given = {grant.pod.uid: grant for grant in settled.granted}
    after = tuple(_with(entry, given.get(entry.token), now_s) for entry in living)
    for entry in after:
        if entry.token in given:
            here.book.update(entry)
    return Pass(after, settled, found.foreign)


def _with(entry: entries.Entry, grant: grants.Grant | None, now_s: float) -> entries.Entry:
    if grant is None:
        return entry
    return msgspec.structs.replace(entry, grant=grant, granted_at=now_s)


def _outcome(done: Pass, token: str) -> Outcome:
    entry = next((each for each in done.living if each.token == token), None)
    if entry is None:
        raise errors.LedgerError(
            "the ledger has lost this request: its lease was removed", instead="start it again"
        )
    waiting = next((w for w in done.settled.waiting if w.ticket.token == token), None)
    short = _short(waiting)
    return Outcome(
        entry,
        waiting,
        len(done.settled.waiting),
        on_cards(done.living, short),
        tuple(dict.fromkeys(each.pid for each in done.foreign if each.uuid in short)),
        sum(grant.pod.uid != token for grant in done.settled.granted),
    )


def _short(waiting: queueing.Waiting | None) -> set[str]:
    """The cards that lack something."""
    if waiting is None or waiting.refusal is None:
        return set()
    return {shortage.uuid for shortage in waiting.refusal.shortages}


def on_cards(living: Sequence[entries.Entry], uuids: set[str]) -> tuple[entries.Entry, ...]:
    """Those who have something of these cards."""
    return tuple(
        entry
        for entry in living
        if entry.container and any(share.uuid in uuids for share in entry.container.shares)
    )
