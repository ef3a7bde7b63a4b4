"""A summary: what the runs of one policy add up to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from partage.sim.simulation import Run


class Report(msgspec.Struct, frozen=True):
    """One policy over several orders of arrival; allocations are means, in percent."""

    policy: str
    allocation_at_100: float | None  # None: so much demand did not arrive
    allocation_at_130: float | None
    decision_us_mean: float
    decision_us_p99: float


def report(policy: str, runs: Sequence[Run]) -> Report:
    """Sum up."""
    curve = mean_curve(runs)
    decisions_us = sorted(us for run in runs for us in run.decisions_us)
    return Report(
        policy=policy,
        allocation_at_100=_rounded(curve.get(100)),
        allocation_at_130=_rounded(curve.get(130)),
        decision_us_mean=round(statistics.fmean(decisions_us), 1),
        decision_us_p99=round(decisions_us[int(0.99 * (len(decisions_us) - 1))], 1),
    )


def mean_curve(runs: Sequence[Run]) -> dict[int, float]:
    """The mean allocation at each whole percent that every run reached."""
    shared = set.intersection(*(set(run.curve) for run in runs))
    return {x: statistics.fmean(run.curve[x] for run in runs) for x in sorted(shared)}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
