"""Delays after failures double up to a bound, differ by chance, and recover after a calm time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from partage.kube import backoff
from tests.kube import api_clients


def test_they_double_up_to_a_bound() -> None:
    """With the worst of luck each is as long as it can be."""
    delays = backoff.Backoff(clock=lambda: 0.0, chance=lambda: 1.0)

    assert [delays.after_failure_s() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]


@given(st.floats(min_value=0.0, max_value=1.0))
def test_chance_shortens_them_by_half_at_most(chance: float) -> None:
    """So that many clients do not come back together, and none at once."""
    delays = backoff.Backoff(clock=lambda: 0.0, chance=lambda: chance)

    assert 0.25 <= delays.after_failure_s() <= 0.5
    assert 0.5 <= delays.after_failure_s() <= 1.0


def test_a_calm_time_makes_them_short_again() -> None:
    """A success that fails at once does not, or a broken server would be asked in a tight loop."""
    time = api_clients.QuickTime()
    delays = backoff.Backoff(clock=time.clock, chance=lambda: 1.0)
    assert [delays.after_failure_s() for _ in range(3)] == [0.5, 1.0, 2.0]

    delays.well()
    time.now_s += 9.9
    assert delays.after_failure_s() == 4.0

    delays.well()
    time.now_s += 5.0
    delays.well()
    time.now_s += 5.0
    assert delays.after_failure_s() == 0.5

    time.now_s += 100.0
    assert delays.after_failure_s() == 1.0


def test_the_server_may_ask_for_more() -> None:
    """But not for less, and not for hours."""
    delays = backoff.Backoff(clock=lambda: 0.0, chance=lambda: 1.0)

    assert [delays.after_failure_s(asked_s) for asked_s in (5.0, 0.1, 3600.0)] == [5.0, 1.0, 30.0]
