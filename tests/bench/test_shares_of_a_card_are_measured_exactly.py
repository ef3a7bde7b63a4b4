"""Timelines: what the benchmark of the fence makes of the moments at which kernels ended."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.fence import timelines

MS = timelines.NS_PER_MS

# Kernels of one length with pauses between them, as a card runs them.
PAUSES = st.lists(st.integers(0, 50), min_size=1, max_size=40)


def timeline(kernel_ns: int, pauses_ns: list[int]) -> timelines.Timeline:
    """Kernels that each begin so long after the one before has ended, from 0."""
    ended = itertools.accumulate(pause + kernel_ns for pause in pauses_ns)
    return timelines.Timeline(kernel_ns=kernel_ns, began_ns=0, ended_ns=list(ended))


def busy_until(line: timelines.Timeline, moment_ns: int) -> int:
    """The same by counting every nanosecond."""
    runs = [range(end - line.kernel_ns, end) for end in line.ended_ns]
    return sum(1 for ns in range(moment_ns) if any(ns in run for run in runs))


@given(st.integers(1, 20), PAUSES.filter(lambda pauses: len(pauses) < 8), st.integers(0, 300))
def test_card_time_is_what_counting_nanoseconds_gives(
    kernel_ns: int, pauses_ns: list[int], moment_ns: int
) -> None:
    """Kernels that a moment cuts count as far as they have come."""
    line = timeline(kernel_ns, pauses_ns)

    assert line.done_ns(moment_ns) == busy_until(line, moment_ns)


@given(st.integers(1, 100), PAUSES, st.integers(1, 500))
def test_windows_add_up_to_the_whole(kernel_ns: int, pauses_ns: list[int], length_ns: int) -> None:
    """Nothing is counted twice or lost between two windows."""
    line = timeline(kernel_ns, pauses_ns)
    count = line.last_ns // length_ns
    windows = list(line.windows(0, line.last_ns, length_ns=length_ns))

    assert len(windows) == count
    if count:
        mean = sum(percent for _, percent in windows) / count
        assert mean == pytest.approx(line.percent(0, count * length_ns))


def test_a_card_that_is_never_idle_is_used_fully() -> None:
    """Kernels without pauses are 100 %, wherever the window's edges are."""
    line = timeline(10, [0] * 100)

    assert line.percent(3, 777) == 100


def test_the_longest_gap_may_be_at_an_edge() -> None:
    """A tenant that never came, or stopped early, has a gap that no two kernels enclose."""
    line = timeline(10, [0, 5, 40])

    assert line.longest_gap_ns(0, 1000) == 1000 - 75
    assert line.longest_gap_ns(0, 76) == 50


def changed_at(moment_ms: int) -> timelines.Timeline:
    """All of the card until a moment, half of it after, for a second; kernels of 1 ms."""
    full = [MS * end for end in range(1, moment_ms + 1)]
    half = [MS * end for end in range(moment_ms + 2, 1001, 2)]
    return timelines.Timeline(kernel_ns=MS, began_ns=0, ended_ns=full + half)


def at_most_55(percent: float) -> bool:
    """Half, or nearly."""
    return percent <= 55


@given(st.integers(0, 700))
def test_a_reaction_is_found_where_it_is(moment_ms: int) -> None:
    """Up to a step of the windows, and the part of a window that the tolerance is."""
    reaction = timelines.reaction(
        changed_at(moment_ms), 0, 1000 * MS, length_ns=50 * MS, is_there=at_most_55
    )

    assert reaction.settled_ms is not None
    assert moment_ms - 10 <= reaction.settled_ms <= moment_ms + 5
    assert reaction.reached_ms == reaction.settled_ms


def test_a_reaction_that_does_not_last_is_none() -> None:
    """A short pause is not taken for a tenant that gave way."""
    ends = [MS * end for end in range(1, 1001) if not 300 < end <= 400]
    line = timelines.Timeline(kernel_ns=MS, began_ns=0, ended_ns=ends)
    reaction = timelines.reaction(line, 0, 1000 * MS, length_ns=50 * MS, is_there=at_most_55)

    assert reaction == timelines.Reaction(None, None)


def test_a_hiccup_later_on_does_not_undo_a_reaction() -> None:
    """On average it has given way; that single windows were above is told apart."""
    ends = [MS * end for end in range(2, 1001) if end % 2 == 0 or 600 < end <= 660]
    line = timelines.Timeline(kernel_ns=MS, began_ns=0, ended_ns=ends)
    reaction = timelines.reaction(line, 0, 1000 * MS, length_ns=50 * MS, is_there=at_most_55)

    assert reaction.reached_ms == 0
    assert reaction.settled_ms is not None
    assert 600 < reaction.settled_ms < 660
