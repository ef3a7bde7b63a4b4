"""Pods of every family can ask for other cards than those of their owner's other pods."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import grants
from partage.dialects import bound_pods, grant_record, pods
from tests.dialects import dialect_pods

SPREAD = "partage.dev/spread"
GROUP_LABEL = "scheduler.tensorstack.dev/group-name"
OWNER = pods.Owner(kind="StatefulSet", name="web", uid="uid-set", controller=True)
REQUESTS: dict[str, dialect_pods.Limits] = {
    "partage": {"partage.dev/cards": 1, "partage.dev/memory-mib": 100},
    "aliyun": {"aliyun.com/gpu-mem": 3},
    "qgpu": {"tke.cloud.tencent.com/qgpu-core": 20, "tke.cloud.tencent.com/qgpu-memory": 1},
    "gaia": {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 1},
    "elastic": {"elasticgpu.io/gpu-memory": 100},
    "t9k": {"tensorstack.dev/nvidia-gpu-percent": 20},
    "hami": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 100},
    "nvidia": {"nvidia.com/gpu": 1},
}
GPUSHARE = REQUESTS["aliyun"]
NODE = dialect_pods.node(16384, 16384)


def _pod(
    limits: dialect_pods.Limits = GPUSHARE,
    *owners: pods.Owner,
    spread: str = "owner",
    namespace: str = "lab",
    **labels: str,
) -> pods.Pod:
    made = dialect_pods.single(limits, annotations={SPREAD: spread}, labels=labels)
    metadata = msgspec.structs.replace(made.metadata, owner_references=owners, namespace=namespace)
    return msgspec.structs.replace(made, metadata=metadata)


def _owned(pod: pods.Pod, *owners: pods.Owner) -> pods.Pod:
    metadata = msgspec.structs.replace(pod.metadata, owner_references=owners)
    return msgspec.structs.replace(pod, metadata=metadata)


def _recorded(pod: pods.Pod) -> pods.Pod:
    """The pod after it was bound to the first card of the node."""
    group = dialect_pods.demand(pod).spread_group
    grant = msgspec.structs.replace(dialect_pods.grant(pod, NODE, 0), spread_group=group)
    return dialect_pods.bound(pod, dialect_pods.marks(grant, pod, NODE).annotations)


def _granted(pod: pods.Pod) -> grants.Grant:
    grant = bound_pods.granted(pod, NODE, dialect_pods.SETTINGS)
    assert isinstance(grant, grants.Grant), grant
    return grant


@pytest.mark.parametrize("family", REQUESTS)
def test_the_group_is_the_owner_in_its_namespace(family: str) -> None:
    """Whatever the words of the request."""
    demand = dialect_pods.demand(_pod(REQUESTS[family], OWNER))
    other = dialect_pods.demand(_pod(REQUESTS[family], OWNER, namespace="club"))

    assert demand.dialect == family
    assert demand.spread_group == "lab/owner/uid-set"
    assert other.spread_group != demand.spread_group


def test_it_is_asked_for() -> None:
    """Owners alone change nothing, and nor does the label of a group."""
    plain = _owned(dialect_pods.single(GPUSHARE, labels={GROUP_LABEL: "g"}), OWNER)

    assert dialect_pods.demand(plain).spread_group == ""


def test_a_label_is_the_group_of_pods_without_an_owner() -> None:
    """T9k's, whose pods are often made by hand. Who refers to a pod without making it is none."""
    reader = msgspec.structs.replace(OWNER, controller=False)
    by_label = dialect_pods.demand(_pod(GPUSHARE, reader, **{GROUP_LABEL: "g"}))
    by_owner = dialect_pods.demand(_pod(GPUSHARE, reader, OWNER, **{GROUP_LABEL: "g"}))

    assert by_label.spread_group == "lab/group/g"
    assert by_owner.spread_group == "lab/owner/uid-set"


@pytest.mark.parametrize("family", REQUESTS)
@pytest.mark.parametrize(
    ("spread", "problem", "instead"),
    [
        ("owner", "the pod has no owner and no group", "give it the label " + GROUP_LABEL),
        ("node", "'node' is not a valid value", "write owner"),
        ("", "'' is not a valid value", "write owner"),
    ],
    ids=["nobody", "another value", "no value"],
)
def test_what_cannot_be_is_refused(family: str, spread: str, problem: str, instead: str) -> None:
    """With the annotation, and what to write."""
    error = dialect_pods.refusal(_pod(REQUESTS[family], spread=spread))

    assert error.field == f"metadata.annotations[{SPREAD}]"
    assert error.problem == problem
    assert error.instead.endswith(instead)


@pytest.mark.parametrize("family", REQUESTS)
def test_the_record_remembers_it(family: str) -> None:
    """Also when the owner is gone, another one took the pod, or the annotation was removed."""
    bound = _recorded(_pod(REQUESTS[family], OWNER))
    without = {k: v for k, v in bound.metadata.annotations.items() if k != SPREAD}
    metadata = msgspec.structs.replace(bound.metadata, annotations=without)
    other = msgspec.structs.replace(OWNER, uid="uid-other")

    for pod in (
        bound,
        _owned(bound),
        _owned(bound, other),
        msgspec.structs.replace(bound, metadata=metadata),
    ):
        assert _granted(pod).spread_group == "lab/owner/uid-set"


def test_records_of_others_are_as_they_were() -> None:
    """A pod that does not ask for it has nothing of it in its record."""
    pod = dialect_pods.single(GPUSHARE)
    written = dialect_pods.marks(dialect_pods.grant(pod, NODE, 0), pod, NODE).annotations

    assert "group" not in written[grant_record.GRANT]
    assert _granted(dialect_pods.bound(pod, written)).spread_group == ""


def test_a_record_cannot_name_the_group_of_another_namespace() -> None:
    """Who may edit a pod may edit its record, and could keep others away from a card."""
    pod = _recorded(_pod(GPUSHARE, OWNER))
    text = pod.metadata.annotations[grant_record.GRANT].replace("lab/owner", "club/owner")

    damage = bound_pods.granted(
        dialect_pods.bound(pod, {grant_record.GRANT: text}), NODE, dialect_pods.SETTINGS
    )

    assert isinstance(damage, grants.Damage)
    assert "its group is not one of the pod's namespace" in str(damage)


def test_pods_that_another_system_placed_are_in_their_group() -> None:
    """So a pod that Partage places goes to another card."""
    record = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "3"}

    grant = _granted(dialect_pods.bound(_pod(GPUSHARE, OWNER), record))

    assert grant.spread_group == "lab/owner/uid-set"


def test_a_damaged_record_counts_on_every_card() -> None:
    """Nothing readable says which cards the pod has, so none of them is for its group."""
    pod = dialect_pods.bound(_pod(GPUSHARE, OWNER), {grant_record.GRANT: "{"})

    grant = bound_pods.worst(pod, NODE, dialect_pods.SETTINGS)

    assert grant.spread_group == "lab/owner/uid-set"
    assert grants.takings(grant).keys() == {"GPU-0", "GPU-1"}
