"""How near cards are to each other, in the terms of :class:`partage.core.cards.Link`.

NVLink wins over PCI, and its links add up: two cards with four links between them are at four times
``Link.NVLINK``. Cards that hang on NVSwitches reach each other with as many links as the one that
has fewer. A card that does not tell has no links, and takes none from others.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pynvml

from partage.core.cards import Link
from partage.devices import nvml_calls

_LEVELS = {
    pynvml.NVML_TOPOLOGY_INTERNAL: Link.PIX,  # two on one board
    pynvml.NVML_TOPOLOGY_SINGLE: Link.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: Link.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: Link.PHB,
    pynvml.NVML_TOPOLOGY_NODE: Link.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: Link.SYS,
}


class Ends(msgspec.Struct, frozen=True, kw_only=True):
    """Where the NVLinks of a card end: how many at each address of the bus, and at switches."""

    bus: str = ""  # of the card itself
    at: Mapping[str, int] = {}
    at_switches: int = 0


def links(uuids: Iterable[str]) -> dict[str, tuple[tuple[str, int], ...]]:
    """The links of each card to the others, where any is known."""
    answers = (
        (uuid, nvml_calls.optional(pynvml.nvmlDeviceGetHandleByUUID, uuid)) for uuid in uuids
    )
    handles = {uuid: handle for uuid, handle in answers if handle is not None}
    ends = {uuid: _ends(handle) for uuid, handle in handles.items()}
    return {
        uuid: tuple(
            (other, near)
            for other in handles
            if other != uuid
            and (near := nearness(ends[uuid], ends[other], _level(handles[uuid], handles[other])))
        )
        for uuid in handles
    }


def nearness(first: Ends, second: Ends, level: int | None) -> int:
    """Of two cards, from their NVLinks and NVML's level of PCI; 0 if nothing is known."""
    direct = first.at.get(second.bus, 0) if second.bus else 0
    bundle = direct or min(first.at_switches, second.at_switches)
    return Link.NVLINK * bundle if bundle else int(_LEVELS.get(level, 0))


def _level(first: Any, second: Any) -> int | None:
    level: int | None = nvml_calls.optional(
        pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second
    )
    return level


def _ends(handle: Any) -> Ends:
    at: collections.Counter[str] = collections.Counter()
    switches = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        active = nvml_calls.optional(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if active is None:  # there are no more
            break
        if active != pynvml.NVML_FEATURE_ENABLED:
            continue
        kind = nvml_calls.optional(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        switches += kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
        far = nvml_calls.optional(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        at.update([_bus(far)] if far else [])
    own = nvml_calls.optional(pynvml.nvmlDeviceGetPciInfo, handle)
    return Ends(bus=_bus(own) if own else "", at=at, at_switches=switches)


def _bus(pci: Any) -> str:
    return nvml_calls.text(pci.busId).lower()
