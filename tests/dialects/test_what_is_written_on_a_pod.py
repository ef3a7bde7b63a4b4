"""Beside our own record each family's annotations are written exactly as its own system does."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import errors
from partage.dialects import contract, grant_record, pods
from tests.dialects import dialect_pods

NOW = str(dialect_pods.NOW_NS)


def _written(
    pod: pods.Pod, *indexes: int, memory_mib: int = 16276, unit_mib: int = 1024
) -> contract.Marks:
    """The family's marks for a pod on these cards of a node of four, without our own record."""
    node, settings = (
        dialect_pods.node(*[memory_mib] * 4),
        contract.Settings(memory_unit_mib=unit_mib),
    )
    marks = dialect_pods.marks(
        dialect_pods.grant(pod, node, *indexes, settings=settings), pod, node, settings
    )
    annotations = {k: v for k, v in marks.annotations.items() if k != grant_record.GRANT}
    assert len(annotations) == len(marks.annotations) - 1
    return contract.Marks(annotations, marks.labels)


def test_gpushare_writes_five_annotations() -> None:
    """Index, card, pod, not assigned, and a time of nineteen digits."""
    assert _written(dialect_pods.single({"aliyun.com/gpu-mem": 3}), 2) == contract.Marks(
        {
            "ALIYUN_COM_GPU_MEM_IDX": "2",
            "ALIYUN_COM_GPU_MEM_DEV": "15",
            "ALIYUN_COM_GPU_MEM_POD": "3",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": NOW,
        }
    )
    assert len(NOW) == 19


def test_gpushare_writes_the_units_that_the_plugin_counts() -> None:
    """Where MiB are counted the same annotations hold MiB."""
    marks = _written(dialect_pods.single({"aliyun.com/gpu-mem": 8138}), 1, unit_mib=1)
    assert marks.annotations["ALIYUN_COM_GPU_MEM_DEV"] == "16276"
    assert marks.annotations["ALIYUN_COM_GPU_MEM_POD"] == "8138"


def test_gpushare_adds_up_the_containers_of_a_pod() -> None:
    """The pod's amount is the sum of its app containers; init containers never counted."""
    amounts = {"aliyun.com/gpu-mem": 5}
    pod = dialect_pods.pod(
        dialect_pods.container("a", amounts),
        dialect_pods.container("b", amounts),
        init=(dialect_pods.container("fetch", amounts),),
    )
    annotations = _written(pod, 0, memory_mib=14 * 1024).annotations
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "10"
    assert annotations["ALIYUN_COM_GPU_MEM_DEV"] == "14"


def test_gpushare_writes_an_allocation_for_several_cards() -> None:
    """Compact JSON as Go writes it, by position in spec.containers; no index for one-card eyes."""
    pod = dialect_pods.pod(
        dialect_pods.container("logs"),
        dialect_pods.container("a", {"aliyun.com/gpu-mem": 8}),
        dialect_pods.container("b", {"aliyun.com/gpu-mem": 2}),
        init=(dialect_pods.container("fetch", {"aliyun.com/gpu-mem": 4}),),
        labels={"aliyun.com/gpu-count": "2"},
    )
    assert _written(pod, 3, 1).annotations == {
        "scheduler.framework.gpushare.allocation": '{"1":{"1":4,"3":4},"2":{"1":1,"3":1}}',
        "ALIYUN_COM_GPU_MEM_DEV": "30",
        "ALIYUN_COM_GPU_MEM_POD": "10",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
        "ALIYUN_COM_GPU_MEM_ASSUME_TIME": NOW,
    }


def test_gaia_writes_the_predicate_annotations() -> None:
    """Cards by position in spec.containers, the node, a time in nanoseconds, not assigned."""
    pod = dialect_pods.pod(
        dialect_pods.container("logs"),
        dialect_pods.container("a", {"tencent.com/vcuda-core": 200}),
        init=(dialect_pods.container("fetch", {"tencent.com/vcuda-core": 200}),),
    )
    assert _written(pod, 0, 2) == contract.Marks(
        {
            "tencent.com/predicate-time": NOW,
            "tencent.com/predicate-gpu-idx-1": "0,2",
            "tencent.com/predicate-node": dialect_pods.NODE,
            "tencent.com/gpu-assigned": "false",
        }
    )


def test_elastic_writes_cards_by_container_name() -> None:
    """Assumed is an annotation and a label; both domains write the same."""
    for domain in ("elasticgpu.io", "elasticgpu.com"):
        assert _written(dialect_pods.single({f"{domain}/gpu-core": 200}), 0, 2) == contract.Marks(
            {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": "0,2"},
            {"elasticgpu.io/assumed": "true"},
        )


def test_elastic_leaves_out_a_name_that_kubernetes_would_refuse() -> None:
    """A key of more than 63 characters would make the whole binding fail."""
    fits, too_long = "c" * 53, "d" * 54
    amounts = {"elasticgpu.io/gpu-memory": 5}
    pod = dialect_pods.pod(
        dialect_pods.container(fits, amounts), dialect_pods.container(too_long, amounts)
    )
    assert _written(pod, 0).annotations == {
        "elasticgpu.io/assumed": "true",
        f"elasticgpu.io/container-{fits}": "0",
    }


def test_hami_writes_its_device_list() -> None:
    """A device ends with a colon, a container with a semicolon; init containers come first."""
    amounts = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    pod = dialect_pods.pod(
        dialect_pods.container("a", amounts),
        dialect_pods.container("logs"),
        init=(
            dialect_pods.container("wait"),
            dialect_pods.container("fetch", {"nvidia.com/gpu": 2}),
        ),
    )
    assert _written(pod, 0, 1) == contract.Marks(
        {
            "hami.io/vgpu-node": dialect_pods.NODE,
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-time": "1700000000",
            "hami.io/bind-phase": "allocating",
            "hami.io/vgpu-devices-allocated": (
                ";GPU-0,NVIDIA,16276,100:GPU-1,NVIDIA,16276,100:;"
                "GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:;;"
            ),
        },
        {"hami.io/vgpu-node": dialect_pods.NODE},
    )


def test_hami_leaves_out_a_label_that_kubernetes_would_refuse() -> None:
    """A node's name may be longer than a label's value."""
    pod, node = (
        dialect_pods.single({"nvidia.com/gpumem": 5}),
        dialect_pods.node(1024, name="n" * 64),
    )
    marks = dialect_pods.marks(dialect_pods.grant(pod, node, 0), pod, node)
    assert marks.labels == {}
    assert marks.annotations["hami.io/vgpu-node"] == "n" * 64
    node = dialect_pods.node(1024, name="n" * 63)
    assert dialect_pods.marks(dialect_pods.grant(pod, node, 0), pod, node).labels == {
        "hami.io/vgpu-node": "n" * 63
    }


@pytest.mark.parametrize(
    "limits",
    [
        {"nvidia.com/gpu": 1},
        {"tensorstack.dev/nvidia-gpu": 1},
        {"tke.cloud.tencent.com/qgpu-core": 100},
        {"partage.dev/cards": 1},
    ],
    ids=["nvidia", "t9k", "qgpu", "partage"],
)
def test_families_without_published_annotations_write_none(limits: dialect_pods.Limits) -> None:
    """Only our own record is written."""
    assert _written(dialect_pods.single(limits), 0) == contract.Marks()


def test_the_grant_is_recorded_as_versioned_json() -> None:
    """The record is pinned to the letter: running clusters have it on their pods."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 3})
    node = dialect_pods.node(16384)
    grant = msgspec.structs.replace(dialect_pods.grant(pod, node, 0), policy="binpack")
    assert dialect_pods.marks(grant, pod, node).annotations["partage.dev/grant"] == (
        '{"version":1,"uid":"uid-1","node":"node-a","dialect":"aliyun","containers":['
        '{"name":"main","shares":[{"uuid":"GPU-0","index":0,"memory_mib":3072,'
        '"compute_percent":0,"exclusive":false}],"role":"app","compute_ceiling_percent":0,'
        '"compute_mode":"node","memory_enforced":true,"fence":""}],"qos":"normal",'
        '"tag":"aliyun/memory","exclusive_node":false,"policy":"binpack"}'
    )


def test_nothing_is_written_for_a_card_that_is_gone() -> None:
    """A grant outlives its card, but binding to it then fails and says why."""
    pod = dialect_pods.single({"aliyun.com/gpu-mem": 3})
    grant = dialect_pods.grant(pod, dialect_pods.node(16384, 16384), 1)
    with pytest.raises(errors.LedgerError, match="no longer has card GPU-1"):
        dialect_pods.marks(grant, pod, dialect_pods.node(16384))
