"""``/metrics``: numbers by card and container, without samples for what is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import prometheus_client as prometheus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import parser

from partage.agent import reports
from partage.agent.metrics import current_names
from partage.core import errors
from partage.core.problems import Problem
from partage.fence.watch import escapes, samples
from tests.agent import node_reports
from tests.agent.node_reports import FIRST, MIB, SECOND

Labels = frozenset[tuple[str, str]]
TRAIN = {
    "node": node_reports.NODE,
    "uuid": FIRST,
    "index": "0",
    "namespace": "lab",
    "pod": "train",
    "container": "main",
}


def points(page: bytes) -> Iterator[tuple[str, Labels, float]]:
    """All samples of a page, as Prometheus reads it."""
    for family in parser.text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            yield sample.name, frozenset(sample.labels.items()), sample.value


def values(page: bytes, name: str, **labels: str) -> list[float]:
    """The samples of a name that have these labels."""
    wanted_labels = labels.items()
    return [
        value for series, has, value in points(page) if series == name and wanted_labels <= set(has)
    ]


def report(seconds: float = 1, **more: int) -> reports.Report:
    """A container that works on the first card; one that has not started, on the second."""
    numbers: dict[str, Any] = {
        "used_bytes": 1000 * MIB,
        "peak_bytes": 2000 * MIB,
        "refused": 3,
        "busy_ns": 1_500_000_000,
        "throttled_ns": 2_500_000_000,
        "throttled": 9,
        "launches": 40,
    }
    now = node_reports.card_usage(**{**numbers, **more})
    train = node_reports.container(node_reports.share(compute_percent=30))
    wait = node_reports.container(node_reports.share(SECOND))
    return node_reports.report(
        *node_reports.granted("train", train, fence="hook", tenant="t"),
        *node_reports.granted("wait", wait),
        used=node_reports.used("t", now),
        measured={FIRST: reports.Measured(used_mib=1100, utilization_percent=40)},
        unhealthy={SECOND: "Xid 79"},
        taken_ns=int(seconds * 1e9),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("memory_granted_bytes", 4096 * MIB),
        ("memory_used_bytes", 1000 * MIB),
        ("memory_peak_bytes", 2000 * MIB),
        ("allocations_refused_total", 3),
        ("compute_granted_ratio", 0.3),
        ("busy_seconds_total", 1.5),
        ("throttled_seconds_total", 2.5),
        ("launches_throttled_total", 9),
        ("launches_total", 40),
        ("paused", 0),
    ],
)
def test_a_container_is_told_with_its_names(name: str, value: float) -> None:
    """Asked, used, and what the fence did; in bytes, seconds and ratios."""
    page = current_names.Metrics().page(report())

    (sample,) = values(page, f"partage_container_{name}", **TRAIN)
    assert sample == pytest.approx(value)


def test_a_container_that_waits_has_zeros_and_no_guesses() -> None:
    """Its time will not be counted, so there is no series of it."""
    page = current_names.Metrics().page(report())

    assert values(page, "partage_container_memory_used_bytes", pod="wait") == [0]
    assert values(page, "partage_container_busy_seconds_total", pod="wait") == []


def test_the_fence_in_force_is_a_label() -> None:
    """One sample for each container, so that they can be counted by level."""
    page = current_names.Metrics().page(report())

    fence = "partage_container_fence"
    assert values(page, fence, pod="train", level="hook", mode="fixed") == [1]
    assert values(page, fence, pod="wait", level="none", mode="none") == [1]
    assert len(values(page, fence)) == 2


def test_a_card_is_told_with_what_is_known_of_it() -> None:
    """The second one tells nothing of itself, but it is unhealthy, and granted."""
    page = current_names.Metrics().page(report())

    for name, first, second in (
        ("memory_bytes", [16384 * MIB], [24576 * MIB]),
        ("memory_granted_bytes", [4096 * MIB], [4096 * MIB]),
        ("memory_used_bytes", [1100 * MIB], []),
        ("compute_granted_ratio", [0.3], [0]),
        ("utilization_ratio", [0.4], []),
        ("healthy", [1], [0]),
        ("containers", [1], [1]),
    ):
        assert values(page, f"partage_card_{name}", uuid=FIRST, index="0") == pytest.approx(first)
        assert values(page, f"partage_card_{name}", uuid=SECOND) == pytest.approx(second)
    assert values(page, "partage_card_info", uuid=FIRST, model="Tesla T4") == [1]


def test_reasons_are_no_labels() -> None:
    """A text in a label is a series for each wording."""
    assert b"Xid" not in current_names.Metrics().page(report())


def test_a_pod_that_is_gone_leaves_no_series() -> None:
    """Nothing is kept from one page to the next, whatever old names are told."""
    metrics = current_names.Metrics(["hami", "elastic", "gpu-manager"])
    metrics.page(report(1))

    page = metrics.page(node_reports.report(taken_ns=20 * 10**9))

    assert b"train" not in page


def test_the_agent_adds_what_it_counts_itself() -> None:
    """On the same page."""
    metrics = current_names.Metrics()
    prometheus.Counter("partage_agent_tests", "For this test", registry=metrics.registry).inc()

    page = metrics.page(report())

    assert values(page, "partage_agent_tests_total") == [1]
    assert values(page, "partage_card_healthy", uuid=FIRST) == [1]
    assert values(page, "process_open_fds")


def test_problems_are_counted() -> None:
    """So that somebody can be woken by them."""
    lost = msgspec.structs.replace(report(), problems=(Problem("tenant x", "broken"),))

    assert values(current_names.Metrics().page(lost), "partage_report_problems") == [1]


def test_unknown_old_names_are_refused() -> None:
    """By the name, with those that there are."""
    with pytest.raises(errors.InputError, match="for nagios; choose from hami, elastic, gpu-m"):
        current_names.Metrics(["hami", "nagios"])


names = st.text(max_size=20)
rows = st.builds(
    lambda namespace, pod, uid, container, used_bytes: msgspec.structs.replace(
        report().containers[0],
        namespace=namespace,
        pod=pod,
        uid=uid,
        container=container,
        used_bytes=used_bytes,
    ),
    *(names, names, names, names, st.none() | st.integers(0, (1 << 64) - 1)),
)


@settings(deadline=None, max_examples=50)
@given(st.lists(rows, max_size=5), names)
def test_any_names_make_a_page_that_prometheus_reads(
    containers: list[reports.ContainerReport], node: str
) -> None:
    """Quotes and newlines come back as they were, and no series is there twice."""
    changed = msgspec.structs.replace(report(), node=node, containers=tuple(containers))

    page = current_names.Metrics(["hami", "elastic", "gpu-manager"]).page(changed)

    series = [(name, labels) for name, labels, _ in points(page)]
    assert len(series) == len(set(series))
    used = {
        (dict(labels)["namespace"], dict(labels)["pod"], dict(labels)["container"]): value
        for name, labels, value in points(page)
        if name == "partage_container_memory_used_bytes"
    }
    assert used == {
        (row.namespace, row.pod, row.container): float(row.used_bytes)
        for row in containers
        if row.used_bytes is not None
    }


def test_what_the_watch_found_is_counted_and_what_nobody_accounts_for_is_a_number() -> None:
    """By what was found and what was done; the card's number is not there if nobody looked."""
    page = current_names.Metrics()
    process = samples.Process(pid=1, started_ticks=1, inner_pid=1, tenant="t")
    finding = escapes.Finding(
        kind=escapes.Kind.OUTSIDE,
        tenant="t",
        uuid=FIRST,
        process=process,
        held_bytes=1,
        real_bytes=1,
        beyond_bytes=1,
        harms=True,
        since_s=0.0,
    )
    page.count(finding, escapes.Then.END)
    page.count(finding, escapes.Then.END)
    outside = reports.Outside(unaccounted_bytes={FIRST: 7 * MIB})
    text = page.page(node_reports.report(outside=outside))
    name = "partage_outside_fence_total"
    assert values(text, name, found="outside", then="end") == [2.0]
    assert values(text, "partage_card_memory_unaccounted_bytes") == [7.0 * MIB]
