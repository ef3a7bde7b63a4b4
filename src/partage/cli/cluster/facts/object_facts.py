"""Objects of a cluster that Partage keeps or reads: leases, definitions, GPU objects, events."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec
import yaml

from partage.agent.cluster import agent_events
from partage.cli.cluster.facts import cluster_facts, forms, reading
from partage.dialects.claims import definitions
from partage.scheduler import settings
from partage.scheduler.gpu_objects import card_objects, definition

_LEASES = "/apis/coordination.k8s.io/v1/leases"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_EVENTS = "/api/v1/namespaces/default/events"  # of nodes, which have no namespace
_VERSION = "/version"
_RENEWED = b'"f:renewTime"'
_BESIDE_S = 1.0  # what the API server writes has whole seconds


async def server_version(reader: reading.Reader) -> str:
    """The version of the API server, as its image has it; empty if it tells none."""
    read = await reader.part(
        "version", "get /version", lambda: reader.present(_VERSION, forms.ServerVersion)
    )
    return "" if read is None else read.git_version.removeprefix("v")


async def leases(
    reader: reading.Reader, installations: Iterable[str]
) -> tuple[cluster_facts.Lease, ...] | None:
    """The leases of the extender, in whichever namespace: of installations, and by its own name."""
    names = sorted({settings.Leader().name, *(f"{name}-extender" for name in installations)})

    async def read() -> tuple[cluster_facts.Lease, ...]:
        return tuple(
            [
                _lease(lease)
                for name in names
                async for lease in reader.listed(
                    _LEASES, forms.Lease, query={"fieldSelector": f"metadata.name={name}"}
                )
            ]
        )

    return await reader.part(f"leases {', '.join(names)}", "list leases", read)


async def node_clocks(
    reader: reading.Reader, nodes: Collection[str]
) -> tuple[cluster_facts.Clock, ...]:
    """The clocks of nodes, by their kubelets' leases."""

    async def read() -> tuple[cluster_facts.Clock, ...]:
        present = [
            _lease(lease)
            async for lease in reader.listed(_NODE_LEASES, forms.Lease, what="leases of nodes")
            if lease.metadata.name in nodes
        ]
        return tuple(clocks((lease, f"node {lease.name}") for lease in present))

    right = "list leases in namespace kube-node-lease"
    return await reader.part("leases of nodes", right, read) or ()


def clocks(
    owned: Iterable[tuple[cluster_facts.Lease, str]],
) -> Iterable[cluster_facts.Clock]:
    """Clocks by leases: what the holder wrote, beside when the API server stored it.

    That is some time between the holder's look at its clock and a second after what is written, so
    the middle of a second is taken; how long the request took is not known, and not counted.
    """
    for lease, owner in owned:
        if lease.renewed is not None and lease.written is not None:
            ahead_s = (lease.renewed - lease.written).total_seconds() - _BESIDE_S / 2
            yield cluster_facts.Clock(owner, ahead_s, _BESIDE_S / 2)


async def claim_definitions(
    reader: reading.Reader,
) -> tuple[cluster_facts.Definition, ...] | None:
    """The definitions of Elastic GPU, compared with those of this version."""

    async def read() -> tuple[cluster_facts.Definition, ...]:
        return tuple([await _definition(reader, made) for made in definitions.all_of_them()])

    return await reader.part("definitions", "get customresourcedefinitions", read)


async def gpu_objects(reader: reading.Reader) -> cluster_facts.GpuObjects | None:
    """The cards of which Partage keeps an object."""

    async def read() -> cluster_facts.GpuObjects:
        cards: set[tuple[str, int]] = set()
        latest: dt.datetime | None = None
        query = {"labelSelector": f"{card_objects.MANAGER_LABEL}={card_objects.MANAGER}"}
        async for gpu in reader.listed(definition.PATH, forms.Gpu, what="GPU objects", query=query):
            cards.add((gpu.spec.node_name, gpu.spec.index))
            times = [entry.time for entry in gpu.metadata.managed_fields if entry.time]
            latest = max([*times, *([latest] if latest else [])], default=None)
        return cluster_facts.GpuObjects(frozenset(cards), latest)

    return await reader.part("GPU objects", "list gpus.elasticgpu.io", read)


async def complaints(reader: reading.Reader) -> tuple[cluster_facts.Complaint, ...]:
    """What agents told of plugins beside them, and did not take back."""

    async def read() -> tuple[cluster_facts.Complaint, ...]:
        spoken = [
            event
            for reason in (agent_events.NOT_SERVED, agent_events.TAKEN, agent_events.BACK)
            async for event in reader.listed(
                _EVENTS, forms.Event, query={"fieldSelector": f"reason={reason}"}
            )
        ]
        return latest_complaints(spoken)

    return await reader.part("events of nodes", "list events in namespace default", read) or ()


def latest_complaints(spoken: Iterable[forms.Event]) -> tuple[cluster_facts.Complaint, ...]:
    """The last word of each agent about its resources, where that is a complaint."""
    last: dict[tuple[str, bool], forms.Event] = {}
    for event in sorted(spoken, key=_when):
        taken = event.reason != agent_events.NOT_SERVED
        last[event.involved_object.name, taken] = event
    return tuple(
        cluster_facts.Complaint(node, event.message, taken, event.last_timestamp)
        for (node, taken), event in last.items()
        if event.reason != agent_events.BACK
    )


async def scheduler_configuration(
    reader: reading.Reader, place: cluster_facts.Installation
) -> cluster_facts.SchedulerConfiguration | None:
    """What the ConfigMap of a scheduler says; None if there is none."""
    namespace, name = place.namespace, f"{place.name}-scheduler"
    path = f"/api/v1/namespaces/{namespace}/configmaps/{name}"
    label = f"ConfigMap {namespace}/{name}"
    right = f"get configmaps/{name} in namespace {namespace}"
    present = await reader.part(label, right, lambda: reader.present(path, forms.ConfigMap))
    return None if present is None else configuration(label, present.data)


class _Managed(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    ignored_by_scheduler: bool = False


class _Extender(msgspec.Struct, frozen=True, rename="camel"):
    ignorable: bool = False
    managed_resources: tuple[_Managed, ...] = ()


class _Scheduler(msgspec.Struct, frozen=True):
    kind: str = ""
    extenders: tuple[_Extender, ...] = ()


def configuration(label: str, data: Mapping[str, str]) -> cluster_facts.SchedulerConfiguration:
    """The configuration of kube-scheduler among the texts of a ConfigMap."""
    problem = "it holds no KubeSchedulerConfiguration"
    for text in data.values():
        try:
            read = msgspec.convert(yaml.safe_load(text), _Scheduler)
        except (yaml.YAMLError, msgspec.ValidationError) as error:
            problem = f"it cannot be read: {' '.join(str(error).split())[:120]}"
            continue
        if read.kind == "KubeSchedulerConfiguration":
            return _configuration(label, read.extenders)
    return cluster_facts.SchedulerConfiguration(label=label, problem=problem)


def _configuration(
    label: str, extenders: tuple[_Extender, ...]
) -> cluster_facts.SchedulerConfiguration:
    return cluster_facts.SchedulerConfiguration(
        label=label,
        has_extender=bool(extenders),
        ignorable=any(extender.ignorable for extender in extenders),
        managed=tuple(
            cluster_facts.Managed(resource.name, resource.ignored_by_scheduler)
            for extender in extenders
            for resource in extender.managed_resources
        ),
    )


def _lease(lease: forms.Lease) -> cluster_facts.Lease:
    meta, spec = lease.metadata, lease.spec
    return cluster_facts.Lease(
        namespace=meta.namespace,
        name=meta.name,
        holder=spec.holder_identity or "",
        renewed=spec.renew_time,
        written=_written(meta.managed_fields),
        duration_s=spec.lease_duration_seconds or 0,
        version=meta.annotations.get(settings.VERSION_ANNOTATION, ""),
    )


def _written(managed: Iterable[forms.Managed]) -> dt.datetime | None:
    """When the time of renewal was last stored; whoever wrote something else does not count."""
    return max((e.time for e in managed if e.time and _RENEWED in bytes(e.fields_v1)), default=None)


async def _definition(reader: reading.Reader, made: Mapping[str, Any]) -> cluster_facts.Definition:
    name = made["metadata"]["name"]
    present = await reader.present(f"{_DEFINITIONS}/{name}", forms.Definition)
    if present is None:
        return cluster_facts.Definition(name, installed=False)
    same = compared(present.spec) == compared(made["spec"])
    return cluster_facts.Definition(name, installed=True, same=same)


def compared(spec: Mapping[str, Any]) -> object:
    """What of a definition says which version it is; the API server adds to the rest."""
    return [
        (version["name"], version["schema"], version.get("additionalPrinterColumns", []))
        for version in sorted(spec.get("versions", ()), key=lambda version: str(version["name"]))
    ]


def _when(event: forms.Event) -> dt.datetime:
    return event.last_timestamp or dt.datetime.min.replace(tzinfo=dt.UTC)
