"""Spread groups: pods of one owner that ask to be on different cards, in every dialect.

The owner is what made the pod and would make another: a Job, a StatefulSet, a ReplicaSet (which is
what a Deployment makes its pods by). A pod that nobody made may be in a group by a label, which is
a family's own name. Groups are of one namespace: owners and labels are words of tenants, and must
not keep the pods of others away from cards.
"""

from __future__ import annotations

from collections.abc import Iterable

from partage.dialects import pods, rules

SPREAD = "partage.dev/spread"
OWNER = "owner"
LONGEST = 512  # characters of a group: a namespace, and a uid or a label


def of(pod: pods.Pod, group_labels: Iterable[str]) -> str:
    """The group that a pod's cards are not shared with; empty if the pod does not ask for that.

    Raises DemandError for a pod that has no group. One that is bound may have lost its owner since
    (``kubectl delete --cascade=orphan``); which group it had is in its record.
    """
    if not rules.annotation_choice(pod, SPREAD, (OWNER,)):
        return ""
    name = _name(pod, group_labels)
    if name:
        return f"{pod.metadata.namespace}/{name}"[:LONGEST]
    if pod.spec.node_name:
        return ""
    instead = "let a Job, a StatefulSet or a Deployment make the pod, or give it the label "
    raise rules.annotation_error(
        SPREAD, "the pod has no owner and no group", instead=instead + " or ".join(group_labels)
    )


def sound(group: str, pod: pods.Pod) -> bool:
    """Whether a recorded group can be the pod's: it is of the same namespace."""
    return len(group) <= LONGEST and group.startswith(f"{pod.metadata.namespace}/")


def facts(pod: pods.Pod) -> tuple[object, ...]:
    """All that :func:`of` looks at, but for annotations and labels."""
    if SPREAD not in pod.metadata.annotations:
        return ()
    return pod.metadata.namespace, bool(pod.spec.node_name), _owner(pod)


def _owner(pod: pods.Pod) -> str:
    controller = pods.controller(pod)
    return "" if controller is None else controller.uid


def _name(pod: pods.Pod, group_labels: Iterable[str]) -> str:
    owner = _owner(pod)
    if owner:
        return f"owner/{owner}"
    labels = pod.metadata.labels
    return next((f"group/{labels[label]}" for label in group_labels if labels.get(label)), "")
