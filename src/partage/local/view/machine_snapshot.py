"""A snapshot of the machine: the ledger, the fences and the driver at one moment, as one View.

Nothing is changed, and nobody's turn is disturbed: the ledger is read beside those that decide. One
program whose fence cannot be read, or a card that does not answer, never hides the others.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import msgspec

from partage.core import demands, errors, grants
from partage.core.fleet import Fleet
from partage.core.placement import rooms
from partage.core.problems import Problem
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import processes, usage, usage_rows
from partage.fence.levels import catalog
from partage.fence.store import roots
from partage.fence.watch import escapes
from partage.local.ledger import ledger, session
from partage.local.machine import machine
from partage.local.queue import decision, queue_order, wait_reasons
from partage.local.state import entries, location
from partage.local.view import job_rows, surroundings, views, watch

Source = Callable[[], views.View]

_HOOK = str(catalog.Level.HOOK)  # the one fence that counts
_STARTING = "starting"  # the level of a fence that is not up yet


@contextlib.contextmanager
def opened(beside: surroundings.Surroundings = surroundings.ALONE) -> Iterator[Source]:
    """Where views come from; the driver and the ledger are opened once."""
    with session.looking(os.environ) as (state, driver), contextlib.ExitStack() as stack:
        watcher = watch.Watch(state, driver)
        managed, problems = _managed(beside, driver.devices())
        rows: Callable[[], Sequence[entries.Entry]] = list
        try:
            rows = stack.enter_context(ledger.opened(state)).all
        except errors.LedgerError as error:
            problems = (Problem("ledger", str(error)), *problems)

        def take() -> views.View:
            now = decision.survey(state, driver, rows, beside.tenants)
            return look(now, state, driver, *problems, watcher=watcher, managed=managed)

        yield take


def look(
    now: decision.Survey,
    state: location.StateFolder,
    driver: nvml.Nvml,
    *problems: Problem,
    watcher: watch.Watch,
    managed: Mapping[str, str],
) -> views.View:
    """This machine as it was surveyed; ``managed`` says by card who else gives it away."""
    taken_ns = time.time_ns()
    this_machine, living = now.machine, now.living
    used, unread = _used(state, living)
    outside = watcher.look(living, now.others)
    measured = {reading.uuid: reading for reading in driver.readings() if reading.uuid}
    cards = tuple(
        msgspec.structs.replace(card, managed_by=managed.get(card.uuid, ""))
        for card in _cards(now.fleet, this_machine, measured)
    )  # before the queue, which takes of them
    indexes = {device.uuid: device.index for device in this_machine.devices}
    jobs = now.others.unfenced({process.pid for process in this_machine.foreign})
    unfenced = job_rows.unfenced_rows(jobs, this_machine.foreign, indexes, processes.since)
    return views.View(
        node=this_machine.node.name,
        taken_ns=taken_ns,
        simulated=this_machine.simulated,
        ledger=str(state.path),
        shared=state.shared,
        cards=cards,
        tenants=tuple(
            _shown(row, outside)
            for row in (*_tenants(living, used, indexes), *job_rows.rows(now, indexes), *unfenced)
        ),
        foreign=tuple(_foreign(this_machine, indexes, jobs)),
        problems=(
            *problems,
            *(Problem(f"card {d.index}", d.problem) for d in this_machine.devices if d.problem),
            *unread,
            *_escapes(watch.labels(living, now.others), outside),
        ),
        waiting=tuple(_queue(now)),
    )


def _managed(
    beside: surroundings.Surroundings, devices: Sequence[nvml.Device]
) -> tuple[dict[str, str], tuple[Problem, ...]]:
    """The cards that others give away, and by whom; that this is not clear is a problem."""
    try:
        access = beside.gate(devices)
    except errors.PartageError as error:
        return {}, (Problem(beside.manager, str(error)),)
    uuids = (device.uuid for device in devices if device.uuid)
    return {uuid: beside.manager for uuid in uuids if not access.allows(uuid)}, ()


def _escapes(labels: Mapping[str, str], outside: Sequence[escapes.Finding]) -> Iterator[Problem]:
    """One line for each process, whatever was found of it."""
    for finding in escapes.gravest(outside).values():
        yield Problem(labels[finding.tenant], finding.text)


def _shown(row: views.TenantView, outside: Sequence[escapes.Finding]) -> views.TenantView:
    """As the driver says, where something of the program is outside its fence."""
    for finding in outside:
        if finding.tenant.rpartition(".")[2] == row.token and finding.uuid == row.uuid:
            return msgspec.structs.replace(row, **finding.marks(row.used_bytes))
    return row


def _queue(now: decision.Survey) -> Iterator[views.WaitingView]:
    """Those who wait, in their order; those among them who can start only have not heard it yet."""
    settled = queue_order.settle(now.fleet, now.machine.node.name, now.tickets)
    waits = {waiting.ticket.token: waiting for waiting in settled.waiting}
    by_token = {entry.token: entry for entry in now.living}
    for place, ticket in enumerate(queue_order.ordered(now.tickets), start=1):
        entry = by_token[ticket.token]
        yield views.WaitingView(
            place=place,
            token=entry.token,
            name=entry.name,
            user=location.user_name(entry.uid),
            uid=entry.uid,
            pid=entry.pid,
            priority=entry.priority,
            asks=demands.described(entry.demand.containers[0].demand),
            asked_at=entry.asked_at,
            reason=wait_reasons.reason(waits.get(ticket.token)),
        )


def _cards(
    fleet: Fleet, this_machine: machine.Machine, measured: Mapping[str, nvml.Reading]
) -> Iterator[views.CardView]:
    node_state = fleet.state(this_machine.node.name)
    for room in node_state.rooms if node_state else ():
        yield _card(room, this_machine, measured.get(room.card.uuid))


def _card(
    room: rooms.Room, this_machine: machine.Machine, now: nvml.Reading | None
) -> views.CardView:
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
        reason=next((d.problem for d in this_machine.devices if d.uuid == card.uuid), ""),
        granted_mib=card.memory_mib - card.foreign_memory_mib - room.free_mib,
        granted_percent=100 - card.foreign_compute_percent - room.free_compute,
        foreign_mib=card.foreign_memory_mib,
        free_mib=room.free_mib,
        tenants=room.tenants,
    )


def _used(
    state: location.StateFolder, living: Sequence[entries.Entry]
) -> tuple[dict[str, usage.Usage], list[Problem]]:
    """What fences count, by tenant; a fence that is not there yet is not a problem.

    Of one that does not reach its program nothing is told, unless a child of the program is in it.
    """
    root = roots.find(state.fence)
    used: dict[str, usage.Usage] = {}
    problems: list[Problem] = []
    for entry in living:
        if entry.container is None or not entry.container.fence:
            continue
        try:
            now = usage.snapshot(root, entry.tenant)
            if now.processes or entry.container.fence == _HOOK:
                used[entry.tenant] = now
        except errors.PartageError as error:
            if (root.tenants / entry.tenant).exists():
                problems.append(Problem(f"program {entry.name}", str(error)))
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
    mode, ceiling = (
        usage_rows.mode_in_force(now) if now else usage_rows.mode_asked(container, timed=timed)
    )
    counts = usage_rows.counted(now) if now else usage_rows.Counts()
    return views.TenantView(
        token=entry.token,
        name=entry.name,
        user=location.user_name(entry.uid),
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
        used_bytes=counts.used_bytes,
        peak_bytes=counts.peak_bytes,
        refused=counts.refused,
        busy_ns=counts.busy_ns,
        throttled_ns=counts.throttled_ns,
        launches=counts.launches,
    )


def _foreign(
    this_machine: machine.Machine, indexes: Mapping[str | None, int], jobs: Collection[int]
) -> Iterator[views.ForeignView]:
    """All but those of jobs."""
    for process in this_machine.foreign:
        if process.pid in jobs:
            continue
        owner = processes.owner(process.pid)
        yield views.ForeignView(
            index=indexes[process.uuid],
            uuid=process.uuid,
            pid=process.pid,
            user=None if owner is None else location.user_name(owner),
            command=processes.command(process.pid),
            used_bytes=process.used_bytes,
        )
