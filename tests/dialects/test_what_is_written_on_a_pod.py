"""Beside our own record each family's annotations are written exactly as its own system does."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import errors
from partage.dialects import base, native, pods
from tests.dialects import making

NOW = str(making.NOW_NS)


def _written(
    pod: pods.Pod, *indexes: int, memory_mib: int = 16276, unit_mib: int = 1024
) -> base.Marks:
    """The family's marks for a pod on these cards of a node of four, without our own record."""
    node, settings = making.node(*[memory_mib] * 4), base.Settings(memory_unit_mib=unit_mib)
    marks = making.marks(making.grant(pod, node, *indexes, settings=settings), pod, node, settings)
    annotations = {k: v for k, v in marks.annotations.items() if k != native.GRANT}
    assert len(annotations) == len(marks.annotations) - 1
    return base.Marks(annotations, marks.labels)


def test_gpushare_writes_five_annotations() -> None:
    """Index, card, pod, not assigned, and a time of nineteen digits."""
    assert _written(making.single({"aliyun.com/gpu-mem": 3}), 2) == base.Marks(
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
    marks = _written(making.single({"aliyun.com/gpu-mem": 8138}), 1, unit_mib=1)
    assert marks.annotations["ALIYUN_COM_GPU_MEM_DEV"] == "16276"
    assert marks.annotations["ALIYUN_COM_GPU_MEM_POD"] == "8138"


def test_gpushare_adds_up_the_containers_of_a_pod() -> None:
    """The pod's amount is the sum of its app containers; init containers never counted."""
    amounts = {"aliyun.com/gpu-mem": 5}
    pod = making.pod(
        making.container("a", amounts),
        making.container("b", amounts),
        init=(making.container("fetch", amounts),),
    )
    annotations = _written(pod, 0, memory_mib=14 * 1024).annotations
    assert annotations["ALIYUN_COM_GPU_MEM_POD"] == "10"
    assert annotations["ALIYUN_COM_GPU_MEM_DEV"] == "14"


def test_gpushare_writes_an_allocation_for_several_cards() -> None:
    """Compact JSON as Go writes it, by position in spec.containers; no index for one-card eyes."""
    pod = making.pod(
        making.container("logs"),
        making.container("a", {"aliyun.com/gpu-mem": 8}),
        making.container("b", {"aliyun.com/gpu-mem": 2}),
        init=(making.container("fetch", {"aliyun.com/gpu-mem": 4}),),
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
    pod = making.pod(
        making.container("logs"),
        making.container("a", {"tencent.com/vcuda-core": 200}),
        init=(making.container("fetch", {"tencent.com/vcuda-core": 200}),),
    )
    assert _written(pod, 0, 2) == base.Marks(
        {
            "tencent.com/predicate-time": NOW,
            "tencent.com/predicate-gpu-idx-1": "0,2",
            "tencent.com/predicate-node": making.NODE,
            "tencent.com/gpu-assigned": "false",
        }
    )


def test_elastic_writes_cards_by_container_name() -> None:
    """Assumed is an annotation and a label; both domains write the same."""
    for domain in ("elasticgpu.io", "elasticgpu.com"):
        assert _written(making.single({f"{domain}/gpu-core": 200}), 0, 2) == base.Marks(
            {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": "0,2"},
            {"elasticgpu.io/assumed": "true"},
        )


def test_elastic_leaves_out_a_name_that_kubernetes_would_refuse() -> None:
    """A key of more than 63 characters would make the whole binding fail."""
    fits, too_long = "c" * 53, "d" * 54
    amounts = {"elasticgpu.io/gpu-memory": 5}
    pod = making.pod(making.container(fits, amounts), making.container(too_long, amounts))
    assert _written(pod, 0).annotations == {
        "elasticgpu.io/assumed": "true",
        f"elasticgpu.io/container-{fits}": "0",
    }


def test_hami_writes_its_device_list() -> None:
    """A device ends with a colon, a container with a semicolon; init containers come first."""
    amounts = {"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    pod = making.pod(
        making.container("a", amounts),
        making.container("logs"),
        init=(making.container("wait"), making.container("fetch", {"nvidia.com/gpu": 2})),
    )
    assert _written(pod, 0, 1) == base.Marks(
        {
            "hami.io/vgpu-node": making.NODE,
            "hami.io/vgpu-time": "1700000000",
            "hami.io/bind-time": "1700000000",
            "hami.io/bind-phase": "allocating",
            "hami.io/vgpu-devices-allocated": (
                ";GPU-0,NVIDIA,16276,100:GPU-1,NVIDIA,16276,100:;"
                "GPU-0,NVIDIA,3000,30:GPU-1,NVIDIA,3000,30:;;"
            ),
        },
        {"hami.io/vgpu-node": making.NODE},
    )


def test_hami_leaves_out_a_label_that_kubernetes_would_refuse() -> None:
    """A node's name may be longer than a label's value."""
    pod, node = making.single({"nvidia.com/gpumem": 5}), making.node(1024, name="n" * 64)
    marks = making.marks(making.grant(pod, node, 0), pod, node)
    assert marks.labels == {}
    assert marks.annotations["hami.io/vgpu-node"] == "n" * 64
    node = making.node(1024, name="n" * 63)
    assert making.marks(making.grant(pod, node, 0), pod, node).labels == {
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
def test_families_without_published_annotations_write_none(limits: making.Limits) -> None:
    """Only our own record is written."""
    assert _written(making.single(limits), 0) == base.Marks()


def test_the_grant_is_recorded_as_versioned_json() -> None:
    """The record is pinned to the letter: running clusters have it on their pods."""
    pod = making.single({"aliyun.com/gpu-mem": 3})
    node = making.node(16384)
    grant = msgspec.structs.replace(making.grant(pod, node, 0), policy="binpack")
    assert making.marks(grant, pod, node).annotations["partage.dev/grant"] == (
        '{"version":1,"uid":"uid-1","node":"node-a","dialect":"aliyun","containers":['
        '{"name":"main","shares":[{"uuid":"GPU-0","index":0,"memory_mib":3072,'
        '"compute_percent":0,"exclusive":false}],"role":"app","compute_ceiling_percent":0,'
        '"compute_mode":"node","memory_enforced":true,"fence":""}],"qos":"normal",'
        '"tag":"aliyun/memory","exclusive_node":false,"policy":"binpack"}'
    )


def test_nothing_is_written_for_a_card_that_is_gone() -> None:
    """A grant outlives its card, but binding to it then fails and says why."""
    pod = making.single({"aliyun.com/gpu-mem": 3})
    grant = making.grant(pod, making.node(16384, 16384), 1)
    with pytest.raises(errors.LedgerError, match="no longer has card GPU-1"):
        making.marks(grant, pod, making.node(16384))
