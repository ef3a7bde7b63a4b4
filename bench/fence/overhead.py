"""Overhead: what a call costs through the fence, beside the same call without it.

Two processes of the same client on two machines that are alike, one direct and one fenced, take
turns on one core of the real machine; each turn is some thousand calls. What counts is the median
of the ratios, or differences, of two turns that followed each other: the speed of a core changes by
half within a second, but it hits both alike. Where a process finds its memory makes a nanosecond or
two as well, hence several pairs of processes. Printed beside it are the medians of all turns, the
best turns, and the slowest hundredth of calls that were timed one by one, in which reading the
clock is included.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Iterator

import msgspec

from bench.fence import results, simulated_machine
from partage.core.quantities import MIB
from partage.fence.store import limits, tenants

PART = "overhead"
OTHERS = 64
LIVE = 5_000

_QUOTA_BYTES = 60 * 1024 * MIB
_CONTEXT_BYTES = 256 * MIB


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One call under one condition; at most one of the aims."""

    what: str
    call: str
    calls: int  # in a turn
    live: int = 0
    others: int = 0  # processes of the same tenant
    limited: bool = False  # by a share of 100 %, so that nothing ever waits
    preloaded: bool = True  # else the fence is in the driver's place alone
    most_times: float | None = None
    most_more_ns: float | None = None


CASES = (
    Case(what="launch", call="launch", calls=20_000, most_more_ns=2),
    Case(what=f"launch, {OTHERS} others", call="launch", calls=20_000, others=OTHERS),
    Case(what="launch, counted (share of 100 %)", call="launch", calls=20_000, limited=True),
    Case(
        what="launch, in the driver's place",
        call="launch",
        calls=20_000,
        preloaded=False,
        most_more_ns=2,
    ),
    Case(what="alloc + free", call="alloc", calls=5_000, most_times=1.3),
    Case(
        what="alloc + free, in the driver's place",
        call="alloc",
        calls=5_000,
        preloaded=False,
        most_times=1.3,
    ),
    Case(what=f"alloc + free, {LIVE} live", call="alloc", calls=5_000, live=LIVE, most_times=1.3),
    Case(
        what=f"alloc + free, {OTHERS} others",
        call="alloc",
        calls=5_000,
        others=OTHERS,
        most_times=1.3,
    ),
    Case(what="cuMemGetInfo", call="meminfo", calls=10_000, most_times=1.2),
    Case(
        what=f"cuMemGetInfo, {OTHERS} others",
        call="meminfo",
        calls=10_000,
        others=OTHERS,
    ),
)


class Turn(msgspec.Struct, frozen=True):
    """What a client tells of one turn."""

    mean_ns: float
    p99_ns: float


def run(*, quick: bool, only: str = "") -> Iterator[results.Result]:
    """All cases."""
    pairs, turns = (1, 15) if quick else (5, 31)
    for case in [case for case in CASES if only in case.what]:
        direct: list[Turn] = []
        fenced: list[Turn] = []
        for _ in range(pairs):
            _take_turns(case, turns, direct, fenced)
        yield _result(case, direct, fenced)


def _take_turns(case: Case, turns: int, direct: list[Turn], fenced: list[Turn]) -> None:
    with _client(case, fenced=False) as one, _client(case, fenced=True) as other:
        sides = [(one, direct), (other, fenced)]
        for _ in range(turns):
            for client, into in sides:
                client.go()
                into.append(client.answer(Turn))
                client.wait_until_ready()
            sides.reverse()


@contextlib.contextmanager
def _client(case: Case, *, fenced: bool) -> Iterator[simulated_machine.Client]:
    """A client on a machine of its own, with the others that the case wants."""
    core = simulated_machine.measured_core()
    with simulated_machine.fresh() as machine, contextlib.ExitStack() as others:
        tenant = _tenant(machine, case) if fenced else None
        for _ in range(case.others):
            others.enter_context(machine.running("hold", tenant=tenant))
        with machine.running(
            "calls",
            case.call,
            case.calls,
            case.live,
            tenant=tenant,
            core=core,
            preloaded=case.preloaded,
        ) as client:
            yield client


def _tenant(machine: simulated_machine.Machine, case: Case) -> tenants.Tenant:
    compute: dict[str, object] = {}
    if case.limited:
        compute = {
            "mode": limits.Mode.FIXED,
            "share_millionths": 100 * limits.MILLIONTHS_PER_PERCENT,
        }
    return machine.tenant(
        "fenced", memory_bytes=_QUOTA_BYTES, context_bytes=_CONTEXT_BYTES, **compute
    )


def _result(case: Case, direct: list[Turn], fenced: list[Turn]) -> results.Result:
    one, other = _summed(direct), _summed(fenced)
    pairs = [(a.mean_ns, b.mean_ns) for a, b in zip(direct, fenced, strict=True)]
    more_ns = statistics.median(b - a for a, b in pairs)
    times = statistics.median(b / a for a, b in pairs)
    values: dict[str, float | None] = {"more_ns": more_ns, "times": times}
    for name in one:
        values[f"direct_{name}_ns"] = one[name]
        values[f"fenced_{name}_ns"] = other[name]
    return results.Result(
        part=PART,
        what=case.what,
        said=_SAID.format_map(values),
        values=values,
        aim=_aim(case),
        met=_met(case, more_ns, times),
    )


_SAID = (
    "{times:5.3f} x direct, {more_ns:+.1f} ns"
    " ({fenced_median_ns:.1f} and {direct_median_ns:.1f} ns;"
    " best {fenced_best_ns:.1f} and {direct_best_ns:.1f};"
    " p99 {fenced_p99_ns:.0f} and {direct_p99_ns:.0f})"
)


def _summed(turns: list[Turn]) -> dict[str, float]:
    means = [turn.mean_ns for turn in turns]
    p99 = statistics.median(turn.p99_ns for turn in turns)
    return {"median": statistics.median(means), "best": min(means), "p99": p99}


def _aim(case: Case) -> str:
    if case.most_times is not None:
        return f"{case.most_times:g} x"
    return "" if case.most_more_ns is None else f"+{case.most_more_ns:g} ns"


def _met(case: Case, more_ns: float, times: float) -> bool | None:
    if case.most_times is not None:
        return times <= case.most_times
    return None if case.most_more_ns is None else more_ns <= case.most_more_ns
