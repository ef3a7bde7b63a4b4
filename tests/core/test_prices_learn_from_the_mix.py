"""Prices, stranding, scarcity: what the priced policy learns."""

from __future__ import annotations

import itertools
import math
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.core import demand_mix, demands
from partage.core import fleet as fleets
from partage.core.policies import priced, prices, scarcity, stranding
from tests.core.small_fleets import fleet_of, grant, node, places, pod, share, whole

MIXES = st.dictionaries(st.integers(1, 100), st.floats(0.5, 50), min_size=1, max_size=6)


def test_what_fills_a_card_alone_costs_a_card() -> None:
    """81 % leaves a rest that nobody in this mix can use."""
    values = prices.values({81: 10, 50: 10, 100: 5})

    assert values[100] == pytest.approx(1)
    assert values[81] == pytest.approx(1)
    assert values[80] == pytest.approx(0.5)
    assert values[49] == pytest.approx(0)


def test_small_change_that_fits_into_rests_costs_nothing() -> None:
    """19 % goes beside 81 %, of which there is plenty."""
    values = prices.values({81: 10, 19: 3})

    assert values[19] == pytest.approx(0)
    assert values[81] == pytest.approx(1)


def test_nothing_known_means_worth_by_size() -> None:
    """The first pods are placed by best fit."""
    assert prices.values({}) == prices.proportional()
    assert prices.proportional()[30] == pytest.approx(0.3)


@settings(deadline=None)
@given(MIXES)
def test_values_are_fair(mix: dict[int, float]) -> None:
    """A card is worth one card, a larger piece is never worth less, and parts never more."""
    values = prices.values(mix)

    assert values[0] == 0
    assert values[100] == pytest.approx(1, abs=1e-6)
    assert all(small <= large + 1e-9 for small, large in itertools.pairwise(values))
    for a, b in [(10, 20), (33, 33), (50, 50), (25, 70)]:
        assert values[a] + values[b] <= values[a + b] + 1e-9


@settings(deadline=None, max_examples=60)
@given(MIXES)
def test_prices_are_those_of_the_best_packing(mix: dict[int, float]) -> None:
    """Duality: what the mix is worth equals the cards that fractional packing needs."""
    values = prices.values(mix)
    worth = sum(count * values[size] for size, count in mix.items())

    assert worth == pytest.approx(_fewest_cards(mix), rel=1e-6)


def _fewest_cards(mix: dict[int, float]) -> float:
    """The fractional optimum over all patterns: the worth of the mix where none exceeds a card."""
    sizes = sorted(mix, reverse=True)
    patterns = [p for p in _patterns(sizes, 100) if any(p)]
    return _simplex([mix[s] for s in sizes], patterns)


def _patterns(sizes: list[int], room: int) -> list[tuple[int, ...]]:
    if not sizes:
        return [()]
    first, rest = sizes[0], sizes[1:]
    counts = range(room // first + 1) if rest else [room // first]
    return [(n, *more) for n in counts for more in _patterns(rest, room - n * first)]


def _simplex(worth: list[float], patterns: list[tuple[int, ...]]) -> float:
    """Maximise worth·w subject to pattern·w <= 1 and w >= 0, in the textbook tableau (Bland)."""
    rows = [
        [*map(float, p), *[float(i == j) for j in range(len(patterns))], 1.0]
        for i, p in enumerate(patterns)
    ]
    goal = [-w for w in worth] + [0.0] * len(patterns) + [0.0]
    basis = [len(worth) + i for i in range(len(patterns))]
    while True:
        enter = next((j for j, g in enumerate(goal[:-1]) if g < -1e-9), None)
        if enter is None:
            return goal[-1]
        steps = [(r[-1] / r[enter], basis[i], i) for i, r in enumerate(rows) if r[enter] > 1e-9]
        _, _, leave = min(steps)
        pivot = rows[leave][enter]
        rows[leave] = [x / pivot for x in rows[leave]]
        for i, row in enumerate(rows):
            if i != leave and row[enter]:
                rows[i] = [x - row[enter] * y for x, y in zip(row, rows[leave], strict=True)]
        factor = goal[enter]
        goal = [x - factor * y for x, y in zip(goal, rows[leave], strict=True)]
        basis[leave] = enter


def test_stranding_is_the_expected_excess_of_a_normal() -> None:
    """The closed form agrees with drawing from the distribution."""
    cpu = stranding.CpuDemand(8000, 3e7)
    source = random.Random(5)
    for worth, free in [(4, 30000), (2, 16000), (8, 20000), (1, 9000)]:
        deviation = math.sqrt(3e7 * worth)
        drawn = [max(0, source.gauss(8000 * worth, deviation) - free) for _ in range(60_000)]
        expected = sum(drawn) / len(drawn) / 8000
        assert cpu.stranded(worth, free) == pytest.approx(expected, abs=0.02)


def test_nothing_is_stranded_where_cpu_abounds_or_nothing_is_free() -> None:
    """The two ends."""
    cpu = stranding.CpuDemand(8000, 3e7)

    assert cpu.stranded(2, 1_000_000) == 0
    assert cpu.stranded(0, 0) == 0
    assert cpu.stranded(4, 0) == pytest.approx(4, abs=0.05)
    assert stranding.CpuDemand().stranded(4, 0) == 0


def test_cpu_per_card_is_learned_from_pods_that_ask_for_cards() -> None:
    """Three fifths of the mean, and the variance around it."""
    learned = stranding.learn([(1.0, 8000, 3), (0.5, 4000, 2), (0.0, 64000, 9)])

    assert learned.per_card_milli == pytest.approx(4800)
    assert learned.variance_per_card == pytest.approx(0)


def test_a_model_that_few_cards_have_and_many_want_is_scarce() -> None:
    """The one in plenty is not."""
    scarce = scarcity.scarcities(
        {"A100": 10.0, "T4": 90.0}, {frozenset({"A100"}): 10.0, frozenset({"A100", "T4"}): 30.0}
    )

    assert scarce["T4"] == 0
    assert scarce["A100"] == pytest.approx(1 - (30 / 90) / 1.0)


def test_nothing_is_scarce_when_nobody_names_a_model() -> None:
    """All demand flows anywhere."""
    both = frozenset({"A100", "T4"})

    assert set(scarcity.scarcities({"A100": 1.0, "T4": 9.0}, {both: 5.0}).values()) == {0.0}


def test_models_nobody_has_do_not_matter() -> None:
    """A demand that no card accepts loads no card."""
    assert scarcity.scarcities({"T4": 9.0}, {frozenset({"H100"}): 5.0}) == {"T4": 0.0}


def test_lessons_come_early_at_first_and_rarely_later() -> None:
    """After 20 pods, then each time half as many more came, at most 1000 apart."""
    mix = demand_mix.Mix()
    lessons = []
    for arrived in range(1, 6001):
        mix.add(pod(share(1)))
        if mix.due:
            mix.learned()
            lessons.append(arrived)

    assert lessons[:5] == [20, 30, 45, 67, 100]
    assert all(b - a <= 1000 for a, b in itertools.pairwise(lessons))
    assert lessons[-1] - lessons[-2] == 1000


def test_lessons_come_more_often_where_models_are_named() -> None:
    """Which models are scarce changes faster than what is asked for."""
    mix = demand_mix.Mix()
    lessons = []
    for arrived in range(1, 2001):
        mix.add(pod(share(1, models=("a30",) if arrived == 7 else ())))
        if mix.due:
            mix.learned()
            lessons.append(arrived)

    assert lessons[-1] - lessons[-2] == 200


def test_a_mix_stays_bounded_whatever_tenants_write() -> None:
    """Ten thousand different pods do not fill the memory."""
    mix = demand_mix.Mix()
    for size in range(1, 10_001):
        mix.add(pod(share(size)))

    assert len(list(mix)) <= demand_mix.MOST_SHAPES


def _taught(fleet: fleets.Fleet, *arrived: demands.PodDemand) -> None:
    mix = demand_mix.Mix()
    for arrival in arrived:
        mix.add(arrival)
    for _ in fleet.set_policy(priced.Priced(priced.learn(mix, fleet.states()))):
        pass


def test_priced_does_not_break_a_piece_that_others_need() -> None:
    """Where halves are asked for, a 10 goes to the card with 60 left, not to the one with 50."""
    demand = pod(share(10))
    for taught, index in ((False, 0), (True, 1)):
        fleet = fleet_of(node("n0", 100, 100), default="priced")
        if taught:
            _taught(fleet, *[pod(share(50))] * 10, *[pod(share(81))] * 3)
        grant(fleet, "a", pod(share(50, uuids=("n0/0",))))
        grant(fleet, "b", pod(share(40, uuids=("n0/1",))))

        assert places(grant(fleet, "c", demand)) == [[index]]


def test_priced_saves_cpu_for_the_cards_that_still_need_it() -> None:
    """A pod with much CPU goes where no card is left to starve."""
    rich = msgspec.structs.replace(node("n0", 100), free_cpu_milli=64_000)
    poor = msgspec.structs.replace(node("n1", 100, 100, 100, 100), free_cpu_milli=40_000)
    fleet = fleet_of(poor, rich, default="priced")
    _taught(fleet, *[pod(whole(), cpu_milli=10_000)] * 30)

    assert fleet.best(pod(whole(), cpu_milli=20_000)) == ["n0"]


def test_priced_keeps_scarce_models_for_those_who_name_them() -> None:
    """A pod that takes any card leaves the rare model alone."""
    fleet = fleet_of(
        node("n0", 100, model="rare"), node("n1", 100, 100, 100, model="common"), default="priced"
    )
    named = pod(whole(models=("rare",)))
    anything = pod(whole())
    assert fleet.best(anything) == ["n0"]
    _taught(fleet, *[named] * 10, *[anything] * 10)

    assert fleet.best(anything) == ["n1"]
    assert fleet.best(named) == ["n0"]


def test_a_node_short_of_cpu_comes_last_but_is_not_hidden() -> None:
    """Whether CPU is really short is for kube-scheduler to say."""
    short = msgspec.structs.replace(node("n0", 100), free_cpu_milli=100)
    plenty = msgspec.structs.replace(node("n1", 100, 100), free_cpu_milli=64_000)
    fleet = fleet_of(short, plenty, default="priced")

    assert fleet.best(pod(share(5), cpu_milli=200), limit=0) == ["n1", "n0"]
