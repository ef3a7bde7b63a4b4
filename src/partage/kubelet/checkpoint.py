"""The kubelet's own record of who holds which device IDs.

The file lies beside the sockets and is replaced by renaming, so a reader sees one state or the
next, never a part. It has what the kubelet's API does not tell: the UID of a pod, and plain
init containers. It is not a promised interface, though stable for years; what is not understood is
an error, and never an empty answer.

The answers to Allocate are skipped. 2 MB, with 300 entries that hold 90,000 IDs and 100,000
registered ones, take some 50 ms of a small machine: not for an event loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from partage.kubelet import errors

NAME = "kubelet_internal_checkpoint"
LARGEST_BYTES = 64 * 1024 * 1024


class Holding(msgspec.Struct, frozen=True):
    """The device IDs that one container holds of one resource."""

    pod_uid: str
    container: str
    resource: str
    ids: frozenset[str]


class Checkpoint(msgspec.Struct, frozen=True):
    """All that containers hold, and the healthy IDs of each resource that the kubelet knows."""

    holdings: tuple[Holding, ...]
    registered: Mapping[str, frozenset[str]]


def read(path: Path) -> Checkpoint:
    """What the file says now; `Absent` if there is none, `BadCheckpoint` if it is not valid."""
    data = _decoded(path, _FULL).data
    return Checkpoint(
        holdings=_holdings(data),
        registered={name: frozenset(ids or ()) for name, ids in (data.registered or {}).items()},
    )


def holdings(path: Path) -> tuple[Holding, ...]:
    """The same without the registered IDs, which may be hundreds of thousands."""
    return _holdings(_decoded(path, _PART).data)


def _decoded(path: Path, decoder: msgspec.json.Decoder[_Decoded]) -> _Decoded:
    try:
        return decoder.decode(_content(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.BadCheckpoint(
            f"{path} is not a valid checkpoint of a kubelet ({error})",
            instead="check the version of the kubelet; Partage knows 1.20 to 1.37",
        ) from error


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError as error:
        raise errors.Absent(
            f"{path} does not exist",
            instead="wait: the kubelet writes it when the first plugin has registered",
        ) from error
    except OSError as error:
        raise errors.BadCheckpoint(
            f"{path} cannot be read ({error.strerror})",
            instead="run the agent as root, with the kubelet's folder mounted",
        ) from error
    if len(content) > LARGEST_BYTES:
        raise errors.BadCheckpoint(
            f"{path} is larger than {LARGEST_BYTES} bytes",
            instead="offer fewer device IDs: count in a larger unit",
        )
    return content


# Lists, made to sets afterwards: msgspec takes three times as long to fill a set.
_Ids = list[str] | None


class _Entry(msgspec.Struct, frozen=True):
    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, _Ids] | _Ids = msgspec.field(name="DeviceIDs")  # by NUMA node from 1.20 on

    def holding(self) -> Holding:
        lists = self.ids.values() if isinstance(self.ids, dict) else (self.ids,)
        ids = frozenset[str]().union(*(ids or () for ids in lists))
        return Holding(self.pod_uid, self.container, self.resource, ids)


class _Entries(msgspec.Struct, frozen=True):
    entries: list[_Entry | None] | None = msgspec.field(name="PodDeviceEntries")


class _Data(_Entries, frozen=True):
    registered: dict[str, _Ids] | None = msgspec.field(name="RegisteredDevices")


class _Part(msgspec.Struct, frozen=True):
    data: _Entries = msgspec.field(name="Data")


class _File(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


_Decoded = TypeVar("_Decoded", _Part, _File)
_FULL, _PART = msgspec.json.Decoder(_File), msgspec.json.Decoder(_Part)


def _holdings(data: _Entries) -> tuple[Holding, ...]:
    return tuple(entry.holding() for entry in data.entries or () if entry is not None)
