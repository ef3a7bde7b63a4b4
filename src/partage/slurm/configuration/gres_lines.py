"""Lines for gres.conf and slurm.conf that describe the cards of a machine.

Each card has its own line, by its device file, so that cards of different sizes get counts of their
own. Slurm knows a card by its type: one model with different sizes is several types, as Slurm tells
how many shards a node has by type only. The types are in the same order in both files, because
Slurm numbers the cards of a node by that of slurm.conf.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePath

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.slurm.configuration import gres

DEVICES = PurePath("/dev")
MPS_PER_CARD = 100  # percent
_LONGEST_TYPE = 40
_MAKER = re.compile(r"^nvidia[\s_-]+", re.IGNORECASE)


class Card(msgspec.Struct, frozen=True):
    """A card as Slurm is to know it."""

    index: int
    uuid: str
    type: str
    file: str
    memory_mib: int
    count: int  # of shards, or of percent


class LeftOut(msgspec.Struct, frozen=True):
    """A card that Slurm cannot be told about."""

    index: int
    reason: str


class Lines(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, and about which cards."""

    node: str
    sharing: str  # shard or mps
    gres_conf: tuple[str, ...]
    slurm_conf: tuple[str, ...]
    cards: tuple[Card, ...]
    left_out: tuple[LeftOut, ...]


def count(memory_mib: int, shards_per_gib: int) -> int:
    """How many shards a card has: only whole ones."""
    return memory_mib * shards_per_gib // 1024


def lines(
    devices: Sequence[nvml.Device],
    *,
    node: str,
    sharing: str = gres.SHARD,
    shards_per_gib: int = 1,
    folder: PurePath = DEVICES,
) -> Lines:
    """The lines of a node; raises a DeviceError if it has no card that Slurm could use."""
    reasons = {device.index: _reason(device, shards_per_gib) for device in devices}
    usable = [device for device in devices if not reasons[device.index]]
    if not usable:
        why = "; ".join(f"card {index}: {reason}" for index, reason in reasons.items())
        raise errors.DeviceError(
            "no-card",
            f"this machine has no card that Slurm could use ({why or 'there is none'})",
            instead="see `partage doctor`",
        )
    cards = _cards(usable, sharing, shards_per_gib, folder)
    return Lines(
        node=node,
        sharing=sharing,
        gres_conf=(
            "AutoDetect=off",
            *(f"NodeName={node} Name=gpu Type={card.type} File={card.file}" for card in cards),
            *(_sharing_line(node, sharing, card) for card in cards),
        ),
        slurm_conf=(
            f"GresTypes=gpu,{sharing}",
            f"NodeName={node} Gres={','.join(map(str, _sums(cards, sharing)))}",
        ),
        cards=tuple(cards),
        left_out=tuple(LeftOut(index, reason) for index, reason in reasons.items() if reason),
    )


def type_name(model: str) -> str:
    """A model as Slurm can write it between colons and commas, and never takes for a number.

    As its AutoDetect does it, without the maker: that one then finds the same types.
    """
    plain = re.sub(r"[^a-z0-9.-]+", "_", _MAKER.sub("", model.strip()).lower())
    plain = plain[:_LONGEST_TYPE].strip("_.-")
    return plain if plain[:1].isalpha() else f"gpu_{plain}".rstrip("_")


def _reason(device: nvml.Device, shards_per_gib: int) -> str:
    """Why a card is left out; empty if it is not."""
    if device.problem or device.uuid is None:
        return device.problem or "the driver does not tell its uuid"
    if device.minor is None:
        return "the driver does not tell its device file"
    if device.mig:
        return "it is cut into MIG instances"
    if not count(device.memory_mib or 0, shards_per_gib):
        return "it has less memory than one shard"
    return ""


def _cards(
    devices: Sequence[nvml.Device], sharing: str, shards_per_gib: int, folder: PurePath
) -> list[Card]:
    """In the order of their device files."""
    sizes: dict[str, set[int]] = {}
    for device in devices:
        sizes.setdefault(type_name(device.model or ""), set()).add(device.memory_mib or 0)
    in_order = sorted(devices, key=lambda device: device.minor or 0)
    return [_card(device, sizes, sharing, shards_per_gib, folder) for device in in_order]


def _card(
    device: nvml.Device,
    sizes: dict[str, set[int]],
    sharing: str,
    shards_per_gib: int,
    folder: PurePath,
) -> Card:
    memory_mib, plain = device.memory_mib or 0, type_name(device.model or "")
    several = len(sizes[plain]) > 1
    return Card(
        index=device.index,
        uuid=device.uuid or "",
        type=f"{plain}_{memory_mib}m" if several else plain,
        file=str(folder / f"nvidia{device.minor}"),
        memory_mib=memory_mib,
        count=MPS_PER_CARD if sharing == gres.MPS else count(memory_mib, shards_per_gib),
    )


def _sharing_line(node: str, sharing: str, card: Card) -> str:
    flags = f" Flags={gres.SHARED_BY_ALL}" if sharing == gres.MPS else ""
    return f"NodeName={node} Name={sharing} Count={card.count} File={card.file}{flags}"


def _sums(cards: Sequence[Card], sharing: str) -> list[gres.Amount]:
    types = dict.fromkeys(card.type for card in cards)
    return [
        *(gres.Amount(gres.GPU, kind, sum(card.type == kind for card in cards)) for kind in types),
        gres.Amount(sharing, "", sum(card.count for card in cards)),
    ]
