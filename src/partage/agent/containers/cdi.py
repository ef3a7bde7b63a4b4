"""CDI: what is done to a container, as files that the container runtime reads.

The kubelet is told the name of a CDI device in Allocate, when nobody knows yet for whom the device
IDs are; the specification of that name is written in PreStartContainer, when somebody does. The
name is made of the resource and the IDs, so that each set of IDs has its own. A runtime that is
asked for a name without a file refuses to make the container: that is how a missed PreStart fails.

Beside the edits a specification carries whom it is for. It is the agent's only memory: what was
started, by which fence it is held. A file is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec

from partage.core import errors

KIND = "partage.dev/share"
_VERSION = "0.6.0"  # the first with annotations; containerd 1.7 knows it
_VERSION_WITH_GIDS = "0.7.0"
_PREFIX = "partage-"
_SUFFIX = ".json"
_LARGEST = 1 << 20  # bytes of a file that was ours
_OURS = "partage.dev/"
_VERSION_KEY = f"{_OURS}version"
_OF_ALL_VERSIONS = ("uid", "container", "tenant")
_RECORD_VERSION = "1"  # of what is written beside the edits; without one it is this, too

log = logging.getLogger(__name__)


class DeviceNode(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A device file in the container."""

    path: str
    host_path: str = ""
    type: str = ""
    major: int = 0
    minor: int = 0
    file_mode: int | None = None
    permissions: str = ""
    uid: int | None = None
    gid: int | None = None


class Mount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file or folder of the host in the container."""

    host_path: str
    container_path: str
    type: str = ""
    options: tuple[str, ...] = ()


class Edits(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What is done to a container."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[dict[str, Any], ...] = ()
    additional_gids: tuple[int, ...] = ()

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            self.env + other.env,
            self.device_nodes + other.device_nodes,
            self.mounts + other.mounts,
            self.hooks + other.hooks,
            self.additional_gids + other.additional_gids,
        )


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a specification was written.

    A field may be added with a default; any other change is a new version. All versions have the
    uid, the container and the tenant: what another version wrote is counted by these.
    """

    uid: str
    container: str
    resource: str = ""
    fence: str = (
        ""  # the level in force; "none": a card of its own needs none; "": it is being put up
    )
    tenant: str = ""  # of the fence "hook"
    elastic_gpu: str = ""  # whose shares these are, if the container has them by a claim
    device: str = ""  # the specification's device; filled in when it is read
    grant: str = ""  # the pod's, as it was enforced then, in JSON; its record may be edited later


class _Device(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    container_edits: Edits = Edits()
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    cdi_version: str
    kind: str
    devices: tuple[_Device, ...]


def device(resource: str, ids: Collection[str]) -> str:
    """The device of a set of IDs; short, since it becomes part of a file's name."""
    text = "\n".join([resource, *sorted(ids)])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def qualified(name: str) -> str:
    """As the kubelet and the runtime name a device."""
    return f"{KIND}={name}"


def is_ours(path: Path) -> bool:
    """Whether this is the name of a specification that is written here."""
    return path.name.startswith(_PREFIX) and path.suffix == _SUFFIX


def device_of(path: Path) -> str:
    """The device of a specification with this name."""
    return path.name.removeprefix(_PREFIX).removesuffix(_SUFFIX)


def write(folder: Path, started: Started, edits: Edits) -> None:
    """Put a specification in the place of what was there; the runtime sees the one or the other."""
    record = msgspec.to_builtins(started)
    annotations = {f"{_OURS}{key}": text for key, text in record.items() if text}
    annotations[_VERSION_KEY] = _RECORD_VERSION
    device = _Device(name=started.device, container_edits=edits, annotations=annotations)
    version = _VERSION_WITH_GIDS if edits.additional_gids else _VERSION
    spec = _Spec(cdi_version=version, kind=KIND, devices=(device,))
    scratch = folder / f".{_PREFIX}{started.device}.{os.getpid()}"  # no name that a runtime reads
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        # Not synced to disk: when a machine has failed there is nothing that this belongs to.
        scratch.write_bytes(msgspec.json.encode(spec))
        scratch.rename(_path(folder, started.device))
    except OSError as error:
        raise errors.FenceError(
            f"the container's specification cannot be written to {folder} ({error.strerror})",
            instead="check that the disk is not full, and that the agent may write there",
        ) from error


def remove(folder: Path, name: str) -> None:
    """Take a specification away, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        _path(folder, name).unlink()


def everything(folder: Path) -> Iterator[Started]:
    """All that was started; a file that makes no sense is left out."""
    for path in sorted(folder.glob(f"{_PREFIX}*{_SUFFIX}")):
        with contextlib.suppress(OSError, msgspec.MsgspecError, ValueError, RecursionError):
            yield _read(path, device_of(path))


def _read(path: Path, name: str) -> Started:
    with path.open("rb") as file:
        spec = msgspec.json.decode(file.read(_LARGEST), type=_Spec)
    if len(spec.devices) != 1 or spec.devices[0].name != name:
        raise ValueError("its device has another name")
    written = spec.devices[0].annotations
    record = {key.removeprefix(_OURS): text for key, text in written.items()}
    version = written.get(_VERSION_KEY, _RECORD_VERSION)
    if version != _RECORD_VERSION:
        log.warning(
            "%s: its version is %r, but only version %s is supported: pod %s counts with all that "
            "it may have; upgrade Partage",
            *(path, version[:20], _RECORD_VERSION, record.get("uid", "")[:63]),
        )
        record = {key: text for key, text in record.items() if key in _OF_ALL_VERSIONS}
    return msgspec.convert(record | {"device": name}, Started)


def _path(folder: Path, name: str) -> Path:
    return folder / f"{_PREFIX}{name}{_SUFFIX}"
