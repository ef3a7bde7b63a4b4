"""Fencing: the fence around one container, and what has to be in the container for it.

The fence ``hook`` is files: the library, the loader's list that names it, what stands in the
driver's place (:mod:`partage.agent.driver_place`), the tenant's limits, which are read-only, its
region, and its seats at its cards. All of them are bind mounts, made by
the container runtime from the specification, so that what the container's image or its author put
in those places lies below. The folder around them is one as well: root in a container can rename
folders of its own, with all that is mounted in them, but not what is itself mounted. Nothing
depends on the environment, which the tenant may change.

``driver`` and ``mps`` are not put around containers yet. They need the container's own cgroup, or
a daemon beside it, and a level that nobody set is not a level.
"""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from partage.agent import cdi, driver_place
from partage.core import errors, grants
from partage.fence import (
    advisory,
    hook,
    layout,
    levels,
    library,
    limits,
    originals,
    roots,
    seats,
    substitutes,
    tenants,
    trimming,
    usage,
)
from partage.fence.levels import Level

log = logging.getLogger(__name__)

NONE = "none"  # a card of its own needs no fence
_AROUND = "/etc/partage"
_INSIDE = f"{_AROUND}/fence"
_PRELOAD = "/etc/ld.so.preload"
_NOT_YET = "the agent does not put this fence around containers yet"


class Put(msgspec.Struct, frozen=True):
    """A fence that is in force as soon as the container has the edits."""

    level: str
    edits: cdi.Edits = cdi.Edits()
    tenant: str = ""


class Fences:
    """The fences of a node's containers."""

    def __init__(self, root: roots.Root, folder: Path) -> None:
        self._root = root
        self._folder = folder  # for the library, where containers can reach it
        self._library = installed(library.find(), folder)
        self._substitutes = {} if self._library.problem else substituted(library.find(), folder)
        self._hook = hook.Hook(root, self._library)
        self._probes = (
            levels.Probe(Level.DRIVER, available=False, reason=_NOT_YET),
            levels.Probe(Level.MPS, available=False, reason=_NOT_YET),
            levels.Probe(
                Level.HOOK,
                available=not self._library.problem,
                reason=self._library.problem,
                remedy=self._library.remedy,
            ),
            levels.Probe(Level.ADVISORY, available=True),
        )

    @property
    def strongest(self) -> levels.Probe:
        """What containers of this node are held by; with the reason, if that is nothing."""
        found = levels.strongest(self._probes)
        return next(p for p in self._probes if p.level in (found, Level.HOOK))

    def say(self) -> None:
        """By what containers are held, in the log."""
        found = self.strongest
        if found.available:
            log.info("containers are held by the fence %s", found.level)
            return
        log.warning(
            "containers are told their share, and nobody holds them to it: %s; %s",
            found.reason,
            found.remedy,
        )

    def put(
        self,
        name: str,
        container: grants.ContainerGrant,
        *,
        minimum: str,
        context_bytes: Mapping[str, int],
        mounted: Iterable[str] = (),
    ) -> Put:
        """Put a fence around a container before it starts; once more is no harm.

        ``mounted`` is where the container has volumes.
        """
        if all(share.exclusive for share in container.shares):
            return Put(NONE)
        asked = limits.granted(container, context_bytes=context_bytes)
        level = levels.require(self._probes, Level(minimum or Level.ADVISORY.value))
        subject = levels.Subject(name=name)
        if level is Level.HOOK:
            _check_places(mounted)
            try:
                self._hook.apply(subject, asked)
            except OSError as error:
                raise _not_written(self._root.path, error) from error
            return Put(str(level), self._edits(name), name)
        told = advisory.Advisory().apply(subject, asked).environment
        return Put(str(level), cdi.Edits(env=tuple(f"{k}={v}" for k, v in told.items())))

    def around(self, edits: cdi.Edits, put: Put) -> cdi.Edits:
        """All that is done to a container: its edits, its fence, and that in the driver's place."""
        whole = edits + put.edits
        return driver_place.taken(whole, self._substitutes, _INSIDE) if put.tenant else whole

    def take_down(self, name: str) -> bool:
        """Remove the fence of a container that is gone; False if a process of it still lives."""
        try:
            if name in tenants.names(self._root):
                tenants.remove(self._root, name)
        except errors.FenceError:
            return False
        return True

    def is_busy(self, name: str) -> bool:
        """Whether a process behind a fence uses a card."""
        try:
            return bool(name and usage.snapshot(self._root, name).processes)
        except errors.PartageError:
            return False  # it is not there, or cannot be read

    def trim(self) -> None:
        """Cut off what tenants wrote behind the files in which they keep account."""
        for path in trimming.trim(self._root):
            log.warning("%s was made larger by its tenant, and is cut back", path)

    def names(self) -> list[str]:
        """All tenants that are there."""
        return tenants.names(self._root)

    def _edits(self, name: str) -> cdi.Edits:
        tenant = tenants.read(self._root, name)
        mounts = [
            _mount(self._folder / "around", _AROUND),
            _mount(self._library.path, f"{_INSIDE}/{library.NAME}"),
            _mount(self._folder / "ld.so.preload", _PRELOAD),
            _mount(tenant.limits_path, f"{_INSIDE}/limits"),
            _mount(tenant.region_path, f"{_INSIDE}/region", writable=True),
        ]
        for index, (card, seat) in enumerate(zip(tenant.limits.cards, tenant.seats, strict=True)):
            own = seats.path(self._root, card.uuid, seat)
            mounts.append(_mount(own.parent, f"{_INSIDE}/seats-{index}"))
            mounts.append(_mount(own, f"{_INSIDE}/seats-{index}/{seat}", writable=True))
        return cdi.Edits(mounts=tuple(mounts))


def _check_places(mounted: Iterable[str]) -> None:
    """Files of a fence must not lie on files of a volume.

    Another container of the pod may have the same volume, and whoever removes a file there takes
    away what is mounted on it in all containers.
    """
    for path in mounted:
        if path == posixpath.dirname(_PRELOAD) or path.startswith(f"{_AROUND}/"):
            raise errors.FenceError(
                f"a volume of the container is mounted at {path}, where its fence has to be",
                instead="mount it elsewhere; single files of /etc can be mounted with subPath",
            )


def _not_written(folder: Path, error: OSError) -> errors.FenceError:
    return errors.FenceError(
        f"the container's fence cannot be written to {folder} ({error.strerror})",
        instead="see whether that file system is full",
    )


def installed(found: library.Library, folder: Path) -> library.Library:
    """The library in a folder of the host from which containers can load it.

    Its name carries a checksum: containers that run keep the one they were started with.
    """
    if found.problem:
        return found
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return library.Library(
                found.path,
                f"programs cannot load a library from {folder}, which is mounted noexec",
                "name another folder with --library-folder",
            )
        _make_around(folder / "around" / "fence")
        _place(folder / "ld.so.preload", f"{_INSIDE}/{library.NAME}\n".encode())
        placed = _copied(found.path, folder)
    except OSError as error:
        return library.Library(
            found.path,
            f"the library cannot be put into {folder} ({error.strerror})",
            "name a folder that the agent may write to with --library-folder",
        )
    return library.Library(placed)


def substituted(found: library.Library, folder: Path) -> dict[str, Path]:
    """What stands in the driver's place, in the same folder; without it the preload is all."""
    try:
        return {name: _copied(path, folder) for name, path in substitutes.find(found).items()}
    except OSError as error:
        log.warning("nothing stands in the driver's place: %s", error)
        return {}


def _copied(path: Path, folder: Path) -> Path:
    """A library in the folder, by a name that no other content has."""
    content = path.read_bytes()
    stem, _, rest = path.name.partition(".")
    placed = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{rest}"
    _place(placed, content)
    return placed


def _make_around(fence: Path) -> None:
    """What is mounted around the files of a fence: a place for each of them, with nothing in it.

    Every user in a container must be able to enter, whatever our umask is: programs start without a
    library that their loader cannot reach.
    """
    seats_at = [fence / f"seats-{index}" for index in range(layout.CARDS)]
    for folder in (fence.parent, fence, *seats_at):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    for name in ("limits", "region", library.NAME, *originals.BEHIND.values()):
        (fence / name).touch()
        (fence / name).chmod(0o644)


def _place(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.chmod(0o644)
    shutil.move(scratch, path)


def _mount(host: Path, inside: str, *, writable: bool = False) -> cdi.Mount:
    options = ("rw" if writable else "ro", "bind", "nosuid", "nodev")
    return cdi.Mount(host_path=str(host), container_path=inside, options=options)
