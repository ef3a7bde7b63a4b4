"""Pods that another system placed are read from its own annotations, and ours from our record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from partage.core import cards, demands, grants
from partage.dialects import bound_pods, contract, grant_record, pods
from tests.dialects import dialect_pods

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
POD = "ALIYUN_COM_GPU_MEM_POD"
ALLOCATION = "scheduler.framework.gpushare.allocation"


def _granted(
    pod: pods.Pod, node: cards.Node, settings: contract.Settings = dialect_pods.SETTINGS
) -> grants.Grant:
    grant = bound_pods.granted(pod, node, settings)
    assert isinstance(grant, grants.Grant), grant
    return grant


def _shares(grant: grants.Grant) -> dict[str, list[tuple[int, int, int]]]:
    """Per container (index, memory, compute) of its shares."""
    return {
        c.name: [(s.index, s.memory_mib, s.compute_percent) for s in c.shares]
        for c in grant.containers
    }


PODS: dict[str, tuple[pods.Pod, tuple[int, ...]]] = {
    "gpushare": (dialect_pods.single({"aliyun.com/gpu-mem": 3}), (1,)),
    "gpushare, two containers and an init container": (
        dialect_pods.pod(
            dialect_pods.container("a", {"aliyun.com/gpu-mem": 3}),
            dialect_pods.container("b", {"aliyun.com/gpu-mem": 2}),
            init=(dialect_pods.container("fetch", {"aliyun.com/gpu-mem": 9}),),
        ),
        (1,),
    ),
    "gpushare on two cards": (
        dialect_pods.pod(
            dialect_pods.container("a", {"aliyun.com/gpu-mem": 8}),
            dialect_pods.container("b", {"aliyun.com/gpu-mem": 2}),
            init=(dialect_pods.container("fetch", {"aliyun.com/gpu-mem": 4}),),
            labels={"aliyun.com/gpu-count": "2"},
        ),
        (0, 2),
    ),
    "cgpu": (
        dialect_pods.single({"aliyun.com/gpu-mem": 3, "aliyun.com/gpu-core.percentage": 30}),
        (0,),
    ),
    "gaia share": (
        dialect_pods.single({"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}),
        (2,),
    ),
    "gaia cards": (dialect_pods.single({"tencent.com/vcuda-core": 200}), (0, 2)),
    "elastic": (dialect_pods.single({"elasticgpu.io/gpu-core": 200}), (1, 2)),
    "hami share": (
        dialect_pods.pod(
            dialect_pods.container("logs"),
            dialect_pods.container("a", {"nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
            init=(dialect_pods.container("wait"),),
        ),
        (1,),
    ),
    "hami cards": (
        dialect_pods.single(
            {"nvidia.com/gpu": 2, "nvidia.com/gpucores": 100, "nvidia.com/priority": 0}
        ),
        (0, 2),
    ),
}


@pytest.mark.parametrize(("pod", "indexes"), PODS.values(), ids=PODS)
def test_what_a_family_writes_is_read_back(pod: pods.Pod, indexes: tuple[int, ...]) -> None:
    """The family's own annotations alone give the same grant that they were written for."""
    node = dialect_pods.node(16384, 16384, 16384)
    grant = dialect_pods.grant(pod, node, *indexes)
    annotations = dict(dialect_pods.marks(grant, pod, node).annotations)
    del annotations[grant_record.GRANT]
    assert _granted(dialect_pods.bound(pod, annotations), node) == grant


@pytest.mark.parametrize(("pod", "indexes"), PODS.values(), ids=PODS)
def test_our_record_is_read_back(pod: pods.Pod, indexes: tuple[int, ...]) -> None:
    """Our own record gives the whole grant, with the policy that chose."""
    node = dialect_pods.node(16384, 16384, 16384)
    grant = msgspec.structs.replace(dialect_pods.grant(pod, node, *indexes), policy="spread")
    marks = dialect_pods.marks(grant, pod, node)
    assert _granted(dialect_pods.bound(pod, marks.annotations), node) == grant


def test_our_record_goes_before_the_familys() -> None:
    """Where both are there, the record that says more is believed."""
    node = dialect_pods.node(16384, 16384)
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 3})
    marks = dialect_pods.marks(dialect_pods.grant(pod, node, 0), pod, node)
    both = dialect_pods.bound(pod, {**marks.annotations, INDEX: "1"})
    assert _shares(_granted(both, node)) == {"main": [(0, 3072, 0)]}


def test_our_record_outlives_a_card_that_shrank_but_not_one_that_is_not_there() -> None:
    """A record that names no card of the node would take its room from nobody."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 3})
    grant = dialect_pods.grant(pod, dialect_pods.node(16384, 16384), 1)
    marks = dialect_pods.marks(grant, pod, dialect_pods.node(16384, 16384))
    bound = dialect_pods.bound(pod, marks.annotations)
    assert _granted(bound, dialect_pods.node(1024, 1024)) == grant
    assert _granted(bound, dialect_pods.node()) == grant  # nobody knows its cards just now
    lost = bound_pods.granted(bound, dialect_pods.node(16384), dialect_pods.SETTINGS)
    assert isinstance(lost, grants.Damage)
    assert "has no card" in lost.problem


def test_our_record_may_grow_fields() -> None:
    """A field that a later Partage adds is passed over."""
    pod, node = dialect_pods.single({"aliyun.com/gpu-mem": 3}), dialect_pods.node(16384)
    grant = dialect_pods.grant(pod, node, 0)
    text = grant_record.encode(grant).removesuffix("}") + ',"fence":{"asked":"hook"}}'
    assert _granted(dialect_pods.bound(pod, {grant_record.GRANT: text}), node) == grant


def test_a_record_on_a_pod_that_asks_for_nothing_holds_nothing() -> None:
    """Else anybody could keep cards from others by an annotation."""
    node = dialect_pods.node(16384)
    grant = dialect_pods.grant(dialect_pods.single({"partage.dev/cards": 1}), node, 0)
    plain = dialect_pods.bound(
        dialect_pods.single({}), {grant_record.GRANT: grant_record.encode(grant)}
    )
    assert bound_pods.granted(plain, node, dialect_pods.SETTINGS) is None


@pytest.mark.parametrize(
    "change",
    [
        {"containers": ()},
        {"exclusive_node": True},
        {"qos": demands.Qos.OFFLINE},
        {"tag": "other"},
        {"memory_mib": 1},
        {"memory_mib": 1 << 32},
        {"compute_percent": 5},
        {"exclusive": True},
        {"twice": True},
    ],
    ids=str,
)
def test_a_record_that_is_not_what_the_pod_asks_for_is_damage(change: dict[str, Any]) -> None:
    """Tenants may edit their pods; that makes their shares neither smaller nor larger."""
    node = dialect_pods.node(16384, 16384)
    pod = dialect_pods.single(
        {"partage.dev/cards": 1, "partage.dev/memory-mib": 4096, "partage.dev/compute-percent": 30}
    )
    grant = dialect_pods.grant(pod, node, 0)
    edited = _edited(grant, **change)
    bound = dialect_pods.bound(pod, {grant_record.GRANT: grant_record.encode(edited)})
    assert isinstance(bound_pods.granted(bound, node, dialect_pods.SETTINGS), grants.Damage)


def _edited(grant: grants.Grant, *, twice: bool = False, **change: Any) -> grants.Grant:
    (container,) = grant.containers
    (share,) = container.shares
    if change.keys() <= {"containers", "exclusive_node", "qos", "tag"} and change:
        return msgspec.structs.replace(grant, **change)
    shares: tuple[grants.Share, ...] = (msgspec.structs.replace(share, **change),)
    if twice:
        shares += (msgspec.structs.replace(share, uuid="GPU-1", index=1),)
    return msgspec.structs.replace(
        grant, containers=(msgspec.structs.replace(container, shares=shares),)
    )


def test_a_percentage_of_a_card_that_shrank_since_is_no_damage() -> None:
    """The grant was right when it was made; one that is too small for its card was not."""
    pod = dialect_pods.single({"partage.dev/cards": 1, "partage.dev/memory-percent": 50})
    grant = dialect_pods.grant(pod, dialect_pods.node(16384), 0)
    bound = dialect_pods.bound(pod, {grant_record.GRANT: grant_record.encode(grant)})
    smaller = bound_pods.granted(bound, dialect_pods.node(8192), dialect_pods.SETTINGS)
    larger = bound_pods.granted(bound, dialect_pods.node(32768), dialect_pods.SETTINGS)
    assert smaller == grant
    assert isinstance(larger, grants.Damage)


def test_a_pod_that_gpushare_assigned() -> None:
    """The annotations of a published pod: five and five of a card of fourteen."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"aliyun.com/gpu-mem": 5}),
        dialect_pods.container("b", {"aliyun.com/gpu-mem": 5}),
        annotations={
            INDEX: "0",
            POD: "10",
            "ALIYUN_COM_GPU_MEM_DEV": "14",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1661398215346987136",
        },
        node=dialect_pods.NODE,
    )
    grant = _granted(pod, dialect_pods.node(14 * 1024 + 900))
    assert _shares(grant) == {"a": [(0, 5120, 0)], "b": [(0, 5120, 0)]}


def test_a_pod_that_has_both_of_gpushares_records() -> None:
    """Where the allocation and the index agree, either is as good as the other."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 8})
    both = dialect_pods.bound(pod, {ALLOCATION: '{"0":{"1":8}}', INDEX: "1", POD: "8"})
    assert _shares(_granted(both, dialect_pods.node(16384, 16384))) == {"main": [(1, 8192, 0)]}


def test_a_pod_that_gpushare_counted_in_mib() -> None:
    """The unit of the cluster applies to what is read as to what is asked."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 8138}, annotations={INDEX: "1", POD: "8138"})
    grant = _granted(
        dialect_pods.bound(pod, {}),
        dialect_pods.node(16276, 16276),
        contract.Settings(memory_unit_mib=1),
    )
    assert _shares(grant) == {"main": [(1, 8138, 0)]}


def test_a_pod_that_nobody_annotated_on_a_node_of_one_card() -> None:
    """gpushare's plugin gives such a pod the only card there is."""
    pod = dialect_pods.bound(dialect_pods.single({"aliyun.com/gpu-mem": 3}), {})
    assert _shares(_granted(pod, dialect_pods.node(16384))) == {"main": [(0, 3072, 0)]}


@pytest.mark.parametrize(
    "annotation", ["hami.io/vgpu-devices-allocated", "hami.io/vgpu-devices-to-allocate"]
)
def test_a_pod_that_hami_placed(annotation: str) -> None:
    """Amounts are those that HAMi recorded, even if a factor made them differ from the limits."""
    pod = dialect_pods.single(
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 10},
        annotations={annotation: "GPU-1,NVIDIA,10240,20:;", "hami.io/vgpu-node": dialect_pods.NODE},
    )
    grant = _granted(dialect_pods.bound(pod, {}), dialect_pods.node(16384, 16384))
    assert _shares(grant) == {"main": [(1, 10240, 20)]}


def test_a_pod_that_hami_placed_before_it_counted_init_containers() -> None:
    """Fewer places than containers, but as many as apps: the list is of the apps."""
    pod = dialect_pods.pod(
        dialect_pods.container("model", {"nvidia.com/gpumem": 4000, "nvidia.com/gpucores": 50}),
        init=(dialect_pods.container("proxy-init"), dialect_pods.container("proxy")),
        annotations={
            "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,4000,50:;",
            "hami.io/vgpu-node": dialect_pods.NODE,
        },
        node=dialect_pods.NODE,
    )
    assert _shares(_granted(pod, dialect_pods.node(16384))) == {"model": [(0, 4000, 50)]}


def test_a_whole_card_that_hami_gave_to_a_plain_request() -> None:
    """HAMi's record makes a pod that names only nvidia.com/gpu one of HAMi's."""
    pod = dialect_pods.single(
        {"nvidia.com/gpu": 1},
        annotations={
            "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,16384,100:;",
            "hami.io/vgpu-node": dialect_pods.NODE,
        },
    )
    grant = _granted(dialect_pods.bound(pod, {}), dialect_pods.node(16384))
    assert grant.containers[0].shares[0].exclusive
    assert grant.dialect == "hami"


def test_roles_and_qualities_survive() -> None:
    """What is taken over keeps when its containers run and how it is served."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"nvidia.com/gpumem": 10, "nvidia.com/priority": 0}),
        init=(dialect_pods.container("p", {"nvidia.com/gpumem": 10}, restart_policy="Always"),),
        annotations={
            "hami.io/vgpu-devices-allocated": "GPU-0,NVIDIA,10,0:;GPU-0,NVIDIA,10,0:;",
            "hami.io/vgpu-node": dialect_pods.NODE,
        },
        node=dialect_pods.NODE,
    )
    grant = _granted(pod, dialect_pods.node(16384))
    assert [c.role for c in grant.containers] == [demands.Role.SIDECAR, demands.Role.APP]
    assert grant.qos is demands.Qos.ONLINE


LEFTOVERS: dict[str, Mapping[str, str]] = {
    "gpushare": {INDEX: "0", POD: "3"},
    "an allocation": {ALLOCATION: '{"0":{"0":3}}'},
    "nothing": {},
}


@pytest.mark.parametrize("annotations", LEFTOVERS.values(), ids=LEFTOVERS)
def test_a_pod_that_is_not_bound_has_nothing(annotations: Mapping[str, str]) -> None:
    """Its annotations are left over from a bind that failed."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 3}, annotations=annotations)
    assert bound_pods.granted(pod, dialect_pods.node(16384, 16384), dialect_pods.SETTINGS) is None


def test_a_pod_that_asks_for_nothing_has_nothing() -> None:
    """The kubelet gives no card to a container that names none, whatever is written on the pod."""
    pod = dialect_pods.bound(dialect_pods.single({"cpu": 1}), {INDEX: "0", POD: "3"})
    assert bound_pods.granted(pod, dialect_pods.node(16384), dialect_pods.SETTINGS) is None
