"""Burst: many pods at once on a large cluster that is in use, with and without Partage.

Real etcd, API server and kube-scheduler; nodes of 8 cards of 80 GiB, and bound pods with grants as
Partage writes them. Bursts of pods that ask for shares of cards (``aliyun.com/gpu-mem``, 1 to 8
GiB) come one after another, each while the pods of the one before are deleted; and in the same run
bursts of as many plain pods, which ask for CPU, through a scheduler without an extender. All of
it once with the scheduler's own limit on calls to the API server, 50 a second, and once with the
limit out of the way. Where all nodes are asked about, plain pods are measured that way, too: that
costs the scheduler time which no extender can give back.

The cluster is never short of cards. So a pod needs one attempt, one Binding and no event that says
it does not fit.

``make bench`` takes 1,000 nodes and 4,000 pods, and about ten minutes. The full size is::

    PARTAGE_BENCH_BURST_NODES=5000 PARTAGE_BENCH_BURST_RUNNING=20000 \\
    PARTAGE_BENCH_BURST_SIZES=200,800,3000 make bench ARGS=burst

``..._ROUNDS`` is the number of bursts of a size, ``..._RATES`` has the limits (0 is the scheduler's
own), and ``..._SCORED=0,100`` compares the nodes that the scheduler looks at: 0 leaves that to it,
100 is all of them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping

from bench.large_cluster import filled_api_server, own_control_plane, pod_bursts, realistic_objects
from bench.measurement import card_sums, results
from cluster import objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process

_AIMS = {0: 0.8}  # of plain, by the limit on calls
_AIM_WITHOUT_LIMIT = 0.5
_AIM_OF_FIRST = 0.8
_AIM_BINDINGS = 102  # for 100 pods
_DEFAULT_RATE = 50  # of the scheduler's client, a second
_LARGEST_GIB = 8
_GIB_MIB = 1024


def run() -> Iterator[results.Result]:
    """All lines."""
    return own_control_plane.run(_run)


def _run(plane: ControlPlane) -> Iterator[results.Result]:
    server = filled_api_server.FilledApiServer(plane.client, NODES, subject="burst")
    server.make_nodes()
    server.make_pods(RUNNING)
    for rate in RATES:
        for size in SIZES:
            yield from _compared(plane, rate, size)


def _compared(plane: ControlPlane, rate: int, size: int) -> Iterator[results.Result]:
    plain: dict[int, pod_bursts.Series] = {}
    for scored in sorted({0, *SCORED}):
        plain[scored] = _plain(plane, rate, size, scored)
        yield from _notes(f"{_what(rate, size, scored)}, that are plain", plain[scored])
    for scored in SCORED:
        what, aim = _what(rate, size, scored), _AIMS.get(rate, _AIM_WITHOUT_LIMIT)
        series = _shares(plane, rate, size, scored)
        yield from _notes(f"{what}, that share cards", series)
        yield _compared_with("plain pods", what, series, plain[0], aim)
        if scored:
            yield _compared_with("plain pods, as many nodes", what, series, plain[scored], aim)
        yield from _aimed(what, series)


def _what(rate: int, size: int, scored: int) -> str:
    nodes = f", {scored} % of nodes" if scored else ""
    return f"{size} pods, {rate or _DEFAULT_RATE} calls/s{nodes}"


def _plain(plane: ControlPlane, rate: int, size: int, scored: int) -> pod_bursts.Series:
    configuration = scheduler_config.plain(
        plane.kubeconfig, queries_per_second=rate, scored_percent=scored
    )
    plane.start_scheduler(configuration)
    runner = pod_bursts.Runner(plane, f"plain-{rate}-{size}-{scored}", size, lambda _: {})
    series = runner.run(ROUNDS, pids={})
    plane.stop_scheduler()
    return series


def _shares(plane: ControlPlane, rate: int, size: int, scored: int) -> pod_bursts.Series:
    extender = extender_process.Extender(plane.folder / "run", plane.kubeconfig)
    extender.start()
    try:
        plane.start_scheduler(_configuration(plane, extender.port, rate, scored))
        name = f"shares-{rate}-{size}-{scored}"
        runner = pod_bursts.Runner(plane, name, size, _limits)
        series = runner.run(ROUNDS, pids={"extender": extender.pid or 0}, check=_check)
        plane.stop_scheduler()
        return series
    finally:
        extender.close()


def _configuration(plane: ControlPlane, port: int, rate: int, scored: int) -> str:
    return scheduler_config.partage(
        plane.kubeconfig,
        port=port,
        advertised={objects.MEMORY, objects.COUNT},
        queries_per_second=rate,
        scored_percent=scored,
    )


def _limits(index: int) -> dict[str, int]:
    return {objects.MEMORY: index % _LARGEST_GIB + 1}


def _compared_with(
    floor: str, what: str, series: pod_bursts.Series, plain: pod_bursts.Series, aim: float
) -> results.Rate:
    return results.Rate(
        what=f"{what}: the slowest burst",
        per_second=min(series.rates),
        without=floor,
        without_per_second=statistics.median(plain.rates),
        aim=aim,
    )


def _aimed(what: str, series: pod_bursts.Series) -> Iterator[results.Result]:
    """What has an aim by itself."""
    yield results.Rate(
        what=f"{what}: the slowest burst",
        per_second=min(series.rates),
        without="the first",
        without_per_second=series.rates[0],
        aim=_AIM_OF_FIRST,
    )
    untrue = series.failures.untrue
    for_100 = 100 * series.bindings
    yield results.Amount(
        what=f"{what}: sent for 100 pods", amount=for_100, unit="Bindings", aim=_AIM_BINDINGS
    )
    yield results.Amount(what=f"{what}: untrue", amount=untrue, unit="FailedScheduling", aim=0)


def _notes(what: str, series: pod_bursts.Series) -> Iterator[results.Result]:
    """What is there to be read."""
    created = [burst.per_second_from_creation for burst in series.bursts]
    rates = ", ".join(f"{rate:.1f}" for rate in series.rates)
    yield results.Note(
        f"{what}: {statistics.median(series.rates):.1f} pods/s ({rates}),"
        f" {statistics.median(created):.1f} from the first creation on;"
        f" bound after {series.wait_ms(50):.0f} ms (p50), {series.wait_ms(99):.0f} ms (p99)"
    )
    failures = series.failures
    yield results.Note(
        f"  for 100 pods {100 * series.bindings:.1f} Bindings, attempts that ended as"
        f" {_listed({result: 100 * count for result, count in series.attempts.items()})};"
        f" FailedScheduling was said {100 * failures.said / series.pods:.1f} times;"
        f" in all {failures.said}, {failures.repeated} repeated, {failures.untrue} untrue"
    )
    for text in failures.texts:
        yield results.Note(f"  (said: {text})")
    yield results.Note(f"  processor time for a pod, in ms: {_listed(series.spent_ms)}")


def _listed(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {amount:.1f}" for name, amount in amounts.items())


def _check(plane: ControlPlane) -> None:
    """No card is over its memory; at this moment all pods are bound with grants."""
    card_sums.Sums(realistic_objects.CARD_GIB * _GIB_MIB).check(plane.client.each("Pod"))


def _numbers(name: str, default: str) -> list[int]:
    return [int(word) for word in os.environ.get(f"PARTAGE_BENCH_BURST_{name}", default).split(",")]


[NODES] = _numbers("NODES", "1000")
[RUNNING] = _numbers("RUNNING", "4000")
[ROUNDS] = _numbers("ROUNDS", "5")
SIZES = _numbers("SIZES", "200,800")
RATES = _numbers("RATES", "0,5000")
SCORED = _numbers("SCORED", "100")
