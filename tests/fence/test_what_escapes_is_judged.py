"""What processes hold beside their fences is found, confirmed over time, and never by mistake."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.fence.watch import escapes, judgement, samples
from tests.fence import honest_lives

MIB = 1 << 20
GIB = 1 << 30
CARD = "GPU-00000001-0000-4000-8000-000000000001"
CONTEXT = 256 * MIB
QUOTA = 2 * GIB


def process(
    pid: int = 40, tenant: str = "t", inner_pid: int = 7, ticks: int = 1
) -> samples.Process:
    """One of a tenant."""
    return samples.Process(pid=pid, started_ticks=ticks, inner_pid=inner_pid, tenant=tenant)


def tenant(name: str = "t", *, counted: tuple[tuple[int, int], ...] = (), **more: Any) -> Any:
    """One with a share of the card; counted is by inner pid."""
    terms = {"uuid": CARD, "quota_bytes": QUOTA, "context_bytes": CONTEXT, **more}
    share = samples.Share(counted=tuple(samples.Counted(*pair) for pair in counted), **terms)
    return samples.Tenant(name, (share,))


def sample(
    taken_s: float,
    held: Mapping[samples.Process, int | None],
    *tenants: samples.Tenant,
    foreign: dict[int, int] | None = None,
    used: int | None = None,
) -> samples.Sample:
    """A look at one card; what is in use there is what its processes hold, if nothing is said."""
    others = foreign or {}
    holdings = [samples.Holding(CARD, process.pid, size) for process, size in held.items()]
    holdings += [samples.Holding(CARD, pid, size) for pid, size in others.items()]
    total = sum(holding.used_bytes or 0 for holding in holdings)
    return samples.Sample(
        taken_s=taken_s,
        cards=(samples.Card(CARD, total if used is None else used),),
        holdings=tuple(holdings),
        processes=tuple(held),
        tenants=tenants,
    )


def watched(*looks: samples.Sample) -> judgement.Judgement:
    """What is known after some looks."""
    judged = judgement.Judgement()
    for look in looks:
        judged = judgement.judged(judged, look)
    return judged


def times(step_s: float = 0.5, count: int = 3) -> list[float]:
    """When looks are taken, long after the clock began."""
    return [1000.0 + step_s * number for number in range(count)]


def test_a_process_that_its_fence_does_not_know_is_outside() -> None:
    """It, and how much it holds; the tenant need not be over its quota."""
    judged = watched(*(sample(t, {process(): CONTEXT + GIB}, tenant()) for t in times()))
    (finding,) = judged.findings
    assert finding.kind is escapes.Kind.OUTSIDE
    assert (finding.tenant, finding.uuid, finding.process) == ("t", CARD, process())
    assert (finding.held_bytes, finding.since_s) == (CONTEXT + GIB, 1000.0)


def test_a_tenant_above_its_quota_is_found_though_its_fence_knows_every_process() -> None:
    """A patched wrapper, or a slot that says what it likes: the driver says otherwise."""
    small, large = process(41, inner_pid=8), process()
    held: dict[samples.Process, int | None] = {small: CONTEXT + GIB, large: 12 * GIB}
    counting = tenant(counted=((7, GIB), (8, GIB)))
    (finding,) = watched(*(sample(t, held, counting) for t in times())).findings
    assert finding.kind is escapes.Kind.EXCESS
    assert finding.process == large
    assert finding.beyond_bytes == CONTEXT + 13 * GIB - QUOTA


@pytest.mark.parametrize("counted", [0, QUOTA])
@given(excess=st.integers(0, 64 * 1024), processes=st.integers(1, 6))
def test_no_excess_beyond_contexts_and_rounding_stays_unseen(
    counted: int, excess: int, processes: int
) -> None:
    """Whatever the tenant writes, whoever of its processes has it."""
    held: dict[samples.Process, int | None] = {
        process(50 + n, inner_pid=20 + n): CONTEXT for n in range(processes - 1)
    }
    total = QUOTA + excess * MIB
    held[process()] = max(CONTEXT, total - sum(size or 0 for size in held.values()))
    judged = watched(*(sample(t, held, tenant(counted=((7, counted),))) for t in times()))
    spare = processes * CONTEXT + 64 * MIB + QUOTA // 16
    real = sum(size or 0 for size in held.values())
    over = [finding for finding in judged.findings if finding.kind is escapes.Kind.EXCESS]
    assert bool(over) == (real - QUOTA > spare)


@given(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.lists(st.sampled_from([0.1, 0.5, 1.0, 6.0]), min_size=12, max_size=12),
)
def test_only_what_looks_the_same_for_a_second_without_a_break_is_found(
    suspicious: list[bool], steps: list[float]
) -> None:
    """Three looks in a row at least, none of them long after the one before."""
    taken = list(itertools.accumulate(steps, initial=1000.0))[: len(suspicious)]
    looks = [
        sample(t, {process(): CONTEXT + (GIB if odd else 0)}, tenant())
        for t, odd in zip(taken, suspicious, strict=True)
    ]
    last = len(suspicious)
    first = last
    while first > 0 and suspicious[first - 1]:
        if first < last and taken[first] - taken[first - 1] > 5.0:
            break
        first -= 1
    expected = last - first >= 3 and taken[-1] - taken[first] >= 1.0
    assert bool(watched(*looks).findings) == expected


@pytest.mark.parametrize(
    ("held_bytes", "timed", "harms"),
    [(CONTEXT + GIB, False, False), (CONTEXT + GIB, True, True), (13 * GIB, False, True)],
)
def test_who_takes_nothing_from_others_does_no_harm(
    held_bytes: int, timed: bool, harms: bool
) -> None:
    """Within its quota, and without a limit of its time, that it is outside is only told."""
    looks = [sample(t, {process(): held_bytes}, tenant(timed=timed)) for t in times()]
    findings = watched(*looks).findings
    assert findings
    assert any(finding.harms for finding in findings) == harms


def test_a_quota_that_is_lowered_takes_nothing_away() -> None:
    """What was within the last one may stay; what comes on top of it may not."""
    held: dict[samples.Process, int | None] = {process(): 8 * GIB}
    wide = [sample(t, held, tenant(counted=((7, 8 * GIB),), quota_bytes=8 * GIB)) for t in times()]
    low = tenant(counted=((7, 8 * GIB),), quota_bytes=GIB)
    later = [t + 2 for t in times()]
    assert watched(*wide, *(sample(t, held, low) for t in later)).findings == ()
    more = {process(): 9 * GIB}
    (finding,) = watched(*wide, *(sample(t, more, low) for t in later)).findings
    assert finding.beyond_bytes == GIB
    less = [sample(t, {process(): 2 * GIB}, low) for t in later]
    again = [sample(t + 4, held, low) for t in times()]
    (finding,) = watched(*wide, *less, *again).findings
    assert finding.beyond_bytes == 6 * GIB


def test_a_pid_that_came_again_begins_anew() -> None:
    """What the last process of that id did is not held against this one."""
    looks = [
        sample(t, {process(ticks=ticks): CONTEXT + GIB}, tenant())
        for t, ticks in zip(times(count=4), (1, 1, 2, 2), strict=True)
    ]
    assert watched(*looks).findings == ()


def test_memory_that_the_driver_shows_in_two_processes_is_held_once() -> None:
    """Opened by IPC: the card has less in use than its processes hold together."""
    owner, opener = process(40, inner_pid=7), process(41, inner_pid=8)
    held: dict[samples.Process, int | None] = {owner: CONTEXT + GIB, opener: CONTEXT + GIB}
    counting = tenant(counted=((7, CONTEXT + GIB), (8, CONTEXT)))
    looks = [sample(t, held, counting, used=2 * CONTEXT + GIB) for t in times()]
    assert watched(*looks).findings == ()


def test_a_server_that_holds_what_its_clients_count_is_no_escape() -> None:
    """MPS in the tenant's own container: the fence knows the clients, the driver the server."""
    counting = tenant(counted=((7, CONTEXT + GIB),))
    looks = [sample(t, {process(inner_pid=99): CONTEXT + GIB}, counting) for t in times()]
    assert watched(*looks).findings == ()


def test_processes_of_nobody_are_never_found() -> None:
    """A display, somebody's shell, a container that has just lost its fence."""
    looks = [sample(t, {}, tenant(), foreign={40: 12 * GIB}) for t in times()]
    assert watched(*looks).findings == ()


def test_a_driver_that_does_not_tell_accuses_nobody() -> None:
    """Without a number of the process there is nothing to compare."""
    looks = [sample(t, {process(): None}, tenant(), used=12 * GIB) for t in times()]
    judged = watched(*looks)
    assert judged.findings == ()
    assert dict(judged.unaccounted_bytes) == {CARD: 12 * GIB}


def test_what_nobody_accounts_for_is_a_number_of_the_card() -> None:
    """In use, without what fences count and what processes of nobody's hold."""
    counting = tenant(counted=((7, CONTEXT + GIB),))
    look = sample(1000.0, {process(): CONTEXT + 4 * GIB}, counting, foreign={9: GIB})
    assert dict(watched(look).unaccounted_bytes) == {CARD: 3 * GIB}


def test_a_tenant_that_counts_more_than_it_has_hides_nobody_elses_memory() -> None:
    """Its own word accounts for what its processes hold, at most."""
    counting = tenant(counted=((7, 1 << 60),))
    look = sample(1000.0, {process(): CONTEXT}, counting, used=CONTEXT + 5 * GIB)
    assert dict(watched(look).unaccounted_bytes) == {CARD: 5 * GIB}


def test_ten_thousand_honest_containers_live_without_a_false_alarm() -> None:
    """In simulated time, a look each half second, with all that honest programs do."""
    node = honest_lives.Node(seed=1, containers=60)
    judged, now_s = judgement.Judgement(), 1000.0
    while node.begun < 10_000:
        node.advance(now_s)
        judged = judgement.judged(judged, node.sample(now_s))
        assert judged.findings == (), (now_s, judged.findings)
        now_s += 0.5


@pytest.mark.parametrize("behind", [True, False], ids=["by a slot that lies", "unknown"])
def test_among_them_one_that_is_not_honest_is_found_within_two_seconds(behind: bool) -> None:
    """And nobody else is."""
    node = honest_lives.Node(seed=2, containers=60)
    judged, now_s = judgement.Judgement(), 1000.0
    for _ in range(40):
        node.advance(now_s)
        now_s += 0.5
    culprit = max(node.lives, key=lambda life: life.ends_s)
    program = node.program(culprit, honest_lives.CONTEXT_BYTES, inner_pid=77)
    program.begins_s, program.ends_s = now_s, now_s + 1000
    culprit.ends_s = program.ends_s
    program.real_bytes += 12 * GIB
    program.behind = behind
    culprit.programs.append(program)
    seen = set()
    for look in range(5):
        node.advance(now_s + look * 0.5)
        judged = judgement.judged(judged, node.sample(now_s + look * 0.5))
        seen |= {(finding.tenant, finding.process.pid) for finding in judged.findings}
        if look * 0.5 < 1.0:
            assert not seen
    assert seen == {(culprit.tenant, program.pid)}
