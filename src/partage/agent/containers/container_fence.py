"""The fence around one container, and what has to be in the container for it.

The fence ``hook`` is files: the library, the loader's list that names it, what stands in the
driver's place (:mod:`partage.agent.containers.driver_place`), the tenant's limits, which are
read-only, its region, and its seats at its cards. All of them are bind mounts, made by the
container runtime from the specification, so that what the container's image or its author put in
those places lies below. The folder around them is one as well: root in a container can rename
folders of its own, with all that is mounted in them, but not what is itself mounted. Nothing
depends on the environment, which the tenant may change.

``driver`` and ``mps`` are not put around containers yet. They need the container's own cgroup, or
a daemon beside it, and a level that is not set up is not a level.
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

from partage.agent.containers import cdi, driver_place
from partage.core import errors, grants
from partage.fence import usage
from partage.fence.levels import advisory, availability, catalog, hook
from partage.fence.levels.catalog import Level
from partage.fence.library import libpartage, originals, substitutes
from partage.fence.store import layout, limits, oversized_files, roots, seats, tenants

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
        self._library = installed(libpartage.find(), folder)
        self._substitutes = {} if self._library.problem else substituted(libpartage.find(), folder)
        self._hook = hook.Hook(root, self._library)
        self._probes = availability.probes(self._library, not_put_up=_NOT_YET, remedy="")

    @property
    def strongest(self) -> catalog.Probe:
        """What containers of this node are held by; with the reason, if that is nothing."""
        level = catalog.strongest(self._probes)
        return next(p for p in self._probes if p.level in (level, Level.HOOK))

    def say(self) -> None:
        """By what containers are held, in the log."""
        probe = self.strongest
        if probe.available:
            log.info("the fence around containers is %s", probe.level)
            return
        log.warning(
            "shares of containers are announced to them, but not enforced: %s; %s",
            probe.reason,
            probe.remedy,
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
        """Put a fence around a container before it starts; repeating it does no harm.

        ``mounted`` is where the container has volumes.
        """
        if all(share.exclusive for share in container.shares):
            return Put(NONE)
        granted = limits.granted(container, context_bytes=context_bytes)
        level = catalog.require(self._probes, Level(minimum or Level.ADVISORY.value))
        subject = catalog.Subject(name=name)
        if level is Level.HOOK:
            _check_volumes(mounted)
            try:
                self._hook.apply(subject, granted)
            except OSError as error:
                raise _not_written(self._root.path, error) from error
            return Put(str(level), self._edits(name), name)
        environment = advisory.Advisory().apply(subject, granted).environment
        return Put(str(level), cdi.Edits(env=tuple(f"{k}={v}" for k, v in environment.items())))

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
        for path in oversized_files.trim(self._root):
            log.warning("a tenant enlarged its file %s; the file is cut back", path)

    def names(self) -> list[str]:
        """All tenants that are there."""
        return tenants.names(self._root)

    def _edits(self, name: str) -> cdi.Edits:
        tenant = tenants.read(self._root, name)
        mounts = [
            _mount(self._folder / "around", _AROUND),
            _mount(self._library.path, f"{_INSIDE}/{libpartage.NAME}"),
            _mount(self._folder / "ld.so.preload", _PRELOAD),
            _mount(tenant.limits_path, f"{_INSIDE}/limits"),
            _mount(tenant.region_path, f"{_INSIDE}/region", writable=True),
        ]
        for index, (card, seat) in enumerate(zip(tenant.limits.cards, tenant.seats, strict=True)):
            own = seats.path(self._root, card.uuid, seat)
            mounts.append(_mount(own.parent, f"{_INSIDE}/seats-{index}"))
            mounts.append(_mount(own, f"{_INSIDE}/seats-{index}/{seat}", writable=True))
        return cdi.Edits(mounts=tuple(mounts))


def _check_volumes(mounted: Iterable[str]) -> None:
    """Files of a fence must not lie on files of a volume.

    Another container of the pod may have the same volume, and a file that is removed there
    takes away what is mounted on it in all containers.
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
        instead="check whether that file system is full",
    )


def installed(library: libpartage.Library, folder: Path) -> libpartage.Library:
    """The library in a folder of the host from which containers can load it.

    Its name carries a checksum: containers that run keep the one they were started with.
    """
    if library.problem:
        return library
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return libpartage.Library(
                library.path,
                f"programs cannot load a library from {folder}, which is mounted noexec",
                "name another folder with --library-folder",
            )
        _make_around(folder / "around" / "fence")
        _write(folder / "ld.so.preload", f"{_INSIDE}/{libpartage.NAME}\n".encode())
        copy = _copied(library.path, folder)
    except OSError as error:
        return libpartage.Library(
            library.path,
            f"the library cannot be put into {folder} ({error.strerror})",
            "name a folder that the agent may write to with --library-folder",
        )
    return libpartage.Library(copy)


def substituted(library: libpartage.Library, folder: Path) -> dict[str, Path]:
    """What stands in the driver's place, in the same folder; without it the preload is all."""
    try:
        return {name: _copied(path, folder) for name, path in substitutes.find(library).items()}
    except OSError as error:
        log.warning("nothing can be put in the driver's place in containers: %s", error)
        return {}


def _copied(path: Path, folder: Path) -> Path:
    """A library in the folder, by a name that no other content has."""
    content = path.read_bytes()
    stem, _, rest = path.name.partition(".")
    copy = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{rest}"
    _write(copy, content)
    return copy


def _make_around(fence: Path) -> None:
    """What is mounted around the files of a fence: an empty mount point for each.

    Every user in a container must be able to enter, whatever our umask is: programs start without a
    library that their loader cannot reach.
    """
    seats_at = [fence / f"seats-{index}" for index in range(layout.CARDS)]
    for folder in (fence.parent, fence, *seats_at):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    for name in ("limits", "region", libpartage.NAME, *originals.BEHIND.values()):
        (fence / name).touch()
        (fence / name).chmod(0o644)


def _write(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.chmod(0o644)
    shutil.move(scratch, path)


def _mount(host: Path, inside: str, *, writable: bool = False) -> cdi.Mount:
    options = ("rw" if writable else "ro", "bind", "nosuid", "nodev")
    return cdi.Mount(host_path=str(host), container_path=inside, options=options)
