"""Contention: the priced policy sees when pods without cards take the CPU that cards need."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import cards, demand_mix, demands
from partage.core import fleet as fleets
from partage.core.policies import contention, priced, stranding
from tests.core.small_fleets import fleet_of, node, pod, whole

WITH_CARDS: stranding.Load = (1.0, 10_000, 10)
SMALL_RIVALS: stranding.Load = (0.0, 16_000, 5)
LARGE_RIVALS: stranding.Load = (0.0, 32_000, 5)
FULL_OF_NEED = [(8.0, 90_000)] * 4  # 10 CPUs for each card, and hardly more

LOADS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.5, 1.0, 8.0]), st.integers(0, 64_000), st.integers(1, 50)),
    max_size=12,
)
ROOMS = st.lists(st.tuples(st.floats(0, 8), st.integers(-1000, 128_000)), max_size=12)


@given(LOADS, ROOMS)
def test_of_more_cpu_more_is_kept_but_never_a_larger_part(
    loads: list[stranding.Load], rooms: list[contention.NodeRoom]
) -> None:
    """What cards can count on grows with the free CPU, ever more slowly, and never exceeds it."""
    contended = contention.learn(loads, rooms)
    if contended is None:
        return
    kept = [contended.kept_milli(cpu) for cpu in range(0, 130_000, 500)]
    steps = [after - before for before, after in itertools.pairwise(kept)]

    assert kept[0] == 0
    assert all(-1e-6 <= step <= 500 + 1e-6 for step in steps)
    assert all(later <= step + 1e-6 for step, later in itertools.pairwise(steps))


def test_cpu_in_pieces_too_small_for_rivals_is_left_to_the_cards() -> None:
    """Below the smallest rival all is kept; above it, and again above the next, ever less."""
    contended = contention.learn([WITH_CARDS, SMALL_RIVALS, LARGE_RIVALS], FULL_OF_NEED)

    assert contended is not None
    assert contended.kept_milli(12_000) == pytest.approx(12_000)
    beyond_small = contended.kept_milli(32_000) - contended.kept_milli(16_000)
    beyond_large = contended.kept_milli(48_000) - contended.kept_milli(32_000)
    assert beyond_large < beyond_small < 16_000


def test_a_node_short_of_cpu_already_keeps_its_debt() -> None:
    """Less than no CPU stays what it is."""
    contended = contention.learn([WITH_CARDS, SMALL_RIVALS], FULL_OF_NEED)

    assert contended is not None
    assert contended.kept_milli(-500) == pytest.approx(-500)


def test_the_part_that_rivals_take_follows_from_the_balance() -> None:
    """30 CPUs for 3 cards, as much asked by rivals as by cards: each gets a half of it."""
    loads: list[stranding.Load] = [(1.0, 10_000, 10), (0.0, 5_000, 20)]
    contended = contention.learn(loads, [(3.0, 30_000)])

    assert contended is not None
    assert contended.kept_milli(30_000) == pytest.approx(5_000 + 25_000 / 2)


@pytest.mark.parametrize(
    ("loads", "rooms"),
    [
        ([], FULL_OF_NEED),
        ([WITH_CARDS], [(8.0, 10_000)]),
        ([SMALL_RIVALS], FULL_OF_NEED),
        ([WITH_CARDS, SMALL_RIVALS], []),
        ([WITH_CARDS, SMALL_RIVALS], [(8.0, 0)]),
        ([WITH_CARDS, SMALL_RIVALS], [(8.0, 180_000)]),
        ([WITH_CARDS, SMALL_RIVALS], [(8.0, 80_000), (0.0, 100_000)]),
    ],
    ids=[
        "nothing arrived",
        "nobody asks for CPU alone",
        "nobody asks for cards",
        "no node",
        "no CPU to take",
        "enough CPU beside the cards",
        "enough CPU on a node whose cards are taken",
    ],
)
def test_nothing_is_contended_where_nobody_takes_cpu_from_cards(
    loads: list[stranding.Load], rooms: list[contention.NodeRoom]
) -> None:
    """Then the policy decides as if there were no rivals."""
    assert contention.learn(loads, rooms) is None


def test_spare_cpu_in_small_pieces_does_not_feed_rivals() -> None:
    """A hundred CPUs without cards spare the cards of another node only if rivals fit there."""
    loads, needy = [WITH_CARDS, SMALL_RIVALS], (8.0, 80_000)

    assert contention.learn(loads, [needy, (0.0, 100_000)]) is None
    assert contention.learn(loads, [needy, *[(0.0, 10_000)] * 10]) is not None


def _fleet(*, rivals: int, cpu_milli: dict[str, int]) -> fleets.Fleet:
    """A fleet of n0 (2 cards) and n1 (4 cards) that met 20 pods with a card and some without."""
    fleet = fleet_of(
        _with_cpu(node("n0", 100, 100), cpu_milli["n0"]),
        _with_cpu(node("n1", 100, 100, 100, 100), cpu_milli["n1"]),
        default="priced",
    )
    mix = demand_mix.Mix()
    for arrival in [pod(whole(), cpu_milli=10_000)] * 20 + [_cpu_only(16_000)] * rivals:
        mix.add(arrival)
    for _ in fleet.set_policy(priced.Priced(priced.learn(mix, fleet.states()))):
        pass
    return fleet


def _with_cpu(facts: cards.Node, free_cpu_milli: int) -> cards.Node:
    return msgspec.structs.replace(facts, free_cpu_milli=free_cpu_milli)


def _cpu_only(cpu_milli: int) -> demands.PodDemand:
    return demands.PodDemand(cpu_milli=cpu_milli)


def test_priced_uses_cpu_that_others_would_take_and_leaves_what_they_cannot() -> None:
    """Where CPU is short, a card's pod does not use up a node on which no rival would fit next."""
    card = pod(whole(), cpu_milli=10_000)
    cpu_milli = {"n0": 20_000, "n1": 40_000}

    assert _fleet(rivals=0, cpu_milli=cpu_milli).best(card) == ["n0"]
    assert _fleet(rivals=20, cpu_milli=cpu_milli).best(card) == ["n1"]


def test_rivals_change_nothing_where_cpu_is_plenty() -> None:
    """With CPU for all, the order of nodes is that of a mix without rivals."""
    card, cpu_milli = pod(whole(), cpu_milli=10_000), {"n0": 100_000, "n1": 200_000}

    for demand in (card, _cpu_only(16_000)):
        alone = _fleet(rivals=0, cpu_milli=cpu_milli).best(demand, limit=0)
        assert _fleet(rivals=20, cpu_milli=cpu_milli).best(demand, limit=0) == alone


def test_nodes_that_do_not_tell_their_cpu_are_no_part_of_the_balance() -> None:
    """A lesson can be learned from them, and it says nothing of CPU."""
    fleet = fleet_of(node("n0", 100, 100), default="priced")
    mix = demand_mix.Mix()
    for arrival in [pod(whole(), cpu_milli=10_000)] * 20 + [_cpu_only(16_000)] * 20:
        mix.add(arrival)

    assert priced.learn(mix, fleet.states()).contended is None
