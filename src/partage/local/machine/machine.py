"""The machine: its cards as NVML tells, and what processes that are not ours take of them.

Whose a process is, is found by descent (its parent, or the parent's parent, is a program that was
granted something), and where that says nothing by the fence, which knows each process behind it.
Everybody else on a card is foreign: a display, somebody's notebook, a container. What foreign
processes use is a fact about the card, and cannot be granted.

A foreign process whose memory the driver does not tell takes all of the card's use that nobody else
explains. And what a program uses above its share is counted as what foreigners use.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from partage.core import cards, errors, grants
from partage.core.quantities import MIB
from partage.devices import foreign_memory, nvml, nvml_events
from partage.fence import processes, usage
from partage.fence.store import roots
from partage.local.state import entries, location


class Present(msgspec.Struct, frozen=True):
    """A process on a card."""

    uuid: str
    pid: int
    used_bytes: int | None


class Seen(msgspec.Struct, frozen=True):
    """All that the driver tells at one moment."""

    devices: tuple[nvml.Device, ...]
    present: tuple[Present, ...]
    version: str  # of the driver


class Machine(msgspec.Struct, frozen=True):
    """The node that decisions are made from, and the foreigners on it."""

    node: cards.Node
    foreign: tuple[Present, ...]
    devices: tuple[nvml.Device, ...]

    @property
    def simulated(self) -> bool:
        """Whether its cards are; those of the simulated driver are called so."""
        return any(card.model.startswith(SIMULATED) for card in self.node.cards)


NAME = os.uname().nodename or "localhost"
SIMULATED = "Simulated"  # how the models of simulated cards begin


def see(driver: nvml.Nvml) -> Seen:
    """Ask the driver; before the ledger is read, so that nobody new is taken for foreign."""
    unhealthy = nvml_events.problems()
    devices = tuple(
        msgspec.structs.replace(
            device, problem=device.problem or unhealthy.get(device.uuid or "", "")
        )
        for device in driver.devices()
    )
    present = [
        Present(device.uuid, process.pid, process.used_bytes)
        for device in devices
        if device.uuid is not None and not device.problem
        for process in _processes(driver, device.uuid)
    ]
    return Seen(devices, tuple(present), driver.driver_version())


def understood(
    seen: Seen,
    living: Sequence[entries.Entry],
    state: location.StateFolder,
    *,
    claimed: Collection[int] = (),
) -> Machine:
    """What that means, given the entries that have grants.

    ``claimed`` are processes of tenants that the ledger does not have, and are not foreign.
    """
    ours = owners({process.pid for process in seen.present}, living, state)
    foreign = tuple(
        process
        for process in seen.present
        if process.pid not in ours and process.pid not in claimed and _exists(process.pid)
    )
    by_card = {device.uuid: device for device in seen.devices if device.uuid}
    taken = {
        uuid: _taken_mib(by_card[uuid], seen.present, foreign)
        for uuid in {process.uuid for process in foreign}
    }
    for uuid, over_mib in _over(seen.present, ours, living):
        taken[uuid] = taken.get(uuid, 0) + over_mib
    present_cards = (device.card for device in seen.devices)
    node = cards.Node(
        name=NAME,
        cards=tuple(
            msgspec.structs.replace(card, foreign_memory_mib=taken.get(card.uuid, 0))
            for card in present_cards
            if card is not None
        ),
    )
    return Machine(node, foreign, seen.devices)


def used_mib(
    seen: Seen, living: Sequence[entries.Entry], state: location.StateFolder, token: str
) -> dict[str, int]:
    """What the driver says that a program uses of each card, fenced or not."""
    ours = owners({process.pid for process in seen.present}, living, state)
    used = _used_bytes(seen.present, ours)
    return {uuid: -(-size // MIB) for (whose, uuid), size in used.items() if whose == token}


def owners(
    pids: Collection[int], living: Sequence[entries.Entry], state: location.StateFolder
) -> dict[int, str]:
    """Processes of those who were granted something, with their tokens."""
    ours = descended(pids, living)
    return _fenced(living, state) | ours if set(pids) - ours.keys() else ours


def descended(pids: Collection[int], living: Sequence[entries.Entry]) -> dict[int, str]:
    """The same, by descent alone: only the kernel is believed."""
    granted = [entry for entry in living if entry.grant is not None]
    programs: dict[tuple[int, int | None], str] = {
        (entry.pid, entry.started_ticks): entry.token for entry in granted
    }
    programs |= {(entry.pid, None): entry.token for entry in granted}  # what is hidden may be it
    ours: dict[int, str] = {}
    for pid in pids:
        tokens = (programs[ancestor] for ancestor in processes.lineage(pid) if ancestor in programs)
        token = next(tokens, "")
        if token:
            ours[pid] = token
    return ours


def _processes(driver: nvml.Nvml, uuid: str) -> tuple[nvml.Process, ...]:
    try:
        return driver.processes(uuid)
    except errors.DeviceError:
        return ()  # a card that does not tell; its health says why


def _over(
    present: Iterable[Present], ours: Mapping[int, str], living: Sequence[entries.Entry]
) -> Iterator[tuple[str, int]]:
    """What programs use of a card above their share, where no fence holds all their processes.

    A process may have left the fence (``sudo`` takes it away), and a share of time alone has none
    for memory. Nobody else can be given what they use.
    """
    shares = {
        (entry.token, uuid): taking.memory_mib
        for entry in living
        if entry.grant is not None
        for uuid, taking in grants.takings(entry.grant).items()
    }
    for (token, uuid), used_bytes in _used_bytes(present, ours).items():
        yield uuid, max(0, -(-used_bytes // MIB) - shares.get((token, uuid), 0))


def _used_bytes(present: Iterable[Present], ours: Mapping[int, str]) -> dict[tuple[str, str], int]:
    """By the token of the program, and the card."""
    used: dict[tuple[str, str], int] = {}
    for process in present:
        if process.pid in ours:
            key = ours[process.pid], process.uuid
            used[key] = used.get(key, 0) + (process.used_bytes or 0)
    return used


def _exists(pid: int) -> bool:
    """Whether a process has not ended; one whose parent has not looked at it yet has no memory."""
    kernel_facts = processes.stat(pid)
    return processes.hidden(pid) if kernel_facts is None else not kernel_facts.ended


def _fenced(living: Iterable[entries.Entry], state: location.StateFolder) -> dict[int, str]:
    """Processes that their fences know, with their tokens."""
    root = roots.find(state.fence)
    owners_by_pid: dict[int, str] = {}
    for entry in (holder for holder in living if holder.grant is not None):
        try:
            now = usage.snapshot(root, entry.tenant)
        except errors.PartageError:
            continue  # no fence, or just ended
        owners_by_pid |= {process.pid: entry.token for process in now.processes}
    return owners_by_pid


def _taken_mib(device: nvml.Device, present: Iterable[Present], foreign: Iterable[Present]) -> int:
    on_card = (
        nvml.Process(process.pid, process.used_bytes)
        for process in present
        if process.uuid == device.uuid
    )
    pids = {process.pid for process in foreign}
    return foreign_memory.held_mib(on_card, pids, (device.used_mib or 0) * MIB)
