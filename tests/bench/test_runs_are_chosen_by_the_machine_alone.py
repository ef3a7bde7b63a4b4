"""Repeated runs: which of them counts must not depend on what came out of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bench.fence import busy_tenants, program_start

LATE = st.lists(st.floats(0, 100), min_size=3, max_size=3)


def run(late_percent: float) -> busy_tenants.Run:
    """A run during which the machine was late for so much of the time."""
    return busy_tenants.Run([], busy_tenants.Watched(late_percent, 0, {}), [])


@given(LATE)
def test_the_least_disturbed_of_at_most_three_counts(late: list[float]) -> None:
    """A quiet machine ends the tries, and it is told how many there were."""
    coming = iter(late)
    chosen = busy_tenants.least_disturbed(lambda: run(next(coming)))
    made = late[: chosen.tries]

    assert chosen.watched.late_percent == min(made)
    assert chosen.tries == 3 or made[-1] <= 3
    assert all(percent > 3 for percent in made[:-1])


def test_noise_is_what_equal_starts_differ_by() -> None:
    """A hundred slow starts among three hundred are noise; that each hundred varies is not."""
    even = [1.0, 9.0, 5.0] * 100
    slow_hundred = [1.0] * 100 + [4.0] * 100 + [1.0] * 100

    assert program_start.noise(even) == 0
    assert program_start.noise(slow_hundred) == 3
