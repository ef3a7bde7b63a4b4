"""``partage simulate``: how well policies pack a recorded workload."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import click

from partage.cli.display import json_objects, tables
from partage.core import cards, errors
from partage.sim import contestants, plot, simulation, summary, traces

_FIRST_SEED = 42  # the published experiment uses 42 to 51
_MOST_DEMAND = 10.0

_EXAMPLES = """
\b
Examples:
  partage simulate --nodes nodes.csv --pods pods.csv
  partage simulate --nodes n.csv --pods p.csv --policy priced,fgd --seeds 10
  partage simulate --nodes n.csv --pods p.csv -o json --plot packing.png
"""


@click.command(epilog=_EXAMPLES)
@click.option("--nodes", "nodes_path", required=True, metavar="FILE", help="The nodes, as CSV.")
@click.option("--pods", "pods_path", required=True, metavar="FILE", help="The pods, as CSV.")
@click.option(
    "--policy",
    "policies",
    default="priced",
    show_default=True,
    metavar="NAME[,NAME...]",
    help=f"Any of {', '.join(contestants.names())}.",
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 1000),
    default=3,
    show_default=True,
    help="How many random orders of arrival to average.",
)
@click.option(
    "--demand",
    type=float,
    default=1.3,
    show_default=True,
    help="How much demand arrives, as a multiple of all cards.",
)
@click.option(
    "--skip-cpu-nodes",
    is_flag=True,
    help="Ignore nodes without cards instead of refusing the file.",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@click.option("--plot", "plot_path", metavar="FILE.png", help="Draw allocation against demand.")
def simulate(
    *,
    nodes_path: str,
    pods_path: str,
    policies: str,
    seeds: int,
    demand: float,
    skip_cpu_nodes: bool,
    output: str,
    plot_path: str | None,
) -> None:
    """Replay a recorded workload on a cluster, and compare policies.

    Pods arrive in a random order (one per seed), repeated or cut to the demand, and never leave.
    Prints how much of all cards is allocated when demand for 100 % and for 130 % of them has
    arrived, and the time of one decision. The files have the format of the openb traces:
    sn,cpu_milli,memory_mib,gpu,model and name,cpu_milli,memory_mib,num_gpu,gpu_milli[,gpu_spec].
    """
    names = _names(policies)
    if not math.isfinite(demand) or not 0 < demand <= _MOST_DEMAND:
        raise errors.InputError(
            f"--demand {demand} is out of range",
            instead=f"choose more than 0 and at most {_MOST_DEMAND:g}",
        )
    picture = pathlib.Path(plot_path) if plot_path else None
    if picture is not None:
        plot.check(picture)
    nodes = traces.read_nodes(pathlib.Path(nodes_path), skip_cpu_nodes=skip_cpu_nodes)
    pods = traces.read_pods(pathlib.Path(pods_path))
    runs = _run_all(names, nodes, pods, seeds=seeds, demand=demand)
    reports = [summary.report(name, runs[name]) for name in names]
    if output == "json":
        click.echo(json_objects.written("SimulationReport", {"policies": reports}))
    else:
        click.echo(_table(reports))
    if picture is not None:
        plot.draw({name: summary.mean_curve(runs[name]) for name in names}, picture)


def _names(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names or [text]:
        contestants.factory(name)
    return names


def _run_all(
    names: Sequence[str],
    nodes: Sequence[cards.Node],
    pods: Sequence[traces.TracePod],
    *,
    seeds: int,
    demand: float,
) -> dict[str, list[simulation.Run]]:
    runs: dict[str, list[simulation.Run]] = {name: [] for name in names}
    with _progress(len(names) * seeds) as show:
        for done, (name, seed) in enumerate(itertools.product(names, range(seeds))):
            run = simulation.run(
                nodes,
                pods,
                contestants.factory(name),
                seed=_FIRST_SEED + seed,
                demand=demand,
                progress=functools.partial(show, name, done),
            )
            runs[name].append(run)
    return runs


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[str, int, float], None]]:
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _name, _done, _part: None
        return
    from rich import console, progress

    with progress.Progress(console=console.Console(stderr=True), transient=True) as bar:
        task = bar.add_task("simulating", total=total)
        shown = 0.0

        def show(name: str, done: int, part: float) -> None:
            nonlocal shown
            if done + part - shown >= 0.005:  # drawing costs more than deciding
                shown = done + part
                bar.update(task, completed=shown, description=name)

        yield show


def _table(reports: Sequence[summary.Report]) -> str:
    header = ("POLICY", "ALLOCATED@100%", "ALLOCATED@130%", "DECISION(MEAN)", "DECISION(P99)")
    rows = [
        (
            report.policy,
            _percent(report.allocation_at_100),
            _percent(report.allocation_at_130),
            f"{report.decision_us_mean / 1000:.3f} ms",
            f"{report.decision_us_p99 / 1000:.3f} ms",
        )
        for report in reports
    ]
    return tables.aligned([header, *rows])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} %"
