"""HAMi's names: those of its monitor, and of its scheduler's cards, both generations of them.

Its utilizations are percentages, whatever their names say. Left out are the last kernel, the kinds
of allocations, which nobody here knows, and with them four labels of
``Device_memory_desc_of_container`` whose values were sizes: they made a new series of every
allocation. What its scheduler told by a container's position in the pod is in the series of the
monitor by its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import core

from partage.agent import reports
from partage.agent.metrics import old_rows, series
from partage.core.quantities import MIB

_TEXT = "Under the name that HAMi uses"
_ZONE = "vGPU"

CardNumber = Callable[[reports.CardReport], series.Number]
RowNumber = Callable[[old_rows.Row], series.Number]


def metrics(report: reports.Report, rates: old_rows.Rates) -> Iterator[core.Metric]:
    """All of them."""
    cards = [(_card(report.node, card), card) for card in report.cards]
    for new, old, number in _CARDS:
        samples = [(values, number(card)) for values, card in cards]
        yield series.gauge(new, _TEXT, _CARD, samples)
        yield series.gauge(old, _TEXT, _OLD_CARD, samples)
    rows = [(_container(row), row) for row in old_rows.rows(report, rates)]
    for new, old, number_of in _CONTAINERS:
        samples = [(values, number_of(row)) for values, row in rows]
        yield series.gauge(new, _TEXT, _CONTAINER, samples)
        yield series.gauge(old, _TEXT, _OLD_CONTAINER, samples)


def _card(node: str, card: reports.CardReport) -> tuple[str, ...]:
    return _ZONE, node, str(card.index), card.uuid, f"NVIDIA-{card.model or ''}"


def _container(row: old_rows.Row) -> tuple[str, ...]:
    report = row.report
    return _ZONE, report.namespace, report.pod, report.container, str(row.position), report.uuid


_CARD = ("zone", "node", "device_index", "device_uuid", "device_type")
_OLD_CARD = ("zone", "nodeid", "deviceidx", "deviceuuid", "devicetype")
_CARDS: tuple[tuple[str, str, CardNumber], ...] = (
    (
        "hami_host_gpu_memory_used_bytes",
        "HostGPUMemoryUsage",
        lambda card: series.scaled(card.used_mib, MIB),
    ),
    (
        "hami_host_gpu_utilization_ratio",
        "HostCoreUtilization",
        lambda card: card.utilization_percent,
    ),
    ("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit", lambda card: card.memory_mib * MIB),
    (
        "hami_gpu_memory_allocated_bytes",
        "GPUDeviceMemoryAllocated",
        lambda card: card.granted_mib * MIB,
    ),
    ("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit", lambda _card: 100),
    (
        "hami_gpu_core_allocated_ratio",
        "GPUDeviceCoreAllocated",
        lambda card: card.granted_percent,
    ),
    ("hami_gpu_shared_count", "GPUDeviceSharedNum", lambda card: card.tenants),
    (
        "hami_node_gpu_memory_allocated_ratio",
        "nodeGPUMemoryPercentage",
        lambda card: card.granted_mib / card.memory_mib,
    ),
)
_CONTAINER = ("zone", "namespace", "pod", "container", "vdevice_index", "device_uuid")
_OLD_CONTAINER = ("zone", "podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
_CONTAINERS: tuple[tuple[str, str, RowNumber], ...] = (
    (
        "hami_vgpu_memory_used_bytes",
        "vGPU_device_memory_usage_in_bytes",
        lambda row: row.report.used_bytes,
    ),
    (
        "hami_vgpu_memory_limit_bytes",
        "vGPU_device_memory_limit_in_bytes",
        lambda row: row.memory_mib * MIB,
    ),
    (
        "hami_container_device_memory_bytes",
        "Device_memory_desc_of_container",
        lambda row: row.report.used_bytes,
    ),
    (
        "hami_container_device_utilization_ratio",
        "Device_utilization_desc_of_container",
        lambda row: row.got_percent,
    ),
)
