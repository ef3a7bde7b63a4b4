"""The decision who starts: one transaction of the ledger.

A newcomer, and the first of those that wait when something has changed, do the same: sweep the
ledger, put all living entries into the core's Fleet, and settle the queue over it. The one that
decides grants for all: a ticket becomes a grant while its owner sleeps, and the owner's lease,
which has been locked since the beginning, holds it from that moment on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping, Sequence

import msgspec

from partage.core import cards, demands, errors, fleet, grants
from partage.devices import nvml
from partage.fence import processes
from partage.local.ledger import database, liveness, session
from partage.local.machine import machine, other_tenants
from partage.local.queue import queue_order, refusal_texts
from partage.local.requests import card_access
from partage.local.state import entries, leases, location

_DECIDED = "decided"  # when it was last decided
_Present = machine.Present
_LEAVING_S = 0.5  # how long a process that leaves waits for the ledger


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for, and by whom."""

    demand: demands.PodDemand
    program: str
    name: str = ""  # empty: one is made from the program's
    priority: int = 0


class Outcome(msgspec.Struct, frozen=True):
    """Where a request stands after a decision."""

    entry: entries.Entry  # with a grant, or waiting
    waiting: queue_order.Waiting | None = None
    queue: int = 0  # how many wait
    holders: tuple[entries.Entry, ...] = ()
    foreign: tuple[int, ...] = ()  # processes on the cards that are short
    others: int = 0  # how many others were granted something


class Pass(msgspec.Struct, frozen=True):
    """What a pass over the ledger came to."""

    living: tuple[entries.Entry, ...]
    settled: queue_order.Settled
    foreign: tuple[machine.Present, ...] = ()


def ask(
    opened: session.Session,
    seen: machine.Seen,
    asking: Asking,
    clock: Callable[[], float],
    patience_s: float = database.BUSY_S,
) -> tuple[leases.Lease, Outcome]:
    """Take a place in the queue, and what is granted at once, if anything.

    The clock is read after the sweep: the wait for the ledger may have been long, and a share
    would seem to be granted before the program that had it ended.
    """
    lease: leases.Lease | None = None
    try:
        with opened.book.deciding(patience_s):
            swept = liveness.sweep(opened.state, opened.book)
            now_s = clock()
            lease = leases.create(opened.state.leases)  # nobody sweeps meanwhile
            entry = _entry(opened.book.next_seq(), lease.token, asking, swept.living, now_s)
            lease.write(entry)
            opened.book.add(entry)
            done = _settle(opened, seen, (*swept.living, entry), now_s)
    except BaseException:
        if lease is not None:
            lease.end()
        raise
    liveness.tidy(opened.state, swept.ended)
    return lease, _outcome(done, lease.token)


def again(
    opened: session.Session,
    seen: machine.Seen,
    token: str,
    clock: Callable[[], float],
    patience_s: float,
) -> Outcome:
    """Decide once more, for this request and all others that wait."""
    with opened.book.deciding(patience_s):
        swept = liveness.sweep(opened.state, opened.book)
        done = _settle(opened, seen, swept.living, clock())
    liveness.tidy(opened.state, swept.ended)
    return _outcome(done, token)


class Survey(msgspec.Struct, frozen=True):
    """All that a decision would be made from, at one moment, for those who only look."""

    living: tuple[entries.Entry, ...]
    machine: machine.Machine
    fleet: fleet.Fleet
    tickets: list[queue_order.Ticket]
    others: other_tenants.OtherTenants = other_tenants.OtherTenants()
    others_present: Mapping[str, tuple[_Present, ...]] = {}  # by the names of tenants


def survey(
    state: location.StateFolder,
    driver: nvml.Nvml,
    rows: Callable[[], Sequence[entries.Entry]],
    elsewhere: other_tenants.Source = other_tenants.none,
) -> Survey:
    """Look at the cards, then at the ledger; nothing is changed."""
    seen = machine.see(driver)
    living, others = liveness.look(state, rows()).living, elsewhere()
    owners = others.owners({process.pid for process in seen.present})
    this_machine = machine.understood(seen, living, state, claimed=owners)
    present = tuple(process for process in seen.present if process.pid in owners)
    fleet_of_one = fleet_with(this_machine.node, living)
    for grant in other_tenants.granted(others, this_machine.node):
        fleet_of_one.admit(grant)
    return Survey(
        living, this_machine, fleet_of_one, tickets(living), others, _by_tenant(present, owners)
    )


def peek(opened: session.Session, token: str) -> Outcome:
    """Where a request stands, without deciding anything."""
    now = survey(opened.state, opened.driver, opened.book.all)
    settled = queue_order.settle(now.fleet, now.machine.node.name, now.tickets)
    return _outcome(Pass(now.living, settled, now.machine.foreign), token)


def decided_s(opened: session.Session) -> float:
    """When somebody last decided, in seconds since 1970."""
    try:
        return float(opened.book.fact(_DECIDED) or 0)
    except ValueError:
        return 0.0


def leave(opened: session.Session, lease: leases.Lease) -> None:
    """Give up a place in the queue, or a grant.

    The end of the lease is what counts. If the ledger cannot be written now, because the disk is
    full or a process that decides hangs, it has a row too many until another decides.
    """
    try:
        with contextlib.suppress(errors.LedgerError), opened.book.deciding(_LEAVING_S):
            opened.book.remove(lease.token)
    finally:
        lease.end()


def fleet_with(node: cards.Node, living: Sequence[entries.Entry]) -> fleet.Fleet:
    """The fleet of one node, with all grants on it."""
    fleet_of_one = fleet.standard()
    fleet_of_one.set_node(node)
    for entry in living:
        if entry.grant is not None:  # the machine may have had another name then
            fleet_of_one.admit(msgspec.structs.replace(entry.grant, node=node.name))
    return fleet_of_one


def tickets(living: Sequence[entries.Entry]) -> list[queue_order.Ticket]:
    """Those who wait."""
    return [ticket(entry) for entry in living if entry.grant is None]


def ticket(entry: entries.Entry) -> queue_order.Ticket:
    """An entry that waits."""
    return queue_order.Ticket(
        token=entry.token,
        name=entry.name,
        demand=entry.demand,
        priority=entry.priority,
        seq=entry.seq,
        stopped=processes.stopped(entry.pid),
    )


def check_possible(
    node: cards.Node,
    demand: demands.PodDemand,
    access: card_access.Access = card_access.EVERY,
) -> None:
    """Refuse at once what can never fit on the cards that may be had."""
    refused = fleet_with(node, ()).refuse(demand)
    if refused and refused[0].never:
        refusal = refusal_texts.on_this_machine(refused[0], demand, node)
        note, remedy = access.note(node.cards), refusal_texts.remedy(refusal)
        raise errors.InputError(
            f"this can never fit: {refusal.text}" + (f"; {note}" if note else ""),
            instead=f"{remedy}; {access.instead}" if note else remedy,
        )


def _entry(
    seq: int, token: str, asking: Asking, living: Sequence[entries.Entry], now_s: float
) -> entries.Entry:
    taken = {other.name: other for other in living}
    if asking.name in taken:
        owner = location.user_name(taken[asking.name].uid)
        raise errors.InputError(
            f"a program named {asking.name!r} exists already; it belongs to {owner}",
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
    opened: session.Session,
    seen: machine.Seen,
    living: Sequence[entries.Entry],
    now_s: float,
) -> Pass:
    this_machine = machine.understood(seen, living, opened.state)
    node = this_machine.node
    settled = queue_order.settle(fleet_with(node, living), node.name, tickets(living))
    opened.book.set_fact(_DECIDED, repr(now_s))
    given = {grant.pod.uid: grant for grant in settled.granted}
    after = tuple(_with(entry, given.get(entry.token), now_s) for entry in living)
    for entry in after:
        if entry.token in given:
            opened.book.update(entry)
    return Pass(after, settled, this_machine.foreign)


def _with(entry: entries.Entry, grant: grants.Grant | None, now_s: float) -> entries.Entry:
    if grant is None:
        return entry
    return msgspec.structs.replace(entry, grant=grant, granted_at=now_s)


def _outcome(done: Pass, token: str) -> Outcome:
    entry = next((entry for entry in done.living if entry.token == token), None)
    if entry is None:
        raise errors.LedgerError(
            "the ledger no longer has this request: its lease was removed", instead="start it again"
        )
    waiting = next((w for w in done.settled.waiting if w.ticket.token == token), None)
    short = _short(waiting)
    return Outcome(
        entry,
        waiting,
        len(done.settled.waiting),
        on_cards(done.living, short),
        tuple(dict.fromkeys(process.pid for process in done.foreign if process.uuid in short)),
        sum(grant.pod.uid != token for grant in done.settled.granted),
    )


def _by_tenant(
    present: Sequence[machine.Present], owners: Mapping[int, str]
) -> dict[str, tuple[machine.Present, ...]]:
    processes_by_tenant: dict[str, tuple[machine.Present, ...]] = {}
    for process in present:
        name = owners[process.pid]
        processes_by_tenant[name] = (*processes_by_tenant.get(name, ()), process)
    return processes_by_tenant


def _short(waiting: queue_order.Waiting | None) -> set[str]:
    """The cards that lack something."""
    if waiting is None or waiting.refusal is None:
        return set()
    return {shortage.uuid for shortage in waiting.refusal.shortages}


def on_cards(living: Sequence[entries.Entry], uuids: set[str]) -> tuple[entries.Entry, ...]:
    """Those who have a share of these cards."""
    return tuple(
        entry
        for entry in living
        if entry.container and any(share.uuid in uuids for share in entry.container.shares)
    )
