"""Resources that count accelerators of other vendors, and what pods have of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.dialects import nodes, other_accelerators, pods, registry
from tests.dialects import dialect_pods

AMD = "amd.com/gpu"


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        (AMD, "AMD GPU"),
        ("huawei.com/Ascend910", "Huawei NPU"),
        ("huawei.com/Ascend310P", "Huawei NPU"),
        ("gpu-vendor.example/example-gpu", "gpu-vendor.example"),
        ("google.com/tpu", "google.com"),
        ("vendor.example/vGPU", "vendor.example"),
        ("vendor.example/accelerators.shared", "vendor.example"),
        ("nvidia.com/gpu.shared", "nvidia.com"),
    ],
)
def test_names_of_accelerators_are_known(resource: str, kind: str) -> None:
    """By the vendor's name, or by a word in the last part of an unknown one."""
    assert other_accelerators.kind(resource) == kind


@pytest.mark.parametrize(
    "resource",
    [
        *("cpu", "memory", "pods", "hugepages-2Mi", "ephemeral-storage", "gpu"),
        "attachable-volumes-aws-ebs",
        *("kubernetes.io/gpu", "scheduling.k8s.io/gpu", "gpu.kubernetes.io/gpu"),
        *("vendor.example/nic", "vendor.example/gpumem", "gpu.example/nic", "rdma/hca", "x/"),
        *("partage.dev/gpu", "huawei.com/RoCE", "amd.com/nic"),
        *sorted(registry.names().resources),
        *sorted(registry.names().inert_resources),
    ],
)
def test_other_names_are_none(resource: str) -> None:
    """Kubernetes' own, those of the dialects, and what speaks of something else."""
    assert not other_accelerators.kind(resource)


@given(st.text(max_size=300))
def test_no_name_raises(resource: str) -> None:
    """Whatever a plugin calls itself."""
    assert isinstance(other_accelerators.kind(resource), str)


def test_a_node_offers_what_its_kubelet_says() -> None:
    """Also where all of it is unhealthy: then nothing is allocatable."""
    status = nodes.Status(capacity={AMD: "8", "cpu": "4"}, allocatable={AMD: "0"})
    assert other_accelerators.offered(nodes.Node(status=status)) == (AMD,)


def container(name: str, count: object, restart_policy: str = "") -> pods.Container:
    """One that asks for so many of AMD's."""
    limits = pods.Resources(limits={AMD: count, "cpu": 1})  # type: ignore[dict-item]
    return pods.Container(name, limits, restart_policy)


@pytest.mark.parametrize(
    ("init", "apps", "count"),
    [
        ((), (2, "1"), 3),
        ((5,), (2, 1), 5),
        ((), (0,), None),
        ((), ("nonsense", 1), 1),
        ((), ("1k",), 1000),
    ],
)
def test_a_pod_has_what_it_has_at_its_worst_moment(
    init: tuple[object, ...], apps: tuple[object, ...], count: int | None
) -> None:
    """As kube-scheduler counts: init containers one after another, apps together."""
    spec = pods.Spec(
        tuple(container(f"c{i}", amount) for i, amount in enumerate(apps)),
        tuple(container(f"i{i}", amount) for i, amount in enumerate(init)),
    )
    expected = {} if count is None else {AMD: count}
    assert other_accelerators.taken(pods.Pod(spec=spec)) == expected


def test_a_sidecar_runs_beside_the_apps() -> None:
    """It is an init container that stays."""
    spec = pods.Spec((container("app", 2),), (container("side", 1, "Always"),))
    assert other_accelerators.taken(pods.Pod(spec=spec)) == {AMD: 3}


def test_requests_of_dialects_are_not_theirs() -> None:
    """Partage counts those."""
    assert other_accelerators.taken(dialect_pods.single({"nvidia.com/gpu": 1})) == {}
