"""Additions: what is added to a pod, because its user means it and need not write it.

- What a resource implies (``nvidia.com/gpu: 1`` beside HAMi's memory): the kubelet gives devices by
  the resources that are written. The dialects know what is implied, by resources and by annotations
  (``partage.dev/claim: 1`` in a container for which an annotation names a claim).
- Limits for resources that stand in requests only. Kubernetes refuses such pods, and does the
  opposite by itself: requests that are left out are made from limits.
- Tolerations for the taints that nodes have for pods without a family's resources.
- That no other pod may be on its node, for a pod that asks for a whole one. kube-scheduler applies
  a required anti-affinity in both directions: to the pod, and to all that come after it.
- A runtime class, where the administrator chose one for pods with cards.
- The name of the only container in an annotation for its claim that names none.
- The name of the scheduler that asks Partage, where the administrator has one beside the default
  scheduler. The API server names the default one for those who name none, so nobody can tell
  whether a user wrote it; another name stays.

Nothing else that the user wrote is changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from partage.admission import submitted
from partage.core import errors
from partage.dialects import contract, nodes, pod_claims, pods, registry

_ANTI_AFFINITY = "/spec/affinity/podAntiAffinity"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# All pods but those that a node needs to work, which would be kept away, too: those of DaemonSets,
# to which Kubernetes gives a label that no other pod has, and those of kube-system.
ALONE: submitted.AffinityTerm = {
    "topologyKey": "kubernetes.io/hostname",
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
        ]
    },
    "labelSelector": {
        "matchExpressions": [{"key": "pod-template-generation", "operator": "DoesNotExist"}]
    },
}

Operation = dict[str, Any]  # of JSON Patch (RFC 6902)


class Additions(msgspec.Struct, frozen=True):
    """What is added to one pod."""

    limits: Mapping[str, Mapping[str, pods.Amount]] = {}  # by the path of their container
    respelled: Mapping[str, str] = {}  # annotations, by those that Kubernetes does not take
    tolerations: tuple[submitted.Toleration, ...] = ()
    alone: bool = False  # that no other pod may be on its node
    runtime_class: str = ""
    scheduler_name: str = ""

    def __bool__(self) -> bool:
        return bool(
            self.limits
            or self.respelled
            or self.tolerations
            or self.alone
            or self.runtime_class
            or self.scheduler_name
        )


def of(
    pod: submitted.Pod,
    settings: contract.Settings,
    *,
    runtime_class: str = "",
    scheduler_name: str = "",
) -> Additions:
    """What is added to a pod that asks for cards."""
    implied = registry.implied_in(pod)
    additions = Additions(
        limits={
            spot.path: added
            for spot in pods.spots(pod)
            if (added := _limits(spot.container, implied.get(spot.container.name, {})))
        },
        respelled=pod_claims.respelled(pod),
        tolerations=tuple(
            _toleration(taint)
            for taint in registry.tolerated(pod)
            if not any(_tolerates(toleration, taint) for toleration in pod.spec.tolerations)
        ),
        runtime_class="" if pod.spec.runtime_class_name else runtime_class,
        scheduler_name=scheduler_name if _names_no_scheduler(pod) else "",
    )
    alone = ALONE not in _apart_from(pod) and _takes_node(applied(pod, additions), settings)
    return msgspec.structs.replace(additions, alone=alone)


def applied(pod: submitted.Pod, additions: Additions) -> submitted.Pod:
    """The pod as it will be; for what is reviewed and not changed, such as a template."""
    replace = msgspec.structs.replace
    changed = {
        id(spot.container): replace(
            spot.container,
            resources=replace(
                spot.container.resources,
                limits={**spot.container.resources.limits, **additions.limits[spot.path]},
            ),
        )
        for spot in pods.spots(pod)
        if spot.path in additions.limits
    }
    spec = pod.spec
    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(changed.get(id(c), c) for c in spec.containers),
            init_containers=tuple(changed.get(id(c), c) for c in spec.init_containers),
            tolerations=(*spec.tolerations, *additions.tolerations),
            runtime_class_name=spec.runtime_class_name or additions.runtime_class,
            scheduler_name=additions.scheduler_name or spec.scheduler_name,
        ),
    )


def patch(pod: submitted.Pod, additions: Additions) -> list[Operation]:
    """The same for the API server."""
    operations = [
        operation
        for spot in pods.spots(pod)
        if spot.path in additions.limits
        for operation in _patched_limits(spot, additions.limits[spot.path])
    ]
    for wrong, name in additions.respelled.items():
        operations.append(_add(_annotation(name), pod.metadata.annotations[wrong]))
        operations.append({"op": "remove", "path": _annotation(wrong)})
    if additions.tolerations and not pod.spec.tolerations:
        operations.append(_add("/spec/tolerations", additions.tolerations))
    else:
        operations += [_add("/spec/tolerations/-", t) for t in additions.tolerations]
    if additions.alone:
        operations.append(_patched_affinity(pod.spec.affinity))
    if additions.runtime_class:
        operations.append(_add("/spec/runtimeClassName", additions.runtime_class))
    if additions.scheduler_name:
        operations.append(_add("/spec/schedulerName", additions.scheduler_name))
    return operations


def pointer(key: str) -> str:
    """A key as a part of a JSON Pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def _names_no_scheduler(pod: submitted.Pod) -> bool:
    return pod.spec.scheduler_name in ("", pods.DEFAULT_SCHEDULER)


def _limits(container: pods.Container, implied: Mapping[str, int]) -> dict[str, pods.Amount]:
    """The limits that a container lacks; ``implied`` is what the pod says elsewhere."""
    limits, requests = container.resources.limits, container.resources.requests
    resources = registry.names().resources
    requested = {r: n for r, n in requests.items() if r in resources and r not in limits}
    named = limits.keys() | requested.keys()
    unnamed = {resource: amount for resource, amount in implied.items() if resource not in named}
    return {**requested, **registry.implied(named), **unnamed}


def _patched_limits(spot: pods.Spot, added: Mapping[str, pods.Amount]) -> Iterator[Operation]:
    path = f"/{spot.path.replace('.', '/').replace('[', '/').replace(']', '')}/resources"
    amounts = {name: str(amount) for name, amount in added.items()}
    if not spot.container.resources.limits:
        yield _add(f"{path}/limits", amounts)
        return
    for name, amount in amounts.items():
        yield _add(f"{path}/limits/{pointer(name)}", amount)


def _takes_node(pod: submitted.Pod, settings: contract.Settings) -> bool:
    """Whether a pod asks for a whole node; one that is wrong is refused later, with the reason."""
    try:
        demand = registry.demand(pod, settings)
    except errors.DemandError:
        return False
    return demand is not None and demand.exclusive_node


def _apart_from(pod: submitted.Pod) -> tuple[submitted.AffinityTerm, ...]:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return ()
    return affinity.pod_anti_affinity.required


def _patched_affinity(present: submitted.Affinity | None) -> Operation:
    """The term beside those that are there; what it stands in is made where it is missing."""
    if present is None:
        return _add("/spec/affinity", {"podAntiAffinity": {_REQUIRED: [ALONE]}})
    if present.pod_anti_affinity is None:
        return _add(_ANTI_AFFINITY, {_REQUIRED: [ALONE]})
    if not present.pod_anti_affinity.required:
        return _add(f"{_ANTI_AFFINITY}/{_REQUIRED}", [ALONE])
    return _add(f"{_ANTI_AFFINITY}/{_REQUIRED}/-", ALONE)


def _annotation(name: str) -> str:
    return f"/metadata/annotations/{pointer(name)}"


def _add(path: str, value: object) -> Operation:
    return {"op": "add", "path": path, "value": value}


def _toleration(taint: nodes.Taint) -> submitted.Toleration:
    return submitted.Toleration(key=taint.key, value=taint.value, effect=taint.effect)


def _tolerates(toleration: submitted.Toleration, taint: nodes.Taint) -> bool:
    """As Kubernetes compares them."""
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    exists = toleration.operator == "Exists"
    return exists or (toleration.key == taint.key and toleration.value == taint.value)
