"""Viewing: the ledger, the fences and the driver at one moment, as one View.

Nothing is changed, and nobody's turn is disturbed: the ledger is read beside whoever decides. One
program whose fence cannot be read, or a card that does not answer, never hides the others.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from partage.core import demands, errors, fleet, grants, rooms
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import levels, roots, tallies, usage
from partage.fence.watch import facts
from partage.local import (
    entries,
    granting,
    ledger,
    machine,
    places,
    processes,
    queueing,
    reasons,
    sessions,
    views,
    watch,
)

Source = Callable[[], views.View]

_HOOK = str(levels.Level.HOOK)  # the one fence that counts
_STARTING = "starting"  # the level of a fence that is not up yet


@contextlib.contextmanager
def opened() -> Iterator[Source]:
    """Where views come from; the driver and the ledger are opened once."""
    with sessions.looking(os.environ) as (place, driver), contextlib.ExitStack() as stack:
        watcher = watch.Watch(place, driver)
        try:
            book = stack.enter_context(ledger.opened(place))
        except errors.LedgerError as error:
            problem = views.Problem("ledger", str(error))
            yield lambda: look(place, driver, list, time.time_ns(), problem, watcher=watcher)
        else:
            yield lambda: look(place, driver, book.all, time.time_ns(), watcher=watcher)


def look(
    place: places.Place,
    driver: nvml.Nvml,
    rows: Callable[[], Sequence[entries.Entry]],
    taken_ns: int,
    *problems: views.Problem,
    watcher: watch.Watch,
) -> views.View:
    """This machine now."""
    now = granting.survey(place, driver, rows)
    found, living = now.found, now.living
    used, unread = _used(place, living)
    outside = watcher.look(living)
    measured = {each.uuid: each for each in driver.readings() if each.uuid}
    cards = tuple(_cards(now.known, found, measured))  # before the queue, which takes of them
    return views.View(
        node=found.node.name,
        taken_ns=taken_ns,
        simulated=found.simulated,
        ledger=str(place.path),
        shared=place.shared,
        cards=cards,
        tenants=tuple(
            _shown(row, outside)
            for row in _tenants(living, used, {d.uuid: d.index for d in found.devices})
        ),
        foreign=tuple(_foreign(found)),
        problems=(
            *problems,
            *(views.Problem(f"card {d.index}", d.problem) for d in found.devices if d.problem),
            *unread,
            *_escapes(living, outside),
        ),
        waiting=tuple(_queue(now)),
    )


def _escapes(
    living: Sequence[entries.Entry], outside: Sequence[facts.Finding]
) -> Iterator[views.Problem]:
    """One line for each process, whatever was found of it."""
    names = {entry.tenant: entry.name for entry in living}
    for finding in facts.gravest(outside).values():
        yield views.Problem(f"program {names[finding.tenant]}", finding.text)


def _shown(row: views.TenantView, outside: Sequence[facts.Finding]) -> views.TenantView:
    """As the driver says, where something of the program is outside its fence."""
    for finding in outside:
        if finding.tenant.rpartition(".")[2] == row.token and finding.uuid == row.uuid:
            return msgspec.structs.replace(row, **finding.marks(row.used_bytes))
    return row


def _queue(now: granting.Survey) -> Iterator[views.WaitingView]:
    """Those who wait, in their order; those among them who can start only have not heard it yet."""
    settled = queueing.settle(now.known, now.found.node.name, now.tickets)
    waits = {each.ticket.token: each for each in settled.waiting}
    by_token = {entry.token: entry for entry in now.living}
    for place, ticket in enumerate(queueing.ordered(now.tickets), start=1):
        entry = by_token[ticket.token]
        yield views.WaitingView(
            place=place,
            token=entry.token,
            name=entry.name,
            user=places.user_name(entry.uid),
            uid=entry.uid,
            pid=entry.pid,
            priority=entry.priority,
            asks=demands.described(entry.demand.containers[0].demand),
            asked_at=entry.asked_at,
            reason=reasons.told(waits.get(ticket.token)),
        )


def _cards(
    known: fleet.Fleet, found: machine.Machine, measured: Mapping[str, nvml.Reading]
) -> Iterator[views.CardView]:
    state = known.state(found.node.name)
    for room in state.rooms if state else ():
        yield _card(room, found, measured.get(room.card.uuid))


def _card(room: rooms.Room, found: machine.Machine, now: nvml.Reading | None) -> views.CardView:
    card = room.card
    used = now.used_bytes if now else None
    return views.CardView(
        index=card.index,
        uuid=card.uuid,
        model=card.model or None,
        memory_mib=card.memory_mib,
        used_mib=None if used is None else used // MIB,
        utilization_percent=now.utilization_percent if now else None,
        temperature_c=now.temperature_c if now else None,
        healthy=card.healthy,
        reason=next((d.problem for d in found.devices if d.uuid == card.uuid), ""),
        granted_mib=card.memory_mib - card.foreign_memory_mib - room.free_mib,
        granted_percent=100 - card.foreign_compute_percent - room.free_compute,
        foreign_mib=card.foreign_memory_mib,
        free_mib=room.free_mib,
        tenants=room.tenants,
    )


def _used(
    place: places.Place, living: Sequence[entries.Entry]
) -> tuple[dict[str, usage.Usage], list[views.Problem]]:
    """What fences count, by tenant; a fence that is not there yet is no problem.

    Of one that does not reach its program nothing is told, unless a child of the program is in it.
    """
    root = roots.find(place.fence)
    used: dict[str, usage.Usage] = {}
    problems: list[views.Problem] = []
    for entry in living:
        if entry.container is None or not entry.container.fence:
            continue
        try:
            now = usage.snapshot(root, entry.tenant)
            if now.processes or entry.container.fence == _HOOK:
                used[entry.tenant] = now
        except errors.PartageError as error:
            if (root.tenants / entry.tenant).exists():
                problems.append(views.Problem(f"program {entry.name}", str(error)))
    return used, problems


def _tenants(
    living: Sequence[entries.Entry],
    used: Mapping[str, usage.Usage],
    indexes: Mapping[str | None, int],
) -> Iterator[views.TenantView]:
    for entry in living:
        if entry.container is not None:
            now = used.get(entry.tenant)
            by_card = {card.uuid: card for card in now.cards} if now else {}
            pids = tuple(process.pid for process in now.processes) if now else None
            for share in entry.container.shares:
                row = _tenant(entry, entry.container, share, by_card.get(share.uuid))
                yield msgspec.structs.replace(row, index=indexes.get(share.uuid), processes=pids)


def _tenant(
    entry: entries.Entry,
    container: grants.ContainerGrant,
    share: grants.Share,
    now: usage.CardUsage | None,
) -> views.TenantView:
    timed = share.compute_percent > 0 and not share.exclusive
    mode, ceiling = tallies.in_force(now) if now else tallies.asked(container, timed=timed)
    tally = tallies.counted(now) if now else tallies.Tally()
    return views.TenantView(
        token=entry.token,
        name=entry.name,
        user=places.user_name(entry.uid),
        uid=entry.uid,
        pid=entry.pid,
        processes=None,
        command=processes.command(entry.pid),
        index=None,
        uuid=share.uuid,
        memory_mib=share.memory_mib,
        exclusive=share.exclusive,
        compute_percent=share.compute_percent,
        ceiling_percent=ceiling,
        mode=mode,
        fence=_HOOK if now else container.fence or _STARTING,
        granted_at=entry.since,
        priority=entry.priority,
        dialect=entry.grant.dialect if entry.grant else "",
        used_bytes=tally.used_bytes,
        peak_bytes=tally.peak_bytes,
        refused=tally.refused,
        busy_ns=tally.busy_ns,
        throttled_ns=tally.throttled_ns,
        launches=tally.launches,
    )


def _foreign(found: machine.Machine) -> Iterator[views.ForeignView]:
    indexes = {device.uuid: device.index for device in found.devices}
    for each in found.foreign:
        owner = processes.owner(each.pid)
        yield views.ForeignView(
            index=indexes[each.uuid],
            uuid=each.uuid,
            pid=each.pid,
            user=None if owner is None else places.user_name(owner),
            command=processes.command(each.pid),
            used_bytes=each.used_bytes,
        )
