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
import posixpath
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from partage.agent.containers import cdi, driver_place
from partage.core import errors, grants
from partage.fence.levels import advisory, availability, catalog, fixed_places, hook
from partage.fence.levels.catalog import Level
from partage.fence.library import libpartage
from partage.fence.store import limits, oversized_files, roots, seats, shared_files, tenants

log = logging.getLogger(__name__)

NONE = "none"  # a card of its own needs no fence
_NOT_YET = "the agent does not put this fence around containers yet"


_SHARED = "elasticgpu."  # no uid of a pod is written so
_LONGEST = 100  # characters of a tenant's name; an object's may have 253


def tenant_name(uid: str, container: str, elastic_gpu: str = "") -> str:
    """The tenant that a container is: its own, or that of its ElasticGPU.

    Containers that share an ElasticGPU have one quota together, so they are one tenant.
    """
    if not elastic_gpu:
        return f"{uid}.{container}"
    if len(elastic_gpu) > _LONGEST:
        checksum = hashlib.sha256(elastic_gpu.encode()).hexdigest()[:16]
        elastic_gpu = f"{elastic_gpu[: _LONGEST - 17]}-{checksum}"
    return f"{_SHARED}{elastic_gpu}"


def is_shared(tenant: str) -> bool:
    """Whether a tenant is that of an ElasticGPU, and not of one pod."""
    return tenant.startswith(_SHARED)


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
        self._turn = threading.Lock()  # two containers of one tenant may start at the same time
        self._library = fixed_places.installed(libpartage.find(), folder)
        self._substitutes = (
            {} if self._library.problem else fixed_places.substituted(libpartage.find(), folder)
        )
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
                with self._turn:
                    self._apply(subject, granted)
            except OSError as error:
                raise _not_written(self._root.path, error) from error
            return Put(str(level), self._edits(name), name)
        environment = advisory.Advisory().apply(subject, granted).environment
        return Put(str(level), cdi.Edits(env=tuple(f"{k}={v}" for k, v in environment.items())))

    def _apply(self, subject: catalog.Subject, granted: limits.Limits) -> None:
        """A container that starts again after an update: its files may be of the version before.

        Its last run has ended. Those that share an ElasticGPU may go on, with the files they have.
        """
        try:
            self._hook.apply(subject, granted)
        except shared_files.OtherVersion as error:
            if is_shared(subject.name) or tenants.running(self._root, subject.name):
                raise
            log.info("%s; they are made anew", error.what)
            tenants.remove(self._root, subject.name)
            self._hook.apply(subject, granted)

    def around(self, edits: cdi.Edits, put: Put) -> cdi.Edits:
        """All that is done to a container: its edits, its fence, and that in the driver's place."""
        whole = edits + put.edits
        return (
            driver_place.taken(whole, self._substitutes, fixed_places.INSIDE)
            if put.tenant
            else whole
        )

    def take_down(self, name: str) -> bool:
        """Remove the fence of a container that is gone; False if a process of it still lives."""
        try:
            if name in tenants.names(self._root):
                tenants.remove(self._root, name)
        except errors.FenceError:
            return False
        return True

    def is_busy(self, name: str) -> bool:
        """Whether a process behind a fence uses a card, also behind one that cannot be read."""
        return bool(name) and tenants.running(self._root, name) > 0

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
            _mount(fixed_places.around(self._folder), fixed_places.AROUND),
            _mount(self._library.path, f"{fixed_places.INSIDE}/{libpartage.NAME}"),
            _mount(self._folder / fixed_places.LIST, fixed_places.PRELOAD),
            _mount(tenant.limits_path, f"{fixed_places.INSIDE}/limits"),
            _mount(tenant.region_path, f"{fixed_places.INSIDE}/region", writable=True),
        ]
        for index, (card, seat) in enumerate(zip(tenant.limits.cards, tenant.seats, strict=True)):
            own = seats.path(self._root, card.uuid, seat)
            mounts.append(_mount(own.parent, f"{fixed_places.INSIDE}/seats-{index}"))
            mounts.append(_mount(own, f"{fixed_places.INSIDE}/seats-{index}/{seat}", writable=True))
        return cdi.Edits(mounts=tuple(mounts))


def _check_volumes(mounted: Iterable[str]) -> None:
    """Files of a fence must not lie on files of a volume.

    Another container of the pod may have the same volume, and a file that is removed there
    takes away what is mounted on it in all containers.
    """
    for path in mounted:
        if path == posixpath.dirname(fixed_places.PRELOAD) or path.startswith(
            f"{fixed_places.AROUND}/"
        ):
            raise errors.FenceError(
                f"a volume of the container is mounted at {path}, where its fence has to be",
                instead="mount it elsewhere; single files of /etc can be mounted with subPath",
            )


def _not_written(folder: Path, error: OSError) -> errors.FenceError:
    return errors.FenceError(
        f"the container's fence cannot be written to {folder} ({error.strerror})",
        instead="check whether that file system is full",
    )


def _mount(host: Path, inside: str, *, writable: bool = False) -> cdi.Mount:
    options = ("rw" if writable else "ro", "bind", "nosuid", "nodev")
    return cdi.Mount(host_path=str(host), container_path=inside, options=options)
