"""Leftovers: what stays of Partage in a cluster when its programs are gone, and its removal.

Programs write on nodes, and make Secrets, Leases and objects about cards; no installer knows those.
They are found by their names, all of which are Partage's own, but for a few of other systems that
the agent writes in their words: these are taken away only where they say what the agent wrote.
Pods keep what is written on them: it says which cards they have as long as they run.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import msgspec

from partage.cli.cluster import cluster_snapshot
from partage.cli.cluster.adoption import adoptions, record, systems
from partage.core import cards
from partage.dialects import contract, node_readings, nodes, registry
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors

T = TypeVar("T")

_NODES, _NAMESPACES = "/api/v1/nodes", "/api/v1/namespaces"
_CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_KINDS = ("elasticgpuclaims", "elasticgpuclasses", "elasticgpus", "gpus")
_TAINTS = "partage.dev/taints"  # an annotation: those that the extender put on the node
_SECRETS = ("extender-tls", "scheduler-tls", "admission-tls")
_LEASES = ("extender", "scheduler")
_TEST_POD = "doctor"  # of `helm test`, which leaves its log
_OWN = "partage.dev/"
_COUNTED = "the kubelet counts on the agent for five minutes after it has gone; do this again then"
_WAY_BACK = "'partage adopt {} --undo' goes back by it; delete it when nobody will"
_CLAIMS_IN_THEM = "your claims are in them; --definitions removes both"


class Place(msgspec.Struct, frozen=True):
    """Where Partage was installed, and how the names of its objects begin."""

    namespace: str
    name: str


class Change(msgspec.Struct, frozen=True):
    """A patch of an object; without one it is deleted."""

    path: str
    patch: Mapping[str, Any] | None = None


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """An object that is left, or that something is left on."""

    object: str
    what: tuple[str, ...] = ()  # is written on it; empty: the object itself
    kept: str = ""  # why it stays for now
    changes: tuple[Change, ...] = ()


class _Metadata(nodes.Metadata, frozen=True, rename="camel"):
    namespace: str = ""
    resource_version: str = ""
    finalizers: tuple[str, ...] = ()


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()

    @property
    def name(self) -> str:
        return self.metadata.name


class _Spec(msgspec.Struct, frozen=True):
    taints: tuple[dict[str, Any], ...] = ()  # with fields that we do not know


class _Node(_Object, frozen=True):
    spec: _Spec = _Spec()
    status: nodes.Status = nodes.Status()


async def find(
    cluster: cluster_snapshot.Cluster, place: Place, *, definitions: bool
) -> list[Leftover]:
    """All that is left; definitions stay unless they are asked for."""
    marked: set[str] = set()
    left: list[Leftover] = []
    async for node in _each(cluster, _NODES, _Node):
        on_node = list(of_node(node))
        left += on_node
        marked |= {node.name} if on_node else set()
    left += [leftover async for leftover in _namespaces(cluster)]
    left += [leftover async for leftover in _unhealthy_lists(cluster, marked)]
    left += [leftover async for leftover in _named(cluster, place)]
    left += [leftover async for leftover in _adoptions(cluster)]
    left += [leftover async for leftover in _of_claims(cluster)]
    return left + [leftover async for leftover in _definitions(cluster, removed=definitions)]


async def remove(cluster: cluster_snapshot.Cluster, leftover: Leftover) -> None:
    """Remove it; what has gone meanwhile is gone."""
    for change in leftover.changes:
        try:
            if change.patch is None:
                await cluster.api.delete(change.path)
            else:
                await cluster.api.patch(change.path, change.patch)
        except kube_errors.NotFound:
            continue


def of_node(node: _Node) -> Iterator[Leftover]:
    """What is written on a node, and what its status still counts."""
    meta, path = node.metadata, f"{_NODES}/{node.name}"
    labels = {name for name in meta.labels if name.startswith(_OWN)} | _in_others_words(node)
    notes = {name for name in meta.annotations if name.startswith(_OWN)}
    put = set(meta.annotations.get(_TAINTS, "").split(","))
    taints = [taint for taint in node.spec.taints if _shown(taint) in put]
    if labels or notes:
        metadata: dict[str, Any] = {
            "labels": dict.fromkeys(labels),
            "annotations": dict.fromkeys(notes),
        }
        patch: dict[str, Any] = {"metadata": metadata}
        if taints:  # the list can only be replaced, for the version that was read
            metadata["resourceVersion"] = meta.resource_version
            patch["spec"] = {"taints": [t for t in node.spec.taints if t not in taints]}
        yield Leftover(
            object=f"node {node.name}",
            what=(
                *(f"label {name}" for name in sorted(labels)),
                *(f"annotation {name}" for name in sorted(notes)),
                *(f"taint {_shown(taint)}" for taint in taints),
            ),
            changes=(Change(path, patch),),
        )
    yield from _counted(node, f"{path}/status", served=bool(labels or notes))


def _counted(node: _Node, path: str, *, served: bool) -> Iterator[Leftover]:
    capacity = node.status.capacity
    if not served and not any(name.startswith(_OWN) for name in capacity):
        return
    spoken = registry.names().resources | {_OWN + "cards"}
    reported = registry.reported(_cards(node), registry.dialect_names()).keys()
    bare = nodes.Node(status=node.status)
    ours = [name for name in capacity if name in spoken or name in reported]
    gone = sorted(name for name in ours if name in reported or not bare.amount(name))
    if gone:
        removed = dict.fromkeys(gone)
        patch = {"status": {"capacity": removed, "allocatable": removed}}
        yield _resources(node, gone, changes=(Change(path, patch),))
    counted = sorted(n for n in ours if n not in gone and n.startswith(_OWN) and not bare.offers(n))
    if counted:
        yield _resources(node, counted, kept=_COUNTED)


def _resources(
    node: _Node, names: Iterable[str], *, kept: str = "", changes: tuple[Change, ...] = ()
) -> Leftover:
    what = tuple(f"resource {name}" for name in names)
    return Leftover(object=f"node {node.name}", what=what, kept=kept, changes=changes)


def _cards(node: _Node) -> cards.Node:
    read = nodes.Node(metadata=node.metadata, status=node.status)
    return node_readings.read(read).node


def _in_others_words(node: _Node) -> set[str]:
    """Labels of other systems that say exactly what the agent writes of these cards."""
    if nodes.CARDS not in node.metadata.annotations:
        return set()
    labels, spoken = node.metadata.labels, registry.dialect_names()
    written = registry.node_labels(_cards(node), labels, contract.Settings(), spoken)
    return {name for name, text in written.items() if labels.get(name) == text}


def _shown(taint: Mapping[str, Any]) -> str:
    return str(msgspec.convert(taint, nodes.Taint))


async def _namespaces(cluster: cluster_snapshot.Cluster) -> AsyncIterator[Leftover]:
    async for namespace in _each(cluster, _NAMESPACES, _Object):
        meta = namespace.metadata
        labels, notes = (
            sorted(name for name in written if name.startswith(_OWN))
            for written in (meta.labels, meta.annotations)
        )
        if labels or notes:
            removed = {"labels": dict.fromkeys(labels), "annotations": dict.fromkeys(notes)}
            yield Leftover(
                object=f"namespace {namespace.name}",
                what=(*(f"label {n}" for n in labels), *(f"annotation {n}" for n in notes)),
                changes=(Change(f"{_NAMESPACES}/{namespace.name}", {"metadata": removed}),),
            )


async def _unhealthy_lists(
    cluster: cluster_snapshot.Cluster, marked: set[str]
) -> AsyncIterator[Leftover]:
    """Only of nodes that Partage served: gpushare has lists of the same names."""
    names = {f"unhealthy-gpu-{node}" for node in marked}
    async for made in _each(cluster, _CONFIGMAPS, _Object):
        if made.name in names:
            path = f"{_CONFIGMAPS}/{made.name}"
            yield Leftover(object=f"ConfigMap kube-system/{made.name}", changes=(Change(path),))


async def _named(cluster: cluster_snapshot.Cluster, place: Place) -> AsyncIterator[Leftover]:
    space = f"namespaces/{place.namespace}"
    secrets = (("Secret", f"/api/v1/{space}/secrets", tail) for tail in _SECRETS)
    leases = (("Lease", f"/apis/coordination.k8s.io/v1/{space}/leases", tail) for tail in _LEASES)
    pod = ("Pod", f"/api/v1/{space}/pods", _TEST_POD)
    for kind, folder, tail in (*secrets, *leases, pod):
        name = f"{place.name}-{tail}"
        path = f"{folder}/{name}"
        if await _is_there(cluster, path):
            yield Leftover(object=f"{kind} {place.namespace}/{name}", changes=(Change(path),))


async def _adoptions(cluster: cluster_snapshot.Cluster) -> AsyncIterator[Leftover]:
    """What is kept of take-overs, which is the only way back; nobody but a person removes it."""
    for system in sorted(systems.SYSTEMS):
        name = f"{record.NAMESPACE}/{adoptions.record_name(system)}"
        try:
            if await _is_there(cluster, record.path(system)):
                yield Leftover(object=f"Secret {name}", kept=_WAY_BACK.format(system))
        except kube_errors.Forbidden:
            return  # the Job of the chart may read no Secrets there


async def _of_claims(cluster: cluster_snapshot.Cluster) -> AsyncIterator[Leftover]:
    """Objects about cards; and what keeps claims from being deleted, which nobody else lifts."""
    async for made in _each(cluster, objects.GPUS_PATH, _Object):
        path = f"{objects.GPUS_PATH}/{made.name}"
        yield Leftover(object=f"GPU {made.name}", changes=(Change(path),))
    ours = {objects.CLAIM_FINALIZER, objects.ELASTIC_GPU_FINALIZER}
    for folder in (objects.CLAIMS_PATH, objects.ELASTIC_GPUS_PATH):
        async for made in _each(cluster, folder, _Object):
            held = ours & {*made.metadata.finalizers}
            if held:
                yield _finalizers(made, folder, held)


def _finalizers(made: _Object, folder: str, held: set[str]) -> Leftover:
    meta = made.metadata
    root, _, plural = folder.rpartition("/")
    space = f"/namespaces/{meta.namespace}" if meta.namespace else ""
    rest = [name for name in meta.finalizers if name not in held]
    patch = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": rest}}
    shown = f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name
    return Leftover(
        object=f"{plural} {shown}",
        what=tuple(f"finalizer {name}" for name in sorted(held)),
        changes=(Change(f"{root}{space}/{plural}/{meta.name}", patch),),
    )


async def _definitions(
    cluster: cluster_snapshot.Cluster, *, removed: bool
) -> AsyncIterator[Leftover]:
    for kind in _KINDS:
        name = f"{kind}.{objects.GROUP}"
        path = f"{_DEFINITIONS}/{name}"
        if await _is_there(cluster, path):
            yield Leftover(
                object=f"CustomResourceDefinition {name}",
                kept="" if removed else _CLAIMS_IN_THEM,
                changes=(Change(path),) if removed else (),
            )


async def _is_there(cluster: cluster_snapshot.Cluster, path: str) -> bool:
    try:
        await cluster.api.get(path, _Object)
    except kube_errors.NotFound:
        return False
    return True


async def _each(cluster: cluster_snapshot.Cluster, path: str, form: type[T]) -> AsyncIterator[T]:
    """Of a kind that is not defined there are none."""
    try:
        async for page in cluster.api.pages(path, form):
            for item in page.items:
                yield item
    except kube_errors.NotFound:
        return
