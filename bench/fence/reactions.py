"""Reactions: how soon a tenant uses an idle card, gives it back, pauses, and follows a new limit.

Tenant A has 30 % and may burst to the whole card, or has no share and takes what others leave. It
runs alone for a second until B comes, which has 50 % fixed and stays for a second. Where a tenant
is, is told by windows of 50 ms (or of four kernels, if that is longer): A is back when it has no
more than B leaves plus five points, and has the idle card when it has 90 % of it. A reaction lasts
until the first such window begins from which on that is also so on average; whether it is so in
every single window that follows, until the next change, is printed beside it. Each is measured
several times, and the median counts.

What A has on the card when B comes cannot be taken back: 20 ms of work, or four kernels. A tenant
that takes what others leave has no aim here: it is not held back, it only tells what it does. An
offline tenant has an aim of its own: 10 ms, and a kernel that is longer than that; and 10 ms beyond
the 100 ms for which it waits after online work.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator

import msgspec

from bench.fence import busy_tenants, results, simulated_machine, timelines
from partage.fence.store import limits, tenants

PART = "reactions"
AIM_MS = 100.0

_SHARE, _NEIGHBOUR = 30, 50
_SLACK_POINTS = 5
_IDLE_PERCENT = 90
_PHASE_MS = 1000
_OFFLINE_STOPS_MS = 10.0  # after the first online launch; a kernel that is longer ends besides
_OFFLINE_WAITS_MS = 100  # after the last online work
_LEAST_WINDOW_MS = 50
_KERNELS_US = (50, 1_000, 20_000)
_NS = timelines.NS_PER_MS


class Reached(msgspec.Struct, frozen=True):
    """One reaction of one round."""

    what: str
    reached_ms: float | None
    settled_ms: float | None
    percent: float  # over the whole phase
    aim_ms: float = AIM_MS


Case = Callable[[int], list[Reached]]


def run(*, quick: bool, only: str = "") -> Iterator[results.Result]:
    """All cases, with kernels of all lengths."""
    for kernel_us in _KERNELS_US:
        for name, case in CASES.items():
            title = f"{name}, {kernel_us} us"
            if only in title:
                rounds = [case(kernel_us) for _ in range(1 if quick else 5)]
                yield from _results(title, rounds, aimed=case is not _best_effort)


def _bursting(kernel_us: int) -> list[Reached]:
    ceiling = {"share_millionths": _millionths(_SHARE), "ceiling_millionths": _millionths(100)}
    return _meeting(kernel_us, mode=limits.Mode.BURST, **ceiling)


def _best_effort(kernel_us: int) -> list[Reached]:
    return _meeting(kernel_us, mode=limits.Mode.BEST_EFFORT)


def _meeting(kernel_us: int, **of_a: object) -> list[Reached]:
    """A is alone, then B comes, then B goes."""
    load = busy_tenants.Load(_NEIGHBOUR, 864, kernel_us)
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(simulated_machine.fresh())
        one, other = machine.tenant("a", **of_a), busy_tenants.fixed(machine, "b", _NEIGHBOUR)
        running = stack.enter_context(busy_tenants.busy(machine, one, load, 3 * _PHASE_MS))
        neighbour = stack.enter_context(busy_tenants.busy(machine, other, load, _PHASE_MS))
        running.go()
        time.sleep(_PHASE_MS / 1000)
        neighbour.go()
        b = busy_tenants.ran(neighbour, load)
        return _reactions(busy_tenants.ran(running, load), b)


def _reactions(a: timelines.Timeline, b: timelines.Timeline) -> list[Reached]:
    came_ns, went_ns, end_ns = b.began_ns, b.last_ns, a.last_ns
    return [
        _reached("A has the idle card", a, (a.began_ns, came_ns), _has_idle_card),
        _reached("A is back after B came", a, (came_ns, went_ns), _leaves_share),
        _reached("B has its 50 %", b, (came_ns, went_ns), _has_share),
        _reached("A has the card again after B went", a, (went_ns, end_ns), _has_idle_card),
    ]


def _has_idle_card(percent: float) -> bool:
    return percent >= _IDLE_PERCENT


def _leaves_share(percent: float) -> bool:
    return percent <= 100 - _NEIGHBOUR + _SLACK_POINTS


def _has_share(percent: float) -> bool:
    return percent >= _NEIGHBOUR - _SLACK_POINTS


def _paused(kernel_us: int) -> list[Reached]:
    """A tenant with 50 % is paused for a second: when its last kernel ends, and the next one."""
    timeline, paused_ns, resumed_ns = _disturbed(
        kernel_us, limits.Change(paused=True), limits.Change(paused=False)
    )
    last_ns = max(end for end in timeline.ended_ns if end < resumed_ns)
    next_ns = timeline.first_end_ns(resumed_ns)
    stopped_ms = max(0, last_ns - paused_ns) / _NS
    went_on_ms = None if next_ns is None else (next_ns - resumed_ns) / _NS
    paused_percent = timeline.percent(paused_ns, resumed_ns)
    after_percent = timeline.percent(resumed_ns, timeline.last_ns)
    return [
        Reached("its last kernel ends", stopped_ms, stopped_ms, paused_percent),
        Reached("the next one ends after it goes on", went_on_ms, went_on_ms, after_percent),
    ]


def _offline(kernel_us: int) -> list[Reached]:
    """A is offline and has the card until B comes, which is online and stays for a second.

    A goes on 100 ms after the work of B; what it takes longer is its reaction.
    """
    load = busy_tenants.Load(0, 864, kernel_us)
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(simulated_machine.fresh())
        offline, online = (machine.tenant(name, mode=limits.Mode.BEST_EFFORT) for name in "ab")
        [seat] = online.seats
        yielding = limits.Time(mode=limits.Mode.BEST_EFFORT, yields_to=frozenset({seat}))
        [card] = offline.limits.cards
        tenants.set_time(machine.root, offline.name, {card.uuid: yielding})
        running = stack.enter_context(busy_tenants.busy(machine, offline, load, 3 * _PHASE_MS))
        first = stack.enter_context(busy_tenants.busy(machine, online, load, _PHASE_MS))
        running.go()
        time.sleep(_PHASE_MS / 1000)
        first.go()
        b = busy_tenants.ran(first, load)
        return _order(busy_tenants.ran(running, load), b)


def _order(a: timelines.Timeline, b: timelines.Timeline) -> list[Reached]:
    came_ns, went_ns = b.began_ns, b.last_ns
    stopped_ns = max((end for end in a.ended_ns if end < went_ns), default=came_ns)
    next_ns = a.first_end_ns(went_ns)
    stopped_ms = max(0, stopped_ns - came_ns) / _NS
    went_on_ms = (
        None if next_ns is None else (next_ns - a.kernel_ns - went_ns) / _NS - _OFFLINE_WAITS_MS
    )
    kernel_ms = a.kernel_ns / _NS
    longest_ms = _OFFLINE_STOPS_MS + (kernel_ms if kernel_ms > _OFFLINE_STOPS_MS else 0)
    stopped = "A's last kernel ends"
    went_on = f"A goes on, beyond {_OFFLINE_WAITS_MS} ms"
    during, later = a.percent(came_ns, went_ns), a.percent(went_ns, a.last_ns)
    return [
        Reached(stopped, stopped_ms, stopped_ms, during, longest_ms),
        Reached(went_on, went_on_ms, went_on_ms, later, _OFFLINE_STOPS_MS),
    ]


def _changed(kernel_us: int) -> list[Reached]:
    """A tenant with 50 % gets 20 % for a second."""
    timeline, less_ns, more_ns = _disturbed(
        kernel_us, limits.Change(compute_percent=20), limits.Change(compute_percent=50)
    )
    return [
        _reached("it has 20 %", timeline, (less_ns, more_ns), _near(20)),
        _reached("it has 50 % again", timeline, (more_ns, timeline.last_ns), _near(50)),
    ]


def _near(percent: int) -> Callable[[float], bool]:
    return lambda has: abs(has - percent) <= _SLACK_POINTS


def _disturbed(
    kernel_us: int, first: limits.Change, second: limits.Change
) -> tuple[timelines.Timeline, int, int]:
    """Change a running tenant's limits twice, with a second before, between and after."""
    load = busy_tenants.Load(50, 864, kernel_us)
    moments = []
    with contextlib.ExitStack() as stack:
        machine = stack.enter_context(simulated_machine.fresh())
        tenant = busy_tenants.fixed(machine, "a", load.percent)
        client = stack.enter_context(busy_tenants.busy(machine, tenant, load, 3 * _PHASE_MS))
        client.go()
        for change in (first, second):
            time.sleep(_PHASE_MS / 1000)
            tenants.change(machine.root, "a", change)
            moments.append(time.monotonic_ns())
        return busy_tenants.ran(client, load), moments[0], moments[1]


CASES: dict[str, Case] = {
    "burst": _bursting,
    "best effort": _best_effort,
    "pause": _paused,
    "new limit": _changed,
    "online before offline": _offline,
}


def _millionths(percent: int) -> int:
    return percent * limits.MILLIONTHS_PER_PERCENT


def _reached(
    what: str,
    timeline: timelines.Timeline,
    phase: tuple[int, int],
    is_there: Callable[[float], bool],
) -> Reached:
    window_ns = max(_LEAST_WINDOW_MS * _NS, 4 * timeline.kernel_ns)
    reaction = timelines.reaction(timeline, *phase, length_ns=window_ns, is_there=is_there)
    return Reached(what, reaction.reached_ms, reaction.settled_ms, timeline.percent(*phase))


def _results(title: str, rounds: list[list[Reached]], *, aimed: bool) -> Iterator[results.Result]:
    for same in zip(*rounds, strict=True):
        reached = [_or_never(one.reached_ms) for one in same]
        settled = [_or_never(one.settled_ms) for one in same]
        median_ms = statistics.median(reached)
        values: dict[str, float | None] = {
            "median_ms": _or_none(median_ms),
            "longest_ms": _or_none(max(reached)),
            "settled_ms": _or_none(statistics.median(settled)),
            "percent": statistics.median(one.percent for one in same),
        }
        yield results.Result(
            part=PART,
            what=f"{title}: {same[0].what}",
            said=_said(values),
            values=values,
            aim=f"{same[0].aim_ms:g} ms" if aimed else "",
            met=median_ms <= same[0].aim_ms if aimed else None,
        )


_NEVER = float("inf")


def _or_never(value_ms: float | None) -> float:
    return _NEVER if value_ms is None else value_ms


def _or_none(value_ms: float) -> float | None:
    return None if value_ms == _NEVER else value_ms


def _said(values: dict[str, float | None]) -> str:
    median, longest, settled = (
        "never" if value is None else f"{value:.0f} ms"
        for value in (values["median_ms"], values["longest_ms"], values["settled_ms"])
    )
    return f"{median:>7} (longest {longest}, settled {settled}, phase {values['percent']:.1f} %)"
