"""Shares: how much of a card's time tenants get that always want more.

Achieved is what the kernels of a tenant took of the card after a second of warm-up; with the
warm-up it is printed beside, and so are the least and the most of windows of 200 ms, and the
longest time without an end of a kernel. The aim is two points of the card. A tenant is there when
it has its share less five points for the first time, in a window of 100 ms or of two kernels and
the waits that follow them.

NVML is asked about a second near the end; by how much it disagrees with the clients is printed, and
so is for how much of the time the machine was late, and of how many runs this was the one that was
disturbed the least (:mod:`bench.fence.busy_tenants`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

from bench.fence import busy_tenants, results, timelines
from bench.fence.busy_tenants import Length, Load

PART = "shares"
AIM_POINTS = 2.0

_SLACK_POINTS = 5
_WINDOW_NS = 200 * timelines.NS_PER_MS


FULL = Length(1000, 4000)
QUICK = Length(500, 1500)

ALONE = [
    (Load(percent, blocks, kernel_us),)
    for percent, blocks, kernel_us in itertools.product(
        (20, 50, 80), (100, 864, 20_000), (50, 1_000, 20_000)
    )
]
PAIRS = [
    (Load(first, 864, one_us), Load(second, blocks, other_us))
    for (first, second), (one_us, other_us, blocks) in itertools.product(
        ((20, 80), (25, 75), (30, 30), (20, 50)),
        ((1_000, 1_000, 864), (50, 20_000, 20_000), (20_000, 50, 100)),
    )
]
FOURS = [
    tuple(map(Load, (10, 20, 30, 40), (100, 864, 864, 20_000), kernels_us))
    for kernels_us in ((1_000,) * 4, (50, 1_000, 20_000, 1_000), (20_000, 1_000, 1_000, 50))
]
UNFENCED = [(Load(0, 864, kernel_us),) for kernel_us in (50, 1_000, 20_000)]


def run(*, quick: bool, only: str = "") -> Iterator[results.Result]:
    """All cases."""
    length = QUICK if quick else FULL
    for tenants in (*UNFENCED, *ALONE, *PAIRS, *FOURS):
        if not any(only in _what(tenants, index) for index in range(len(tenants))):
            continue
        measured = busy_tenants.least_disturbed(
            functools.partial(busy_tenants.measure, tenants, length)
        )
        for index in range(len(tenants)):
            yield _result(tenants, index, measured, length)


def _result(
    tenants: tuple[Load, ...], index: int, measured: busy_tenants.Run, length: Length
) -> results.Result:
    load, timeline = tenants[index], measured.timelines[index]
    began_ns = timeline.began_ns
    since_ns = began_ns + length.warm_up_ms * timelines.NS_PER_MS
    until_ns = began_ns + length.all_ms * timelines.NS_PER_MS
    achieved = timeline.percent(since_ns, until_ns)
    windows = [percent for _, percent in timeline.windows(since_ns, until_ns, length_ns=_WINDOW_NS)]
    values: dict[str, float | None] = {
        "share": load.percent,
        "achieved": achieved,
        "with_warm_up": timeline.percent(began_ns, until_ns),
        "least": min(windows),
        "most": max(windows),
        "longest_gap_ms": timeline.longest_gap_ns(since_ns, until_ns) / timelines.NS_PER_MS,
        "late": measured.watched.late_percent,
        "tries": measured.tries,
        "nvml_off": measured.off_points(index),
        "there_ms": _there_ms(timeline, until_ns, load.percent or 100),
    }
    share = load.percent or 100
    return results.Result(
        part=PART,
        what=_what(tenants, index),
        said=_said(values),
        values=values,
        aim=f"{share} ± {AIM_POINTS:g}",
        met=abs(achieved - share) <= AIM_POINTS,
    )


def _there_ms(timeline: timelines.Timeline, until_ns: int, percent: int) -> float | None:
    length_ns = max(100 * timelines.NS_PER_MS, 2 * timeline.kernel_ns * 100 // percent)
    return timelines.reaction(
        timeline,
        timeline.began_ns,
        until_ns,
        length_ns=length_ns,
        is_there=lambda has: has >= percent - _SLACK_POINTS,
    ).reached_ms


def _said(values: dict[str, float | None]) -> str:
    reached = "never" if values["there_ms"] is None else f"after {values['there_ms']:.0f} ms"
    return _SAID.format_map({**values, "reached": reached})


_SAID = (
    "{achieved:5.1f} % (with warm-up {with_warm_up:5.1f}; 200 ms {least:5.1f}–{most:5.1f};"
    " there {reached}; gap {longest_gap_ms:.0f} ms; NVML {nvml_off:+.1f}; late {late:.1f} %,"
    " of {tries})"
)


def _what(tenants: tuple[Load, ...], index: int) -> str:
    load = tenants[index]
    kernels = f"{load.blocks} blocks x {load.kernel_us} us"
    if not load.percent:
        return f"not fenced: {kernels}"
    if len(tenants) == 1:
        return f"{load.percent} % alone: {kernels}"
    together = ":".join(str(other.percent) for other in tenants)
    return f"{load.percent} % of {together} (no. {index + 1}): {kernels}"
