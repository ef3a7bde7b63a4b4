"""The fence ``hook``: our library in every process of the tenant.

Memory and compute are held for the tenant as a whole, and a change is seen by processes that run.
It holds programs that use CUDA through ``libcuda.so.1``, as nearly all do. It does not stop
somebody who wants to get around it: a program that is linked statically, or calls the kernel driver
by itself, never loads the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partage.core import errors
from partage.fence.levels import catalog
from partage.fence.library import libpartage, originals, substitutes
from partage.fence.store import limits, roots, tenants

LEVEL = catalog.Level.HOOK


class Hook:
    """Fences under one root, for processes that inherit an environment, or (containers) none."""

    def __init__(
        self,
        root: roots.Root,
        preloaded: libpartage.Library | None = None,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._library = preloaded or libpartage.find()
        self._inherited = inherited or {}  # of the processes: the rest of what they will have

    @property
    def level(self) -> catalog.Level:
        return LEVEL

    def apply(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """Make the tenant; what it needs to be started with is in the answer."""
        if subject.name in tenants.names(self._root):
            return self.change(subject, requested)
        libpartage.check(self._library)
        tenants.create(
            self._root,
            subject.name,
            requested,
            uid=subject.uid,
            gid=subject.gid,
            links=self._links(),
        )
        try:
            return self._applied(subject, requested)
        except errors.FenceError:
            tenants.remove(self._root, subject.name)
            raise

    def change(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        """Store the new limits; the tenant's processes see them at their next call."""
        tenants.replace(self._root, subject.name, requested)
        return self._applied(subject, requested)

    def release(self, subject: catalog.Subject, held: limits.Limits) -> None:
        """Remove the tenant; refuses while one of its processes lives."""
        if subject.name in tenants.names(self._root):
            tenants.remove(self._root, subject.name)

    def _applied(self, subject: catalog.Subject, requested: limits.Limits) -> catalog.Applied:
        tenant = tenants.read(self._root, subject.name)
        if tenant.limits != requested:
            raise catalog.unmet(LEVEL, subject.name, requested, tenant.limits)
        environment = self._environment(tenant)
        return catalog.Applied(level=LEVEL, limits=tenant.limits, environment=environment)

    def _links(self) -> dict[str, Path]:
        if self._root.reach is roots.Reach.CONTAINERS:
            return {}  # containers get these files by mounts
        return substitutes.links(self._library, originals.find(self._inherited))

    def _environment(self, tenant: tenants.Tenant) -> dict[str, str]:
        if self._root.reach is roots.Reach.CONTAINERS:
            return {}
        library = tenant.libraries / libpartage.NAME
        if not library.is_file():  # the tenant was made by a version that had no such folder
            raise errors.FenceError(
                f"tenant {tenant.name} has no library to load",
                instead="remove the tenant, and start it again",
            )
        return substitutes.environment(tenant.libraries, tenant.limits_path, self._inherited)
