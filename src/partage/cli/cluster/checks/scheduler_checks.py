"""Checks of kube-scheduler by what it does, and by a configuration where one can be read.

Its own files are on its machine, and nobody tells what is in them. But what it does shows: a pod
that asks for cards and is bound without a record was bound by somebody who did not ask the
extender.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

from partage.cli.cluster.checks import groups
from partage.cli.cluster.facts import cluster_facts, node_facts
from partage.dialects import registry
from partage.local.doctor import findings

_PATIENCE = dt.timedelta(seconds=30)  # in which a scheduler looks at a new pod
_CONFIGURATION = "deploy/scheduler-config.yaml"


def bound_past(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Pods with cards that nobody granted."""
    if facts.pods is None:
        return
    if facts.pods.unrecorded:
        yield groups.problem(
            "pod",
            facts.pods.unrecorded,
            "it asks for cards and is bound, and no record says which it has: the extender was "
            "not asked, and it counts on every card of its node",
            f"check that kube-scheduler runs with {_CONFIGURATION} and names the resource in "
            "managedResources; delete the pod so that it is placed again",
        )
    else:
        pods = groups.counted(facts.pods.recorded, "pod")
        yield findings.ok("bindings", f"{pods} with cards, each with a record of them")


def unserved(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Pods at which no scheduler looks."""
    waiting: dict[str, list[str]] = {}
    for pod in facts.pods.waiting if facts.pods else ():
        looked = facts.pods.looked.get(pod.scheduler) if facts.pods else None
        if facts.now - pod.created > _PATIENCE and (looked is None or looked < pod.created):
            waiting.setdefault(pod.scheduler, []).append(pod.pod)
    for scheduler, pods in sorted(waiting.items()):
        yield groups.problem(
            "pod",
            pods,
            f"it is pending, and no scheduler has looked at it: nobody serves {scheduler!r}",
            f"write another schedulerName, add a profile {scheduler!r} to kube-scheduler's "
            "configuration, or check that kube-scheduler runs",
        )


def advertised(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Pods that wait for a resource that no node has."""
    if facts.pods is None or facts.nodes is None:
        return
    offered = _offered(facts.nodes)
    for resource in sorted(facts.pods.asking.keys() & node_facts.offerable() - offered):
        yield groups.note(
            "pod",
            facts.pods.asking[resource],
            f"it waits for {resource}, which no node offers",
            "let agents serve it (--dialects), or ask for another resource",
        )


def configuration(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """The ConfigMap that a chart gives to kube-scheduler."""
    for read in facts.scheduler:
        if read.problem:
            yield findings.problem(read.label, read.problem, f"compare it with {_CONFIGURATION}")
        elif not read.has_extender:
            yield findings.problem(
                read.label,
                "it names no extender: pods are placed without asking for cards",
                f"add `extenders` as in {_CONFIGURATION}",
            )
        else:
            yield from _managed(read, facts.nodes)


def _managed(
    read: cluster_facts.SchedulerConfiguration, nodes: cluster_facts.Nodes | None
) -> Iterator[findings.Finding]:
    if read.ignorable:
        yield findings.problem(
            read.label,
            "the extender is `ignorable`: while it is down pods are bound past it",
            "write `ignorable: false`",
        )
    if nodes is None:
        return
    offered = _offered(nodes)
    unmanaged = _decided(nodes) - {resource.name for resource in read.managed}
    lacking = {resource.name for resource in read.managed if not resource.ignored} - offered
    if unmanaged:
        yield groups.problem(
            "resource",
            unmanaged,
            f"nodes offer it, and managedResources of {read.label} does not name it: pods that "
            "ask for it are placed without the extender",
            "add it there, or let no agent serve it (--dialects)",
        )
    elif not read.ignorable:
        managed = groups.counted(len(read.managed), "resource")
        yield findings.ok(read.label, f"{managed} managed, all that nodes offer among them")
    if lacking and offered:
        yield groups.note(
            "resource",
            lacking,
            f"{read.label} lets kube-scheduler count it, and no node offers it: pods that name it "
            "stay pending",
            "nothing to do while nobody asks for it; else `ignoredByScheduler: true`",
        )


def _decided(nodes: cluster_facts.Nodes) -> frozenset[str]:
    """What nodes offer and the extender decides about; a vendor's plugin decides by itself."""
    vendors = registry.names().vendor_resources
    return frozenset().union(
        *(node.offered if node.published else node.offered - vendors for node in nodes.cards)
    )


def _offered(nodes: cluster_facts.Nodes) -> frozenset[str]:
    return frozenset().union(*(node.offered for node in nodes.cards))
