"""Where pods without cards ask for more CPU than there is to spare, cards still get their part."""

from __future__ import annotations

import pathlib
import random
import statistics

from partage.sim import contestants, simulation, traces
from tests.sim.small_traces import NODE_HEADER, POD_HEADER, write

SEEDS = (1, 2, 3)


def test_priced_allocates_more_than_the_others_where_cpu_is_short(tmp_path: pathlib.Path) -> None:
    """It is ahead of FGD by half a point and of best fit by two, in the mean over the seeds."""
    nodes = traces.read_nodes(_cluster(tmp_path))
    pods = traces.read_pods(_workload(tmp_path))

    def allocated_percent(name: str) -> float:
        runs = [
            simulation.run(nodes, pods, contestants.factory(name), seed=seed, demand=1.0)
            for seed in SEEDS
        ]
        return statistics.fmean(run.curve[100] for run in runs)

    priced = allocated_percent("priced")
    assert priced > allocated_percent("fgd") + 0.5
    assert priced > allocated_percent("bestfit") + 2


def _cluster(folder: pathlib.Path) -> pathlib.Path:
    """Forty nodes with just enough CPU for their cards, and twenty with CPU to spare."""
    rows = [f"big-{i},96000,786432,8,G2" for i in range(40)]
    rows += [f"rich-{i},104000,786432,2,T4" for i in range(20)]
    return write(folder / "nodes.csv", NODE_HEADER, *rows)


def _workload(folder: pathlib.Path) -> pathlib.Path:
    """Pods with a card or a share, and so many for CPU alone that 29 % more than all is asked."""
    source = random.Random(5)
    rows = [
        f"c{i},{source.choice([4, 11, 11, 18]) * 1000},4096,1,{source.choice([1000, 1000, 470])},"
        for i in range(300)
    ]
    rows += [f"o{i},{source.choice([8, 12, 16, 32]) * 1000},4096,0,0," for i in range(110)]
    return write(folder / "pods.csv", POD_HEADER, *rows)
