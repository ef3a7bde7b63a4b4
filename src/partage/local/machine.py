"""The machine: its cards as NVML tells, and what processes that are not ours take of them.

Whose a process is, is found by descent (its parent, or the parent's parent, is a program that was
granted something), and where that says nothing by the fence, which knows each process behind it.
Everybody else on a card is foreign: a display, somebody's notebook, a container. What foreign
processes use is a fact about the card, and cannot be granted.

A foreign process whose memory the driver does not tell takes all of the card's use that nobody else
explains.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec

from partage.core import cards, errors
from partage.core.quantities import MIB
from partage.devices import listening, nvml
from partage.fence import roots, usage
from partage.local import entries, places, processes


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
    sick = listening.ailments()
    devices = tuple(
        msgspec.structs.replace(device, problem=device.problem or sick.get(device.uuid or "", ""))
        for device in driver.devices()
    )
    present = [
        Present(device.uuid, process.pid, process.used_bytes)
        for device in devices
        if device.uuid is not None and not device.problem
        for process in _processes(driver, device.uuid)
    ]
    return Seen(devices, tuple(present), driver.driver_version())


def understood(seen: Seen, living: Sequence[entries.Entry], place: places.Place) -> Machine:
    """What that means, given who was granted something."""
    foreign = _foreign(seen.present, living, place)
    by_card = {device.uuid: device for device in seen.devices if device.uuid}
    taken = {
        uuid: _taken_mib(by_card[uuid], seen.present, [f for f in foreign if f.uuid == uuid])
        for uuid in {each.uuid for each in foreign}
    }
    there = (device.card for device in seen.devices)
    node = cards.Node(
        name=NAME,
        cards=tuple(
            msgspec.structs.replace(card, foreign_memory_mib=taken.get(card.uuid, 0))
            for card in there
            if card is not None
        ),
    )
    return Machine(node, foreign, seen.devices)


def _processes(driver: nvml.Nvml, uuid: str) -> tuple[nvml.Process, ...]:
    try:
        return driver.processes(uuid)
    except errors.DeviceError:
        return ()  # a card that does not tell; its health says why


def _foreign(
    present: Iterable[Present], living: Sequence[entries.Entry], place: places.Place
) -> tuple[Present, ...]:
    """Those that nobody of ours has started, and that have not ended meanwhile."""
    ours = {entry.pid for entry in living if entry.grant is not None}
    unknown = [each for each in present if not ours.intersection(processes.ancestors(each.pid))]
    if not unknown:
        return ()
    fenced = _fenced(living, place)
    return tuple(each for each in unknown if each.pid not in fenced and _there(each.pid))


def _there(pid: int) -> bool:
    """Whether a process has not ended; one whose parent has not looked at it yet has no memory."""
    found = processes.stat(pid)
    return processes.hidden(pid) if found is None else not found.ended


def _fenced(living: Iterable[entries.Entry], place: places.Place) -> set[int]:
    """Processes that the fences of the living know."""
    root = roots.find(place.fence)
    found: set[int] = set()
    for entry in living:
        if entry.grant is not None:
            try:
                now = usage.snapshot(root, entry.tenant)
            except errors.PartageError:
                continue  # no fence, or just ended
            found.update(process.pid for process in now.processes)
    return found


def _taken_mib(device: nvml.Device, present: Sequence[Present], foreign: Sequence[Present]) -> int:
    known = sum(each.used_bytes or 0 for each in foreign)
    if all(each.used_bytes is not None for each in foreign):
        return -(-known // MIB)
    others = {each.pid for each in foreign}
    ours = sum(
        each.used_bytes or 0
        for each in present
        if each.uuid == device.uuid and each.pid not in others
    )
    return max(-(-known // MIB), (device.used_mib or 0) - ours // MIB)
