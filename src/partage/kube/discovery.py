"""Discovery: which resources of a group's version the API server serves, and to whom.

Where a definition is not installed, its group may not be known at all, or be known without it. That
is an answer like any other, and no failure. A caller has to wait while the API server cannot say:
what was not asked about is not the same as what is not there.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from partage.kube import api as kube
from partage.kube import errors as kube_errors


async def served(api: kube.Api, version: str) -> frozenset[str]:
    """The resources of ``<group>/<version>``, a part of one as ``gpus/status``; empty: none."""
    try:
        offered = await api.get(f"/apis/{version}", _Resources)
    except kube_errors.NotFound:
        return frozenset()
    return frozenset(resource.name for resource in offered.resources)


async def readable(api: kube.Api, paths: Iterable[str]) -> bool:
    """Whether all of these lists are there; raises Forbidden for one that we may not have."""
    try:
        for path in paths:
            await api.get(path, msgspec.Raw, {"limit": "1"})
    except kube_errors.NotFound:  # removed since
        return False
    return True


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: tuple[_Resource, ...] = ()
