"""Departures: the programs of an installation that were removed, and end.

What they leave is removed after them, because they would write it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import msgspec

from partage.cli.cluster import cluster_snapshot
from partage.cli.cluster.checks import groups
from partage.cli.cluster.facts import forms, program_facts
from partage.cli.cluster.leftovers import Place
from partage.core import errors
from partage.kube import errors as kube_errors

_AGAIN_S = 1.0
_PROGRAMS = ("extender", "admission", "scheduler", "agent")


_WORKLOADS = {"Deployment": "/apis/apps/v1/deployments", "DaemonSet": "/apis/apps/v1/daemonsets"}


class StillThere(errors.PartageError):
    """Partage is installed."""

    code = "still-installed"


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    generation: int = 0


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Rollout(msgspec.Struct, frozen=True, rename="camel"):
    desired_number_scheduled: int = 0
    number_ready: int = 0
    observed_generation: int = 0


class _DaemonSet(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    status: _Rollout = _Rollout()


async def ended(cluster: cluster_snapshot.Cluster, place: Place, *, within_s: float) -> None:
    """Wait until no program of Partage runs in its namespace; StillThere if they go on.

    One that is installed elsewhere is not on its way out: what it needs is not taken away.
    """
    deadline_s = time.monotonic() + within_s
    while running := await _running(cluster, place):
        if time.monotonic() >= deadline_s:
            raise _still_there(f"in namespace {place.namespace}", running, place)
        await asyncio.sleep(_AGAIN_S)
    if elsewhere := await _installed(cluster):
        raise _still_there("", elsewhere, place)


def _still_there(where: str, running: list[str], place: Place) -> StillThere:
    installed = f"Partage is installed {where}".rstrip()
    return StillThere(
        f"{installed}: {', '.join(running[:5])} would write again what is removed",
        instead=f"helm uninstall {place.name} --namespace {place.namespace}, or delete "
        "what was applied, and then do this again",
    )


async def nodes_are_done(
    cluster: cluster_snapshot.Cluster,
    place: Place,
    daemon_set: str,
    *,
    within_s: float,
    tell: Callable[[str], None],
) -> None:
    """Wait until a DaemonSet that removes files is ready on its nodes; say where it is not."""
    path = f"/apis/apps/v1/namespaces/{place.namespace}/daemonsets/{daemon_set}"
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            made = await cluster.api.get(path, _DaemonSet)
        except kube_errors.NotFound:
            tell(f"there is no DaemonSet {daemon_set}; files on nodes are left alone")
            return
        status = made.status
        missing = status.desired_number_scheduled - status.number_ready
        if status.observed_generation == made.metadata.generation and not missing:
            tell(f"files were removed on {groups.counted(status.number_ready, 'node')}")
            return
        if time.monotonic() >= deadline_s:
            silent = groups.counted(missing, "node")
            tell(f"{silent} did not answer, and files stay there: docs/install.md")
            return
        await asyncio.sleep(_AGAIN_S)


async def _running(cluster: cluster_snapshot.Cluster, place: Place) -> list[str]:
    names = ", ".join(_PROGRAMS)
    selector = f"app.kubernetes.io/name={place.name},app.kubernetes.io/component in ({names})"
    path = f"/api/v1/namespaces/{place.namespace}/pods"
    return [
        f"pod {pod.metadata.name}"
        async for page in cluster.api.pages(path, _Pod, query={"labelSelector": selector})
        for pod in page.items
    ]


async def _installed(cluster: cluster_snapshot.Cluster) -> list[str]:
    """The workloads of Partage anywhere, as far as they may be seen.

    The account of the Job may not: it runs when its own installation was removed, and there is one
    in a cluster.
    """
    try:
        return [
            program.label
            for kind, path in _WORKLOADS.items()
            async for page in cluster.api.pages(path, forms.Workload)
            for workload in page.items
            for program in program_facts.of_workload(kind, workload)
        ]
    except kube_errors.Forbidden:
        return []
