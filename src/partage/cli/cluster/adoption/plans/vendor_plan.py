"""The plan for HAMi and for NVIDIA's plugin: nodes move, one by one, to a Partage that is there.

Each node is served by one plugin and decided about by one scheduler at any moment: the old ones
until it has moved, Partage's afterwards. Both would offer ``nvidia.com/gpu``, so until the last
node has moved Partage's agents leave that name to the others. A label takes the old plugin off a
node before the same label with another value brings the agent.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Sequence

import partage
from partage.cli.cluster.adoption import adoptions, objects, situation, systems
from partage.cli.cluster.adoption.plans import gpushare_plan, places, plan
from partage.cli.cluster.checks import program_checks, remedies
from partage.cli.cluster.facts import cluster_facts
from partage.dialects import registry
from partage.local.doctor import findings

Object = objects.Object
_Steps = tuple[adoptions.Step | adoptions.NodeStep, ...]

_OPERATOR = "nvidia.com/gpu.deploy.device-plugin"  # a label of nodes; the GPU Operator obeys it
_SHARED = "nvidia.com/gpu"
_SHARED_DIALECTS = {d.name: d for d in registry.DIALECTS if _SHARED in d.resources}  # they offer it
_OWN_DIALECTS = [name for name in registry.served_by_default() if name not in _SHARED_DIALECTS]
_USUAL = cluster_facts.Installation("partage-system", "partage", "partage")
_INSTALL = (
    f"helm install partage {remedies.CHART} --namespace partage-system --create-namespace "
    "--set image.repository=REGISTRY/partage"
)


def written(_seen: situation.Situation) -> Sequence[Object]:
    """Nothing beside the system's own objects."""
    return ()


def made(seen: situation.Situation) -> plan.Plan:
    """The plan."""
    plugin = _plugin(seen)
    operated = _OPERATOR in objects.selector(plugin)
    labels = (adoptions.AGENT, *([_OPERATOR] if operated else []))
    moved = places.places(seen, labels)
    away = {adoptions.AGENT: adoptions.NEITHER, **({_OPERATOR: "false"} if operated else {})}
    steps: _Steps = (
        *(() if operated else (_keep_away(plugin),)),
        *(adoptions.NodeStep(place=place, labels=away) for place in moved),
        *_no_deciders(seen),
    )
    first = (*_first(seen), *places.unserved(seen))
    agent = seen.agents[0]["metadata"] if seen.agents else {"namespace": "", "name": ""}
    space = plugin["metadata"]["namespace"]
    adoption = adoptions.Adoption(
        system=seen.system.name,
        made_by=partage.__version__,
        plugin=adoptions.Workload(space, plugin["metadata"]["name"]),
        agent=adoptions.Workload(agent["namespace"], agent["name"]),
        steps=steps,
    )
    return plan.Plan(
        adoption=adoption,
        runs=tuple(map(objects.label, (*seen.deciders, *seen.plugins, *seen.webhooks))),
        kept=("names of resources and annotations in people's manifests",),
        changed=plan.changed(steps),
        left_alone=(*seen.beside, "every pod that runs"),
        tenants=plan.tenants(seen, moved),
        left=tuple(places.left(seen, moved)),
        first=first,
        notes=tuple(_notes(seen)),
        afterwards=_afterwards(seen),
    )


def _plugin(seen: situation.Situation) -> Object:
    if len(seen.plugins) == 1:
        return seen.plugins[0]
    title, labels = seen.system.title, ", ".join(map(objects.label, seen.plugins))
    raise gpushare_plan.CannotPlan(
        f"one DaemonSet of {title} can be taken over, and there are {len(seen.plugins)}"
        + (f": {labels}" if labels else ""),
        instead="'kubectl get daemonsets -A' shows what runs; docs/install.md tells how to move "
        "nodes by hand",
    )


def _keep_away(plugin: Object) -> adoptions.Step:
    """Its own updates are by hand meanwhile: a new template would restart it on every node."""
    changed = copy.deepcopy(plugin)
    changed["spec"]["updateStrategy"] = {"type": "OnDelete"}
    spec = objects.pod_spec(changed)
    node = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = node.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {})
    terms = required.get("nodeSelectorTerms") or [{}]
    apart = {
        "key": adoptions.AGENT,
        "operator": "NotIn",
        "values": [adoptions.NEITHER, adoptions.ENABLED],
    }
    required["nodeSelectorTerms"] = [
        term | {"matchExpressions": [*(term.get("matchExpressions") or ()), apart]}
        for term in terms
    ]
    label = objects.label(plugin)
    return adoptions.Step(
        name="device-plugin",
        does=f"{label} leaves nodes with the label {adoptions.AGENT}; no pod of it is restarted",
        check="the API server has it",
        undone="it is as it was",
        forward=(adoptions.Put(changed),),
        backward=(adoptions.Put(plugin),),
    )


def _no_deciders(seen: situation.Situation) -> Iterator[adoptions.Step]:
    """When no node is the system's any more; first nothing new is sent to its scheduler."""
    for webhook in seen.webhooks:
        label = objects.label(webhook)
        yield adoptions.Step(
            name="webhook",
            does=f"{label} is taken away: pods keep the scheduler that they name, or Partage's",
            check="it is gone",
            undone="it is there again",
            forward=(adoptions.Remove(objects.path(webhook), label),),
            backward=(adoptions.Put(webhook),),
            last=True,
        )
    for decider in seen.deciders:
        stopped = copy.deepcopy(decider)
        stopped["spec"]["replicas"] = 0
        yield adoptions.Step(
            name="scheduler",
            does=f"{objects.label(decider)} has no replicas any more",
            check="none runs",
            undone="it has its replicas again, and they are ready",
            forward=(adoptions.Put(stopped),),
            backward=(adoptions.Put(decider),),
            rollouts=(objects.path(decider),),
            last=True,
        )


def _first(seen: situation.Situation) -> Iterator[str]:
    """What is missing of Partage, in the order in which it is put right."""
    if not seen.agents:
        yield f"Partage is not installed: {_INSTALL} {values_meanwhile()}"
        return
    if len(seen.agents) > 1:
        labels = ", ".join(map(objects.label, seen.agents))
        yield f"there are {len(seen.agents)} DaemonSets of Partage's agent ({labels}); leave one"
    (agent, *_) = seen.agents
    chosen = dict(objects.selector(agent))
    if chosen != {adoptions.AGENT: adoptions.ENABLED}:
        yield (
            f"{objects.label(agent)} chooses nodes by {chosen}, and not by the label "
            f"{adoptions.AGENT}={adoptions.ENABLED} alone; nodes cannot be moved by it"
        )
    spoken = _dialects(agent)
    upgrade = f"{_upgrade(seen)} {values_meanwhile()}"
    if spoken is None or spoken & _SHARED_DIALECTS.keys():
        yield (
            f"its agents would offer {_SHARED} while {seen.system.title} does so on other nodes: "
            f"{upgrade}"
        )
    managing = [
        made.label
        for made in (seen.facts.scheduler if seen.facts else ())
        if any(managed.name == _SHARED for managed in made.managed)
    ]
    if managing:
        yield f"{managing[0]} lets Partage decide about {_SHARED} on all nodes: {upgrade}"
    yield from _not_well(seen)


def _not_well(seen: situation.Situation) -> Iterator[str]:
    """What the doctor says of the program that decides."""
    if seen.facts is None:
        return
    for finding in program_checks.extender(seen.facts):
        if finding.status is findings.Status.PROBLEM:
            yield f"{finding.object}: {finding.text}; {finding.remedy}"


def _dialects(agent: Object) -> set[str] | None:
    """What the agents serve; None if no flag says it."""
    for container in objects.pod_spec(agent).get("containers", ()):
        words = [*(container.get("command") or ()), *(container.get("args") or ())]
        for word, after in zip(words, [*words[1:], ""], strict=True):
            name, _, value = word.partition("=")
            if name == "--dialects":
                return set((value or after).split(","))
    return None


def _notes(seen: situation.Situation) -> Iterator[str]:
    if not seen.system.remembers:
        yield (
            "nothing on its pods says which cards they have; each node's agent reads that from "
            "the kubelet's record, and a node of which it does not tell stays closed to new pods"
        )
    if seen.system.limited:
        yield "its pods keep the limits that it gave them, and have none of Partage's"
    if not any(made.managed for made in (seen.facts.scheduler if seen.facts else ())):
        yield (
            "kube-scheduler's configuration is not in the cluster, so it was not looked at: "
            f"{_SHARED} must not be among its managedResources yet ('partage scheduler-config')"
        )


def _afterwards(seen: situation.Situation) -> tuple[str, ...]:
    system = seen.system
    return (
        f"let Partage serve {_SHARED}: {_upgrade(seen)} {values_afterwards(system)}",
        f"new pods get a fence; those that {system.title} started get one when they are made anew",
    )


def values_meanwhile() -> str:
    """Helm's options with which Partage leaves the resource to the others."""
    spoken = _SHARED_DIALECTS.values()
    shared = dict.fromkeys(name for dialect in spoken for name in dialect.resources)
    return f"{_dialects_value(_OWN_DIALECTS)} {_unmanaged_value(shared)}"


def values_afterwards(system: systems.System) -> str:
    """Those with which it serves what the system did, in the dialect of the same name."""
    values = f"{_dialects_value([*_OWN_DIALECTS, system.name])} {_unmanaged_value([])}"
    if system.name == systems.HAMI:
        values += " --set 'scheduler.otherNames={t9k-scheduler,hami-scheduler}'"
    return values


def _upgrade(seen: situation.Situation) -> str:
    return remedies.upgrade((seen.facts.release if seen.facts else None) or _USUAL)


def _dialects_value(names: Iterable[str]) -> str:
    return f"--set 'agent.dialects={{{','.join(names)}}}'"


def _unmanaged_value(names: Iterable[str]) -> str:
    """In JSON, as Helm takes ``{}`` for a list of one empty word."""
    return f"--set-json 'scheduler.unmanagedResources={json.dumps([*names])}'"
