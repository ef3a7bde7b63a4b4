"""Runs: same seed, same result; nothing is placed that does not fit; nothing that fits is lost."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Container, Sequence

import pytest

from partage.core import cards, errors
from partage.sim import arrivals, contestants, fgd, simulation, summary, traces
from tests.sim.small_traces import NODE_HEADER, POD_HEADER, cluster, workload, write

Trace = tuple[list[cards.Node], list[traces.TracePod]]


@pytest.fixture(params=[False, True], ids=["any model", "named models"])
def trace(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Trace:
    """A small cluster and workload."""
    nodes = traces.read_nodes(cluster(tmp_path))
    return nodes, traces.read_pods(workload(tmp_path, models=request.param))


@pytest.mark.parametrize("name", contestants.names())
def test_no_policy_loses_a_pod_that_fits(name: str, trace: Trace) -> None:
    """A plain search over all cards agrees whenever a policy says that a pod fits nowhere."""
    nodes, pods = trace
    witness = _Witness(contestants.factory(name)(nodes, pods), nodes)

    result = simulation.run(nodes, pods, lambda _nodes, _pods: witness, seed=1, demand=1.3)

    assert witness.refused > 0
    assert 75 < result.curve[130] <= 100
    assert len(result.decisions_us) == witness.arrived


class _Witness:
    """A contestant's shadow, which keeps its own account and checks every refusal."""

    def __init__(self, contestant: simulation.Contestant, nodes: Sequence[cards.Node]) -> None:
        self.arrived = self.refused = 0
        self._contestant = contestant
        self._nodes = {node.name: node for node in nodes}
        self._free = {node.name: [1000] * len(node.cards) for node in nodes}

    def choose(self, pod: traces.TracePod, among: Container[str]) -> simulation.Placement | None:
        self.arrived += 1
        placement = self._contestant.choose(pod, among)
        if placement is None:
            self.refused += 1
            assert not [name for name in self._nodes if name in among and self._fits(name, pod)]
        else:
            for position in placement[1]:
                self._free[placement[0]][position] -= pod.card_milli
        return placement

    def settle(self, pod: traces.TracePod, placement: simulation.Placement | None) -> None:
        self._contestant.settle(pod, placement)

    def _fits(self, name: str, pod: traces.TracePod) -> bool:
        models = {m for c in pod.demand.containers for m in c.demand.models}
        if pod.cards and models and self._nodes[name].cards[0].model not in models:
            return False
        return sum(milli >= pod.card_milli for milli in self._free[name]) >= pod.cards


def test_the_same_seed_gives_the_same_run(trace: Trace) -> None:
    """And another seed another one."""
    nodes, pods = trace
    curves = [
        simulation.run(nodes, pods, contestants.factory("priced"), seed=seed, demand=1.2).curve
        for seed in (7, 7, 8)
    ]

    assert curves[0] == curves[1] != curves[2]


def test_a_policy_that_cheats_stops_the_run(trace: Trace) -> None:
    """Putting everything on one card is found out."""
    nodes, pods = trace

    class Cheat:
        """Always the first card."""

        def choose(self, pod: traces.TracePod, among: Container[str]) -> simulation.Placement:
            return nodes[0].name, tuple(range(pod.cards))

        def settle(self, pod: traces.TracePod, placement: simulation.Placement | None) -> None:
            """Nothing to record."""

    with pytest.raises(errors.LedgerError, match="does not fit on cards"):
        simulation.run(nodes, pods, lambda _nodes, _pods: Cheat(), seed=1, demand=1.0)


def test_priced_packs_better_than_first_rules(trace: Trace) -> None:
    """On a small mix as well: at least as good as spreading and as gpushare's rule."""
    nodes, pods = trace

    def at_the_end(name: str) -> float:
        runs = [
            simulation.run(nodes, pods, contestants.factory(name), seed=seed, demand=1.3)
            for seed in range(4)
        ]
        return summary.mean_curve(runs)[130]

    best = at_the_end("priced")
    assert best > at_the_end("spread")
    assert best > at_the_end("gpushare")


@pytest.mark.parametrize("demand", [0.5, 1.3, 3.0])
def test_arrivals_ask_for_the_wanted_demand(trace: Trace, demand: float) -> None:
    """Grown by clones or cut, within the largest pod, and every pod is of the trace."""
    nodes, pods = trace
    wanted_milli = int(demand * 1000 * sum(len(node.cards) for node in nodes))

    arriving = arrivals.arrange(pods, wanted_milli=wanted_milli, source=random.Random(5))

    arriving_milli = sum(pod.milli for pod in arriving)
    assert abs(arriving_milli - wanted_milli) <= max(pod.milli for pod in pods)
    assert set(arriving) <= set(pods)
    if demand == 3.0:
        assert set(arriving) == set(pods)


@pytest.mark.parametrize("name", ["priced", "fgd"])
def test_models_are_matched_by_one_rule(name: str, tmp_path: pathlib.Path) -> None:
    """Case does not matter, special signs are only signs, and everybody agrees on it."""
    nodes = traces.read_nodes(
        write(tmp_path / "n.csv", NODE_HEADER, "a,9,9,1,A*", "b,9,9,1,A100", "c,9,9,1,T4")
    )
    pods = traces.read_pods(
        write(tmp_path / "p.csv", POD_HEADER, "x,1,1,1,1000,A*", "y,1,1,1,1000,a100|none")
    )

    result = simulation.run(nodes, pods, contestants.factory(name), seed=1, demand=0.7)

    assert result.curve[67] == pytest.approx(200 / 3)


def test_a_workload_that_would_never_be_enough_is_refused(tmp_path: pathlib.Path) -> None:
    """One pod in five hundred that asks for a hundredth of a card cannot fill twelve."""
    nodes = traces.read_nodes(write(tmp_path / "n.csv", NODE_HEADER, "a,9,9,12,T4"))
    rows = ["x,1,1,1,1,", *(f"c{i},1,1,0,0," for i in range(500))]
    pods = traces.read_pods(write(tmp_path / "p.csv", POD_HEADER, *rows))

    with pytest.raises(errors.InputError, match="would have to arrive"):
        simulation.run(nodes, pods, contestants.factory("binpack"), seed=1, demand=1.3)


def test_fragmentation_is_what_the_expected_pod_cannot_use(tmp_path: pathlib.Path) -> None:
    """By hand: half ask 500 of a card with 4 CPUs, half whole cards with 8."""
    lines = ["name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"]
    lines += [f"a{i},4000,1,1,500," for i in range(10)] + [
        f"b{i},8000,1,1,1000," for i in range(10)
    ]
    (tmp_path / "p.csv").write_text("\n".join(lines))
    workload_ = fgd._Workload(traces.read_pods(tmp_path / "p.csv"))

    assert workload_.fragmentation(("T4", 8000, (1000, 600, 300))) == pytest.approx(
        0.5 * 300 + 0.5 * 900
    )
    assert workload_.fragmentation(("T4", 4000, (1000, 600, 300))) == pytest.approx(
        0.5 * 300 + 0.5 * 1900
    )
    assert workload_.fragmentation(("T4", 3000, (1000, 600, 300))) == 1900


def test_a_report_takes_the_means_over_seeds() -> None:
    """Points that not every run reached are left out."""
    runs = [
        simulation.Run({99: 90.0, 100: 91.0}, [1.0, 2.0]),
        simulation.Run({100: 93.0, 130: 95.0}, [3.0, 6.0]),
    ]

    report = summary.report("x", runs)

    assert (report.allocation_at_100, report.allocation_at_130) == (92.0, None)
    assert report.decision_us_mean == 3.0
