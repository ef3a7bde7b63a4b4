"""The facts of a cluster in which all is well; a test changes one of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import msgspec

from partage.admission import guard_state, webhooks
from partage.cli.cluster.checks import examination
from partage.cli.cluster.facts import cluster_facts, guard_facts
from partage.dialects.claims import definitions
from partage.local.doctor import findings

NOW = dt.datetime(2026, 5, 1, 12, tzinfo=dt.UTC)
SYSTEM = "kube-system"
VERSION = "0.3.1"
SERVER = "1.36.3"
RESOURCES = frozenset({"partage.dev/cards", "aliyun.com/gpu-mem"})

replace = msgspec.structs.replace
Role = cluster_facts.Role


def replica(role: Role, name: str, *, node: str = "n0", **more: Any) -> cluster_facts.Replica:
    """A pod of Partage that is ready."""
    facts: dict[str, Any] = {"ready": True, "version": VERSION, "namespace": SYSTEM}
    return cluster_facts.Replica(role=role, name=name, node=node, **{**facts, **more})


def program(role: Role, kind: str, replicas: int) -> cluster_facts.Program:
    """A workload of Partage."""
    return cluster_facts.Program(
        kind=kind,
        namespace=SYSTEM,
        name=f"partage-{role}",
        role=role,
        replicas=replicas,
        version=VERSION,
    )


def certificate(**left: float) -> cluster_facts.Certificate:
    """A certificate for so many days or hours from now."""
    begins, ends = NOW - dt.timedelta(days=30), NOW + dt.timedelta(**left)
    return cluster_facts.Certificate(label="Secret s: tls.crt", begins=begins, ends=ends)


NODE = cluster_facts.Node(
    name="g1",
    selected=True,
    discovered=True,
    published=True,
    agent_version=VERSION,
    fence="hook",
    offered=RESOURCES,
    served=True,
    indexes=frozenset({0, 1}),
)
LEASE = cluster_facts.Lease(
    namespace=SYSTEM,
    name="partage-extender",
    holder="partage-extender-a_1_cafe",
    renewed=NOW - dt.timedelta(seconds=1.6),
    written=NOW - dt.timedelta(seconds=2),
    duration_s=15,
    version=VERSION,
)
AGENT = replica(Role.AGENT, "agent-g1", node="g1")
LEADER = replica(Role.EXTENDER, "partage-extender-a")
PODS = cluster_facts.Pods(
    count=100,
    recorded=7,
    replicas=(
        LEADER,
        replica(Role.EXTENDER, "partage-extender-b", ready=False),
        replica(Role.SCHEDULER, "partage-scheduler-a", version=SERVER),
        replica(Role.SCHEDULER, "partage-scheduler-b", version=SERVER),
        replica(Role.ADMISSION, "partage-admission-a"),
        replica(Role.ADMISSION, "partage-admission-b"),
        AGENT,
    ),
)
WEBHOOKS = tuple(
    cluster_facts.Webhook(
        kind=made["kind"],
        name=hook["name"],
        strict=hook["failurePolicy"] == "Fail",
        trusts=True,
        matches=True,
    )
    for made in webhooks.configurations(webhooks.Service())
    for hook in made["webhooks"]
)
CONFIGURATION = cluster_facts.SchedulerConfiguration(
    label="ConfigMap kube-system/partage-scheduler",
    managed=tuple(cluster_facts.Managed(name, ignored=False) for name in sorted(RESOURCES)),
)
SOUND = cluster_facts.Facts(
    now=NOW,
    version=VERSION,
    server_version=f"{SERVER}-eks-1a2b3c",
    clocks=(cluster_facts.Clock("this machine", 0.3, 0.6),),
    programs=(
        program(Role.EXTENDER, "Deployment", 2),
        program(Role.SCHEDULER, "Deployment", 2),
        program(Role.ADMISSION, "Deployment", 2),
        program(Role.AGENT, "DaemonSet", 1),
    ),
    leases=(LEASE,),
    endpoints=frozenset({f"{SYSTEM}/partage-extender-a"}),
    nodes=cluster_facts.Nodes((NODE,), 3),
    pods=PODS,
    policies=tuple(
        guard_state.Part(name, guard_state.Force.DENIED) for name in guard_facts.POLICIES
    ),
    webhooks=WEBHOOKS,
    scheduler=(CONFIGURATION,),
    certificates=(certificate(days=60),),
    definitions=tuple(
        cluster_facts.Definition(made["metadata"]["name"], installed=True, same=True)
        for made in definitions.all_of_them()
    ),
    gpu_objects=cluster_facts.GpuObjects(frozenset({("g1", 0), ("g1", 1)}), NOW),
)


def with_pods(**changes: Any) -> cluster_facts.Facts:
    """The cluster with other facts of its pods."""
    return replace(SOUND, pods=replace(PODS, **changes))


def with_node(**changes: Any) -> cluster_facts.Facts:
    """The cluster whose one node with cards is another."""
    return replace(SOUND, nodes=cluster_facts.Nodes((replace(NODE, **changes),), 3))


def without_agent(**changes: Any) -> cluster_facts.Facts:
    """The same without a pod of the agent."""
    others = tuple(r for r in PODS.replicas if r.role is not Role.AGENT)
    return replace(with_node(**changes), pods=replace(PODS, replicas=others))


def by_helm(facts: cluster_facts.Facts) -> cluster_facts.Facts:
    """The same cluster, with a release of the chart in a namespace of its own."""
    place = cluster_facts.Installation("gpu", "sharing", "mine")
    programs = [
        replace(p, namespace="gpu", name=f"sharing-{p.role}", installation=place)
        for p in facts.programs or ()
    ]
    pods = facts.pods or PODS
    replicas = tuple(replace(r, namespace="gpu") for r in pods.replicas)
    lease = replace(LEASE, namespace="gpu", name="sharing-extender")
    return replace(
        facts,
        programs=tuple(programs),
        pods=replace(pods, replicas=replicas),
        leases=(lease,),
        endpoints=frozenset({"gpu/partage-extender-a"}),
    )


def told(facts: cluster_facts.Facts) -> list[findings.Finding]:
    """What is said of a cluster besides that parts of it are well."""
    results = examination.examine(facts)
    return [finding for finding in results if finding.status is not findings.Status.OK]


def only(facts: cluster_facts.Facts) -> findings.Finding:
    """The one finding that is not good news; it says what to do."""
    (finding,) = told(facts)
    assert finding.remedy
    return finding
