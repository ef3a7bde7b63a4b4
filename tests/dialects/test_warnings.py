"""Requests that are allowed but do not do all that they seem to say are told to their users."""

from __future__ import annotations

import pytest

from partage.dialects import pods, registry
from tests.dialects import dialect_pods

TKE = "tke.cloud.tencent.com"
HAMI = {"nvidia.com/gpumem": 100}

TOLD: dict[str, tuple[pods.Pod, str]] = {
    "t9k without its scheduler": (
        dialect_pods.single({"tensorstack.dev/nvidia-gpu": 1}),
        "spec.schedulerName",
    ),
    "elastic memory beside whole cards": (
        dialect_pods.single({"elasticgpu.io/gpu-core": 100, "elasticgpu.io/gpu-memory": 5}),
        "elasticgpu.io/gpu-memory has no effect",
    ),
    "elastic name too long for an annotation": (
        dialect_pods.pod(dialect_pods.container("c" * 54, {"elasticgpu.io/gpu-memory": 5})),
        "too long",
    ),
    "gaia memory beside whole cards": (
        dialect_pods.single({"tencent.com/vcuda-core": 100, "tencent.com/vcuda-memory": 4}),
        "tencent.com/vcuda-memory has no effect",
    ),
    "qgpu memory beside whole cards": (
        dialect_pods.single({f"{TKE}/qgpu-core": 100, f"{TKE}/qgpu-memory": 4}),
        f"{TKE}/qgpu-memory has no effect",
    ),
    "qgpu slice that does not divide": (
        dialect_pods.single({f"{TKE}/qgpu-core": 121, f"{TKE}/qgpu-memory": 31}),
        "60 % and 15 GiB on each",
    ),
    "qgpu slice whose memory does not divide": (
        dialect_pods.single({f"{TKE}/qgpu-core": 160, f"{TKE}/qgpu-memory": 31}),
        "80 % and 15 GiB on each",
    ),
    "qgpu slice whose compute does not divide": (
        dialect_pods.single({f"{TKE}/qgpu-core": 121, f"{TKE}/qgpu-memory": 30}),
        "60 % and 15 GiB on each",
    ),
    "gpushare count as a resource": (
        dialect_pods.single({"aliyun.com/gpu-mem": 3, "aliyun.com/gpu-count": 2}),
        "set the label aliyun.com/gpu-count",
    ),
    "hami memory beside all cores": (
        dialect_pods.single({**HAMI, "nvidia.com/gpucores": 100}),
        "nvidia.com/gpumem has no effect",
    ),
    "hami numa binding": (
        dialect_pods.single(HAMI, annotations={"nvidia.com/numa-bind": "true"}),
        "NUMA",
    ),
    "hami numa policy": (
        dialect_pods.single(HAMI, annotations={"hami.io/gpu-scheduler-policy": "numa"}),
        "NUMA",
    ),
    "hami weights": (
        dialect_pods.single(HAMI, annotations={"hami.io/device-scoring-weights": "slot=1"}),
        "device-scoring-weights] has no effect",
    ),
}


@pytest.mark.parametrize(("pod", "text"), TOLD.values(), ids=TOLD)
def test_what_has_no_effect_is_told(pod: pods.Pod, text: str) -> None:
    """One warning names what is not as it seems."""
    (warning,) = registry.warnings(pod, dialect_pods.SETTINGS)
    assert text in str(warning)


QUIET = {
    "t9k with its scheduler": dialect_pods.pod(
        dialect_pods.container("a", {"tensorstack.dev/nvidia-gpu": 1}), scheduler="t9k-scheduler"
    ),
    "elastic": dialect_pods.single({"elasticgpu.io/gpu-core": 30, "elasticgpu.io/gpu-memory": 5}),
    "gaia": dialect_pods.single({"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 4}),
    "qgpu share": dialect_pods.single({f"{TKE}/qgpu-core": 30, f"{TKE}/qgpu-memory": 5}),
    "qgpu slice that divides": dialect_pods.single(
        {f"{TKE}/qgpu-core": 160, f"{TKE}/qgpu-memory": 60}
    ),
    "qgpu cards": dialect_pods.single({f"{TKE}/qgpu-core": 200}),
    "qgpu online": dialect_pods.single(
        {f"{TKE}/qgpu-memory": 5}, annotations={f"{TKE}/app-class": "online"}
    ),
    "elastic cards": dialect_pods.single({"elasticgpu.io/gpu-core": 200}),
    "gaia cards": dialect_pods.single({"tencent.com/vcuda-core": 200}),
    "hami cards": dialect_pods.single({"nvidia.com/gpucores": 100}),
    "gpushare": dialect_pods.single({"aliyun.com/gpu-mem": 3}),
    "hami": dialect_pods.single(HAMI, annotations={"nvidia.com/numa-bind": "false"}),
    "no request": dialect_pods.single({"cpu": 1}),
}


@pytest.mark.parametrize("pod", QUIET.values(), ids=QUIET)
def test_what_is_done_as_written_is_not_commented(pod: pods.Pod) -> None:
    """No warning where there is nothing to warn of."""
    assert registry.warnings(pod, dialect_pods.SETTINGS) == ()
