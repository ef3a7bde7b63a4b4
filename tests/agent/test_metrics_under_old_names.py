"""The same numbers under the names that dashboards know from other systems."""

from __future__ import annotations

import pytest

from partage.agent import reports
from partage.agent.metrics import current_names
from tests.agent import node_reports
from tests.agent.node_reports import FIRST, MIB, SECOND
from tests.agent.test_metrics_of_cards_and_containers import values


def report(seconds: float, busy_ns: int) -> reports.Report:
    """A pod with two containers, one of them on both cards."""
    both = node_reports.container(
        node_reports.share(FIRST, 4096, compute_percent=30),
        node_reports.share(SECOND, 2048, compute_percent=20),
        name="both",
    )
    half = node_reports.container(node_reports.share(FIRST, 1024, compute_percent=10), name="half")
    works = node_reports.card_usage(FIRST, used_bytes=1000 * MIB, busy_ns=busy_ns)
    rests = node_reports.card_usage(SECOND, used_bytes=24 * MIB)
    first, second = node_reports.granted("train", both, half, fence="hook", tenant="t")
    return node_reports.report(
        first,
        reports.Container(grant=second.grant, container=half, fence="hook", tenant="h"),
        used={
            **node_reports.used("t", works, rests),
            **node_reports.used("h", node_reports.card_usage(FIRST, used_bytes=512 * MIB)),
        },
        measured={FIRST: reports.Measured(used_mib=1638, utilization_percent=40)},
        taken_ns=int(seconds * 1e9),
    )


def second_page(old: str) -> bytes:
    """Ten seconds after the first, of which the card worked two and a half for the container."""
    metrics = current_names.Metrics([old])
    metrics.page(report(100, 0))
    return metrics.page(report(110, 2_500_000_000))


def test_no_old_names_unless_asked_for() -> None:
    """They double the page."""
    page = current_names.Metrics().page(report(1, 0))

    assert b"vGPU" not in page
    assert b"pod_mem_usage" not in page
    assert b"container_gpu_memory_total" not in page


@pytest.mark.parametrize(
    ("new", "old", "value"),
    [
        ("hami_vgpu_memory_used_bytes", "vGPU_device_memory_usage_in_bytes", 1000 * MIB),
        ("hami_vgpu_memory_limit_bytes", "vGPU_device_memory_limit_in_bytes", 4096 * MIB),
        ("hami_container_device_memory_bytes", "Device_memory_desc_of_container", 1000 * MIB),
        ("hami_container_device_utilization_ratio", "Device_utilization_desc_of_container", 25),
    ],
)
def test_hamis_monitor_of_containers(new: str, old: str, value: float) -> None:
    """By position of the card in the container; utilization in percent."""
    page = second_page("hami")

    assert values(
        page,
        new,
        zone="vGPU",
        namespace="lab",
        pod="train",
        container="both",
        vdevice_index="0",
        device_uuid=FIRST,
    ) == [value]
    assert values(
        page,
        old,
        zone="vGPU",
        podnamespace="lab",
        podname="train",
        ctrname="both",
        vdeviceid="0",
        deviceuuid=FIRST,
    ) == [value]
    assert len(values(page, old, ctrname="both", vdeviceid="1", deviceuuid=SECOND)) == 1


@pytest.mark.parametrize(
    ("new", "old", "value"),
    [
        ("hami_host_gpu_memory_used_bytes", "HostGPUMemoryUsage", 1638 * MIB),
        ("hami_host_gpu_utilization_ratio", "HostCoreUtilization", 40),
        ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit", 16384 * MIB),
        ("hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated", 5120 * MIB),
        ("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit", 100),
        ("hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated", 40),
        ("hami_gpu_shared_count", "GPUDeviceSharedNum", 2),
        ("hami_node_gpu_memory_allocated_ratio", "nodeGPUMemoryPercentage", 0.3125),
    ],
)
def test_hamis_cards(new: str, old: str, value: float) -> None:
    """With the type that HAMi makes of the model."""
    page = second_page("hami")

    assert values(
        page,
        new,
        node=node_reports.NODE,
        device_index="0",
        device_uuid=FIRST,
        device_type="NVIDIA-Tesla T4",
    ) == [value]
    assert values(
        page,
        old,
        nodeid=node_reports.NODE,
        deviceidx="0",
        deviceuuid=FIRST,
        devicetype="NVIDIA-Tesla T4",
    ) == [value]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("pod_core_usage", 25),
        ("pod_mem_usage", 1536),
        ("pod_mem_request", 7168),
        ("pod_core_request", 60),
        ("pod_core_utilization", 100 * 25 / 60),
        ("pod_core_utilization_percentage", 100 * 25 / 60),
        ("pod_mem_utilization", 100 * 1536 / 7168),
        ("pod_core_occupy_node", 12.5),
        ("pod_mem_occupy_node_percentage", 100 * 1536 / 40960),
    ],
)
def test_elastic_gpus_pods(name: str, value: float) -> None:
    """All containers and cards of a pod together, in percent of a card and in MiB."""
    numbers = values(
        second_page("elastic"), name, node=node_reports.NODE, namespace="lab", pod="train"
    )

    assert numbers == [pytest.approx(value)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("container_core_usage", 25),
        ("container_mem_usage", 1024),
        ("container_core_utilization", 50),
        ("container_mem_utilization_percentage", 100 * 1024 / 6144),
    ],
)
def test_elastic_gpus_containers(name: str, value: float) -> None:
    """All cards of a container together."""
    numbers = values(second_page("elastic"), name, namespace="lab", pod="train", container="both")

    assert numbers == [pytest.approx(value)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gpu_core_usage", 25),
        ("gpu_core_utilization", 40),
        ("gpu_mem_usage", 1638),
        ("gpu_mem_utilization_percentage", 100 * 1638 / 16384),
    ],
)
def test_elastic_gpus_cards(name: str, value: float) -> None:
    """By index; what the second card does not tell is not there."""
    page = second_page("elastic")

    assert values(page, name, node=node_reports.NODE, card="0") == [pytest.approx(value)]
    assert name == "gpu_core_usage" or values(page, name, card="1") == []


def test_gpu_managers_containers() -> None:
    """By card and in all; what was asked, in all: in cards, and in MiB."""
    page = second_page("gpu-manager")
    who = {
        "pod_name": "train",
        "namespace": "lab",
        "node": node_reports.NODE,
        "container_name": "both",
    }

    assert values(page, "container_gpu_utilization", gpu="gpu0", **who) == [25]
    assert values(page, "container_gpu_utilization", gpu="total", **who) == [25]
    assert values(page, "container_gpu_memory_total", gpu_memory="gpu1", **who) == [24]
    assert values(page, "container_gpu_memory_total", gpu_memory="total", **who) == [1024]
    assert values(page, "container_request_gpu_utilization", req_of_gpu="total", **who) == [0.5]
    assert values(page, "container_request_gpu_memory", req_of_gpu_memory="total", **who) == [6144]


def test_the_first_page_has_no_rates() -> None:
    """There is nothing to compare with; zero would be a lie."""
    page = current_names.Metrics(["hami"]).page(report(1, 10**9))

    assert values(page, "Device_utilization_desc_of_container") == []
    assert len(values(page, "vGPU_device_memory_usage_in_bytes")) == 3


def test_frequent_scrapes_are_compared_with_one_some_seconds_ago() -> None:
    """A few milliseconds would tell nothing."""
    metrics = current_names.Metrics(["hami"])
    metrics.page(report(100, 0))
    metrics.page(report(104.99, 0))

    page = metrics.page(report(105, 2_500_000_000))

    assert values(page, "Device_utilization_desc_of_container", ctrname="both", vdeviceid="0") == [
        50
    ]
