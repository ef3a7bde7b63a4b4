"""The environment of a container is what programs written for its family expect."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import cards, grants
from partage.dialects import contract, pods, registry
from tests.dialects import dialect_pods


def _environment(
    pod: pods.Pod, node: cards.Node, *indexes: int, container: int = 0
) -> dict[str, str]:
    grant = dialect_pods.grant(pod, node, *indexes)
    return registry.environment(grant, grant.containers[container], node, dialect_pods.SETTINGS)


def test_gpushare_tells_amounts_of_card_pod_and_container() -> None:
    """The container's and the pod's amount differ where several containers share the card."""
    pod = dialect_pods.pod(
        dialect_pods.container("a", {"aliyun.com/gpu-mem": 3}),
        dialect_pods.container("b", {"aliyun.com/gpu-mem": 2}),
    )
    assert _environment(pod, dialect_pods.node(16276, 16276), 1) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-1",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_DEV": "15",
        "ALIYUN_COM_GPU_MEM_POD": "5",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "3",
    }


def test_gpushare_tells_the_right_part_of_several_cards() -> None:
    """Programs divide the container's amount by the card's, so both are of all the cards."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 8}, labels={"aliyun.com/gpu-count": "2"})
    seen = _environment(pod, dialect_pods.node(16276, 16276), 0, 1)
    assert seen["NVIDIA_VISIBLE_DEVICES"] == "GPU-0,GPU-1"
    assert seen["ALIYUN_COM_GPU_MEM_IDX"] == "0,1"
    assert (seen["ALIYUN_COM_GPU_MEM_CONTAINER"], seen["ALIYUN_COM_GPU_MEM_DEV"]) == ("8", "30")


def test_gpushare_passes_on_that_isolation_is_off() -> None:
    """A node's label switches cGPU off for its containers."""
    node = dialect_pods.node(16384, labels={"cgpu.disable.isolation": "true"})
    assert (
        _environment(dialect_pods.single({"aliyun.com/gpu-mem": 3}), node, 0)["CGPU_DISABLE"]
        == "true"
    )


def test_t9k_tells_percent_and_mib() -> None:
    """Thirty percent of 16384 MiB are 4915, rounded down."""
    pod = dialect_pods.single({"tensorstack.dev/nvidia-gpu-percent": 30})
    assert _environment(pod, dialect_pods.node(16384), 0) == {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0",
        "T9K_GPU_PERCENT": "30",
        "T9K_GPU_MEMORY": "4915",
    }


@given(percent=st.integers(1, 100), memory_mib=st.integers(100, 300_000))
def test_t9k_tells_the_percent_that_was_asked_for(percent: int, memory_mib: int) -> None:
    """Rounding to MiB and back never changes the percentage."""
    pod = dialect_pods.single({"tensorstack.dev/nvidia-gpu-percent": percent})
    seen = _environment(pod, dialect_pods.node(memory_mib), 0)
    assert seen["T9K_GPU_PERCENT"] == str(percent)


def test_t9k_shows_whole_cards_and_whole_nodes() -> None:
    """Whole cards are listed; a whole node is all."""
    node = dialect_pods.node(16384, 16384)
    pod = dialect_pods.single({"tensorstack.dev/nvidia-gpu": 2})
    assert _environment(pod, node, 0, 1) == {"NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    pod = dialect_pods.single({"tensorstack.dev/nvidia-gpu-node": 1})
    assert _environment(pod, node, 0, 1) == {"NVIDIA_VISIBLE_DEVICES": "all"}


def test_hami_tells_its_limits() -> None:
    """Memory by card in MiB, compute once, and the priority only if it is the high one."""
    amounts = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    node = dialect_pods.node(16384, 16384)
    limits = {
        "NVIDIA_VISIBLE_DEVICES": "GPU-0,GPU-1",
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
    }
    assert _environment(dialect_pods.single(amounts), node, 0, 1) == limits
    high = dialect_pods.single(amounts | {"nvidia.com/priority": 0})
    assert _environment(high, node, 0, 1) == limits | {"CUDA_TASK_PRIORITY": "0"}


@pytest.mark.parametrize(
    "limits",
    [
        {"nvidia.com/gpu": 2},
        {"partage.dev/cards": 2},
        {"elasticgpu.io/gpu-core": 200},
        {"tencent.com/vcuda-core": 200},
        {"tke.cloud.tencent.com/qgpu-core": 200},
    ],
    ids=["nvidia", "partage", "elastic", "gaia", "qgpu"],
)
def test_other_families_show_cards_by_uuid(limits: dialect_pods.Limits) -> None:
    """Indexes differ between tools, uuids do not."""
    node = dialect_pods.node(16384, 16384)
    seen = _environment(dialect_pods.single(limits), node, 1, 0)
    assert seen == {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-0"}


def test_a_grant_that_no_pod_asked_for_shows_its_cards() -> None:
    """Grants made elsewhere name no dialect, and get our own environment."""
    node = dialect_pods.node(16384)
    grant = dialect_pods.grant(dialect_pods.single({"partage.dev/cards": 1}), node, 0)
    nameless = grants.Grant(pod=grant.pod, node=grant.node, containers=grant.containers)
    start = registry.environment(nameless, nameless.containers[0], node, contract.Settings())
    assert start == {"NVIDIA_VISIBLE_DEVICES": "GPU-0"}


@pytest.mark.parametrize(
    ("limits", "changed"),
    [
        (
            {"aliyun.com/gpu-mem": 3},
            {"ALIYUN_COM_GPU_MEM_ASSIGNED": "true"},
        ),
        ({"tencent.com/vcuda-core": 100}, {"tencent.com/gpu-assigned": "true"}),
        ({"nvidia.com/gpumem": 3}, {"hami.io/bind-phase": "success"}),
        ({"nvidia.com/gpu": 1}, {}),
    ],
    ids=["gpushare", "gaia", "hami", "nvidia"],
)
def test_annotations_tell_when_cards_have_been_handed_over(
    limits: dialect_pods.Limits, changed: dict[str, str]
) -> None:
    """Families with a second state of a pod have it set when its containers get their cards."""
    grant = dialect_pods.grant(dialect_pods.single(limits), dialect_pods.node(16384), 0)
    assert registry.assigned(grant) == changed
