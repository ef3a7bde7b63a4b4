"""Collects all facts of a cluster, in the order in which later parts need earlier ones.

Nodes come before pods, because a record on a pod is read against the cards of its node; and
workloads before nodes, because they say on which nodes an agent should be.
"""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Callable, Iterable, Mapping

import msgspec

from partage.cli.cluster.facts import (
    certificate_facts,
    cluster_facts,
    forms,
    guard_facts,
    node_facts,
    object_facts,
    pod_facts,
    program_facts,
    reading,
    secret_facts,
)
from partage.kube import api as kube

_APPS = "/apis/apps/v1"
_SLICES = "/apis/discovery.k8s.io/v1"
_HALF_SECOND_S = 0.5  # the header of the time has whole seconds


async def collect(
    api: kube.Api, *, version: str, now: dt.datetime, tell: Callable[[str], None]
) -> cluster_facts.Facts:
    """All facts; ``now`` is this machine's time, for a server that does not tell its own."""
    reader = reading.Reader(api, tell)
    clock = await reader.part("clock", "get /version", lambda: _clock(api))
    workloads = await _workloads(reader)
    programs = None if workloads is None else tuple(workloads.programs)
    places = sorted({p.installation for p in programs or ()}) or [cluster_facts.Installation()]
    readings = node_facts.Readings(() if workloads is None else workloads.selectors)
    nodes = await reader.part("nodes", "list nodes", lambda: _nodes(reader, readings))
    leases = await object_facts.leases(reader, {place.name for place in places})
    claims = await object_facts.claim_definitions(reader)
    secured = await _secured(reader, places)
    configurations = [await object_facts.scheduler_configuration(reader, place) for place in places]
    return cluster_facts.Facts(
        now=now if clock is None else now - dt.timedelta(seconds=clock.ahead_s),
        version=version,
        server_version=await object_facts.server_version(reader),
        programs=programs,
        leases=leases,
        nodes=nodes,
        pods=await reader.part("pods", "list pods", lambda: _pods(reader, readings)),
        endpoints=await _endpoints(reader, sorted({place.namespace for place in places})),
        policies=await guard_facts.policies(reader),
        excepted=await guard_facts.excepted(reader),
        webhooks=secured.webhooks,
        certificates=secured.certificates,
        scheduler=tuple(read for read in configurations if read is not None),
        definitions=claims,
        gpu_objects=await object_facts.gpu_objects(reader) if _installed(claims) else None,
        complaints=await object_facts.complaints(reader),
        clocks=(
            *(() if clock is None else (clock,)),
            *object_facts.clocks((lease, f"extender ({lease.holder})") for lease in leases or ()),
            *await object_facts.node_clocks(reader, readings.cards.keys()),
        ),
        unread=tuple(reader.unread),
    )


class _Workloads(msgspec.Struct, frozen=True):
    programs: list[cluster_facts.Program]
    selectors: list[Mapping[str, str]]  # of the nodes on which agents should be


class _Secured(msgspec.Struct, frozen=True):
    webhooks: tuple[cluster_facts.Webhook, ...] | None
    certificates: tuple[cluster_facts.Certificate, ...]


async def _clock(api: kube.Api) -> cluster_facts.Clock | None:
    """How far this machine's clock is ahead; half of the round trip is what is not known."""
    await api.server_time()  # makes the connection, which takes longer than an answer
    read = await api.server_time()
    try:
        server_s = email.utils.parsedate_to_datetime(read.date).timestamp() + _HALF_SECOND_S
    except ValueError:
        return None  # what stands before the API server has a word of its own, or none
    ahead_s = (read.asked_s + read.answered_s) / 2 - server_s
    within_s = (read.answered_s - read.asked_s) / 2 + _HALF_SECOND_S
    return cluster_facts.Clock("this machine", ahead_s, within_s)


async def _workloads(reader: reading.Reader) -> _Workloads | None:
    async def read() -> _Workloads:
        made = _Workloads([], [])
        for kind, plural in (("Deployment", "deployments"), ("DaemonSet", "daemonsets")):
            path = f"{_APPS}/{plural}"
            async for workload in reader.listed(path, forms.Workload, what=plural):
                programs = list(program_facts.of_workload(kind, workload))
                made.programs.extend(programs)
                if any(program.role is cluster_facts.Role.AGENT for program in programs):
                    made.selectors.append(workload.spec.template.spec.node_selector)
        return made

    return await reader.part("workloads", "list deployments and daemonsets", read)


async def _nodes(reader: reading.Reader, readings: node_facts.Readings) -> cluster_facts.Nodes:
    readings.begin()
    async for node in reader.listed("/api/v1/nodes", forms.Node, what="nodes"):
        readings.put(node)
    return readings.all()


async def _pods(reader: reading.Reader, readings: node_facts.Readings) -> cluster_facts.Pods:
    tally = pod_facts.Tally(readings.cards, readings.published, readings.settings)
    async for pod in reader.listed("/api/v1/pods", forms.Pod, what="pods"):
        tally.put(pod)
    return tally.all()


async def _endpoints(reader: reading.Reader, namespaces: Iterable[str]) -> frozenset[str] | None:
    async def read() -> frozenset[str]:
        return frozenset(
            [
                f"{target.namespace}/{target.name}"
                for namespace in namespaces
                async for part in reader.listed(
                    f"{_SLICES}/namespaces/{namespace}/endpointslices", forms.EndpointSlice
                )
                for endpoint in part.endpoints or ()
                if (target := endpoint.target_ref) and endpoint.conditions.ready is not False
            ]
        )

    return await reader.part("endpoints", "list endpointslices", read)


async def _secured(
    reader: reading.Reader, places: Iterable[cluster_facts.Installation]
) -> _Secured:
    configured = await guard_facts.configured(reader)
    if not certificate_facts.available():
        reader.leave_out(
            "certificates",
            "the Python package cryptography is not installed",
            "install it as admission has it: pip install 'partage[admission]'",
        )
        return _Secured(guard_facts.judged(configured, b""), ())
    shown = secret_facts.Certificates(reader, guard_facts.urls(configured or {}))
    await shown.read_all(places)
    believed = [
        certificate_facts.read("caBundle of the webhooks", pem)
        for pem in sorted(guard_facts.bundles(configured or {}))
    ]
    webhooks = guard_facts.judged(configured, shown.admissions)
    return _Secured(webhooks, (*shown.read, *believed))


def _installed(claims: Iterable[cluster_facts.Definition] | None) -> bool:
    return any(d.installed and d.name.startswith("gpus.") for d in claims or ())
