"""The fence ``hook``: our library in every process of the tenant.

Memory and compute are held for the tenant as a whole, and a change is seen by processes that run.
It holds programs that use CUDA through ``libcuda.so.1``, as all but a handful do. It is no wall
against somebody who wants to get around it: a program that is linked statically, or calls the
kernel driver by itself, never meets the library.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partage.core import errors
from partage.fence import levels, library, limits, originals, roots, substitutes, tenants

LEVEL = levels.Level.HOOK


class Hook:
    """Fences under one root, for processes that inherit an environment, or (containers) none."""

    def __init__(
        self,
        root: roots.Root,
        preloaded: library.Library | None = None,
        inherited: Mapping[str, str] | None = None,
    ) -> None:
        self._root = root
        self._library = preloaded or library.find()
        self._inherited = inherited or {}  # of the processes: the rest of what they will have

    @property
    def level(self) -> levels.Level:
        return LEVEL

    def apply(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Make the tenant; what it needs to be started with is in the answer."""
        if subject.name in tenants.names(self._root):
            return self.change(subject, asked)
        library.check(self._library)
        tenants.create(
            self._root, subject.name, asked, uid=subject.uid, gid=subject.gid, links=self._links()
        )
        try:
            return self._applied(subject, asked)
        except errors.FenceError:
            tenants.remove(self._root, subject.name)
            raise

    def change(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        """Store the new limits; the tenant's processes see them at their next call."""
        tenants.replace(self._root, subject.name, asked)
        return self._applied(subject, asked)

    def release(self, subject: levels.Subject, held: limits.Limits) -> None:
        """Remove the tenant; refuses while one of its processes lives."""
        if subject.name in tenants.names(self._root):
            tenants.remove(self._root, subject.name)

    def _applied(self, subject: levels.Subject, asked: limits.Limits) -> levels.Applied:
        tenant = tenants.read(self._root, subject.name)
        if tenant.limits != asked:
            raise levels.unmet(LEVEL, subject.name, asked, tenant.limits)
        environment = self._environment(tenant)
        return levels.Applied(level=LEVEL, limits=tenant.limits, environment=environment)

    def _links(self) -> dict[str, Path]:
        if self._root.reach is roots.Reach.CONTAINERS:
            return {}  # what they have is mounted
        return substitutes.links(self._library, originals.find(self._inherited))

    def _environment(self, tenant: tenants.Tenant) -> dict[str, str]:
        if self._root.reach is roots.Reach.CONTAINERS:
            return {}
        if not (tenant.libraries / library.NAME).is_file():  # of a version that had no such folder
            raise errors.FenceError(
                f"tenant {tenant.name} has no library to load", instead="remove it, and start anew"
            )
        return substitutes.environment(tenant.libraries, tenant.limits_path, self._inherited)
