"""A report has every granted container from the start, and never a number that nobody measured."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.agent import reports
from partage.cli.display import report_page
from partage.core import demands, grants
from partage.core.problems import Problem
from partage.devices import nvml
from partage.fence import usage, usage_rows
from partage.fence.store import limits
from partage.fence.watch import escapes, samples
from tests.agent import node_reports
from tests.agent.node_reports import FIRST, MIB, SECOND

MEASURED = ("used_bytes", "peak_bytes", "refused")
TIMED = ("busy_ns", "throttled_ns", "throttled", "launches")


def numbers(row: reports.ContainerReport, names: tuple[str, ...]) -> list[int | None]:
    """Some fields of a row."""
    return [getattr(row, name) for name in names]


def test_a_container_counts_from_its_grant_on() -> None:
    """With zeros, before it has started and before it has called CUDA."""
    container = node_reports.container(
        node_reports.share(compute_percent=30), mode="burst", compute_ceiling_percent=80
    )

    (row,) = node_reports.report(*node_reports.granted("train", container)).containers

    assert (row.namespace, row.pod, row.uid, row.container) == ("lab", "train", "uid-train", "main")
    assert (row.index, row.uuid, row.memory_mib, row.compute_percent) == (0, FIRST, 4096, 30)
    assert (row.mode, row.ceiling_percent, row.fence, row.dialect) == ("burst", 80, None, "native")
    assert numbers(row, MEASURED + TIMED) == [0] * 7


def test_what_the_fence_counts_is_reported() -> None:
    """With the mode in force, which may be another than was asked for."""
    granted = node_reports.granted(
        "train",
        node_reports.container(node_reports.share(compute_percent=30)),
        fence="hook",
        tenant="t",
    )
    counts: dict[str, Any] = {name: i for i, name in enumerate(MEASURED + TIMED, 1)}
    now = node_reports.card_usage(
        mode=limits.Mode.BURST, ceiling_millionths=500_000, paused=True, **counts
    )

    (row,) = node_reports.report(*granted, used=node_reports.used("t", now)).containers

    assert numbers(row, MEASURED + TIMED) == [1, 2, 3, 4, 5, 6, 7]
    assert (row.mode, row.ceiling_percent, row.paused, row.fence) == ("burst", 50, True, "hook")


@pytest.mark.parametrize("paused", [False, True])
def test_time_that_nobody_counts_is_unknown(paused: bool) -> None:
    """Memory is counted all the same; a pause makes the library look at launches."""
    granted = node_reports.granted(
        "train", node_reports.container(node_reports.share()), fence="hook", tenant="t"
    )
    now = node_reports.card_usage(mode=limits.Mode.NONE, share_millionths=0, paused=paused)

    (row,) = node_reports.report(*granted, used=node_reports.used("t", now)).containers

    assert numbers(row, MEASURED) == [0, 0, 0]
    assert numbers(row, TIMED) == ([0] * 4 if paused else [None] * 4)


def test_time_that_will_not_be_counted_is_unknown_from_the_start() -> None:
    """So that a series does not vanish when the container starts."""
    both = node_reports.container(
        node_reports.share(FIRST, compute_percent=30), node_reports.share(SECOND)
    )

    timed, untimed = node_reports.report(*node_reports.granted("train", both)).containers

    assert numbers(timed, TIMED) == [0] * 4
    assert (untimed.mode, numbers(untimed, TIMED)) == ("none", [None] * 4)


@pytest.mark.parametrize("fence", ["advisory", "hook"])
def test_a_container_that_runs_uncounted_is_unknown(fence: str) -> None:
    """One that is only told its share; one whose files are not there."""
    granted = node_reports.granted(
        "train", node_reports.container(node_reports.share(compute_percent=30)), fence=fence
    )

    (row,) = node_reports.report(*granted).containers

    assert numbers(row, MEASURED + TIMED) == [None] * 7


def test_whoever_has_a_card_alone_uses_what_the_driver_measures() -> None:
    """There is nobody else on it; two containers of one pod cannot be told apart."""
    alone = node_reports.container(node_reports.share(FIRST, 16384, exclusive=True))
    pair = [
        node_reports.container(node_reports.share(SECOND, 24576, exclusive=True), name=name)
        for name in ("a", "b")
    ]
    measured = {uuid: reports.Measured(used_mib=100) for uuid in (FIRST, SECOND)}

    rows = node_reports.report(
        *node_reports.granted("one", alone), *node_reports.granted("two", *pair), measured=measured
    ).containers

    assert [row.used_bytes for row in rows] == [100 * MIB, None, None]
    assert [row.exclusive for row in rows] == [True] * 3


def test_a_tenant_that_cannot_be_read_is_a_problem_beside_the_others() -> None:
    """Its numbers are unknown, and the reason is there."""
    bad = node_reports.granted(
        "bad", node_reports.container(node_reports.share()), fence="hook", tenant="b"
    )
    good = node_reports.granted(
        "good", node_reports.container(node_reports.share()), fence="hook", tenant="g"
    )
    used = {
        **node_reports.used("g", node_reports.card_usage(used_bytes=7)),
        "b": usage.Unreadable("b", "its region has only 3 bytes"),
    }

    report = node_reports.report(*bad, *good, used=used)

    assert [row.used_bytes for row in report.containers] == [None, 7]
    assert report.problems == (Problem("tenant b", "its region has only 3 bytes"),)


def test_several_shares_of_a_card_are_one_row() -> None:
    """As they are one limit."""
    twice = node_reports.container(*[node_reports.share(compute_percent=60)] * 2)

    (row,) = node_reports.report(*node_reports.granted("train", twice)).containers

    assert (row.memory_mib, row.compute_percent) == (8192, 100)


def test_cards_are_told_with_health_and_measurements() -> None:
    """What the driver does not tell is None; a card without tenants is there."""
    reading = nvml.Reading(index=0, uuid=FIRST, used_bytes=300 * MIB, utilization_percent=12)
    lost = nvml.Reading(index=1)
    granted = node_reports.granted(
        "train", node_reports.container(node_reports.share(compute_percent=30))
    )

    first, second = node_reports.report(
        *granted, measured=reports.measured([reading, lost]), unhealthy={SECOND: "Xid 79"}
    ).cards

    assert (first.used_mib, first.utilization_percent, first.healthy, first.reason) == (
        300,
        12,
        True,
        "",
    )
    assert (first.granted_mib, first.granted_percent, first.tenants) == (4096, 30, 1)
    assert (second.used_mib, second.utilization_percent, second.model) == (None, None, None)
    assert (second.healthy, second.reason, second.tenants) == (False, "Xid 79", 0)


def test_a_card_is_charged_a_pods_worst_moment() -> None:
    """As the scheduler does it: an init container runs before the others, not beside them."""
    init = node_reports.container(
        node_reports.share(memory_mib=1000), name="i", role=demands.Role.INIT
    )
    app = node_reports.container(node_reports.share(memory_mib=600), name="a")

    report = node_reports.report(*node_reports.granted("train", init, app))

    assert (report.cards[0].granted_mib, report.cards[0].tenants) == (1000, 2)


def test_a_card_that_is_gone_does_not_hide_its_containers() -> None:
    """They may still run."""
    gone = grants.Share(uuid="GPU-gone", index=5, memory_mib=1)

    (row,) = node_reports.report(
        *node_reports.granted("train", node_reports.container(gone))
    ).containers

    assert (row.uuid, row.index) == ("GPU-gone", 5)


def test_a_report_survives_its_way_as_json() -> None:
    """Programs read it; what comes out is what went in."""
    granted = node_reports.granted(
        "train", node_reports.container(node_reports.share(compute_percent=30))
    )
    report = node_reports.report(*granted)

    text = msgspec.json.encode(report)

    assert msgspec.json.decode(text, type=reports.Report) == report
    assert msgspec.json.decode(text)["apiVersion"] == "output.partage.dev/v1"


def _at(seconds: float, busy_ns: int | None, **more: Any) -> reports.Report:
    now = node_reports.card_usage(busy_ns=busy_ns or 0, **more)
    granted = node_reports.granted(
        "train",
        node_reports.container(node_reports.share(compute_percent=30)),
        fence="hook",
        tenant="t",
    )
    used = {} if busy_ns is None else node_reports.used("t", now)
    return node_reports.report(*granted, used=used, taken_ns=int(seconds * 1e9))


def test_rates_are_what_happened_between_two_reports() -> None:
    """Over the time between them, as the agent measured it."""
    before, now = _at(10, 10**9, throttled_ns=0), _at(12, 2 * 10**9, throttled_ns=3 * 10**9)

    assert reports.rates(before, now) == {
        ("uid-train", "main", FIRST): usage_rows.Rate(50.0, 150.0)
    }


@pytest.mark.parametrize(
    ("before", "now"),
    [
        pytest.param(_at(10, None), _at(12, 5), id="nothing was known"),
        pytest.param(_at(10, 5), _at(12, None), id="nothing is known any more"),
        pytest.param(_at(10, 5), _at(12, 4), id="started anew"),
    ],
)
def test_rates_are_unknown_without_two_numbers(before: reports.Report, now: reports.Report) -> None:
    """Not zero, and never negative."""
    (rate,) = reports.rates(before, now).values()

    assert rate.compute_percent is None


def test_there_are_no_rates_without_time_between() -> None:
    """Nor without a report before; a clock that was set back is no reason to fail."""
    now = _at(10, 5)

    assert reports.rates(None, now) == {}
    assert reports.rates(now, now) == {}
    assert reports.rates(_at(11, 5), now) == {}


shares = st.builds(
    node_reports.share,
    st.sampled_from([FIRST, SECOND, "GPU-gone"]),
    st.integers(0, 20000),
    compute_percent=st.integers(0, 100),
    exclusive=st.booleans(),
)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(shares, min_size=1, max_size=4), st.sampled_from(["", "hook", "mps"])),
        max_size=6,
    )
)
def test_everybody_who_was_granted_something_is_there(
    pods: list[tuple[list[grants.Share], str]],
) -> None:
    """Once for each card, whatever the grant; and sums are those of the grants."""
    granted = [
        container
        for i, (several, fence) in enumerate(pods)
        for container in node_reports.granted(
            f"p{i}", node_reports.container(*several), fence=fence
        )
    ]

    report = node_reports.report(*granted)

    assert {row.key for row in report.containers} == {
        (f"uid-p{i}", "main", share.uuid)
        for i, (several, _) in enumerate(pods)
        for share in several
    }
    assert len({row.key for row in report.containers}) == len(report.containers)
    for card in report.cards:
        on = [share for several, _ in pods for share in several if share.uuid == card.uuid]
        assert card.granted_mib == sum(share.memory_mib for share in on)
        assert card.tenants == sum(
            any(share.uuid == card.uuid for share in several) for several, _ in pods
        )


def finding(**more: Any) -> escapes.Finding:
    """A process of the container of pod "one" that holds 13 GiB of the first card."""
    process = samples.Process(pid=4242, started_ticks=1, inner_pid=7, tenant="uid-one.main")
    terms = {"held_bytes": 13312 * MIB, "real_bytes": 13568 * MIB, "beyond_bytes": 9472 * MIB}
    return escapes.Finding(
        kind=escapes.Kind.EXCESS,
        tenant="uid-one.main",
        uuid=FIRST,
        process=process,
        harms=True,
        since_s=0.0,
        **(terms | more),
    )


def test_a_container_outside_its_fence_is_shown_with_what_the_driver_says() -> None:
    """Not with what its fence counts; the others stay as they are."""
    escaped = [
        msgspec.structs.replace(container, tenant="uid-one.main")
        for container in node_reports.granted(
            "one", node_reports.container(node_reports.share()), fence="hook"
        )
    ]
    inside = node_reports.granted(
        "two", node_reports.container(node_reports.share()), fence="hook", tenant="t"
    )
    outside = reports.Outside(
        findings={("uid-one.main", FIRST): finding()}, unaccounted_bytes={FIRST: 13312 * MIB}
    )
    used = node_reports.used("uid-one.main", node_reports.card_usage(used_bytes=0))
    report = node_reports.report(*escaped, *inside, outside=outside, used=used)
    first, second = report.containers
    assert (first.fence, first.used_bytes) == ("outside", 13568 * MIB)
    assert (first.outside_bytes, first.outside_pid) == (9472 * MIB, 4242)
    assert (second.fence, second.outside_bytes) == ("hook", None)
    assert [card.unaccounted_mib for card in report.cards] == [13312, None]
    (problem,) = report.problems
    assert problem.object == "pod lab/one"
    assert "process 4242 is outside its fence: it holds 13312 MiB" in problem.text


def test_that_the_watch_cannot_see_is_told() -> None:
    """An administrator can cure it."""
    report = node_reports.report(outside=reports.Outside(problem="hostPID is missing"))
    assert report.problems == (Problem("the watch", "hostPID is missing"),)


def test_the_share_in_force_is_not_always_the_one_granted() -> None:
    """The node may divide its cards' time otherwise, and offline containers yield."""
    container = node_reports.container(node_reports.share())
    third = node_reports.card_usage(share_millionths=333_333, yields=True)
    made = node_reports.report(
        *node_reports.granted("one", container, fence="hook", tenant="t"),
        used=node_reports.used("t", third),
    )
    [row] = made.containers
    assert (row.compute_percent, row.share_percent, row.yields) == (0, 33.3333, True)
    [line] = report_page.page(made, {}).tenants.lines
    assert "33%" in [cell.text for cell in line.cells]
