"""Throughput: pods per second through a real kube-scheduler, with and without Partage.

1,000 Node objects in a real API server. In turns, the plain scheduler places plain pods that ask
for CPU, and a scheduler with Partage's configuration and a real ``partage extender`` places pods
that ask for shares of cards as well (``aliyun.com/gpu-mem``, sizes 1 to 8 of cards with 80 GiB);
once with 16 nodes in an answer of filter, as for pods with preferences, and once with one, for
which kube-scheduler need not ask for priorities. All have the same settings, with the limit on
calls to the API server out of the way. All pods are there before the scheduler starts, and the time
runs from the first binding to the last, as a watch tells.

The floor is the plain scheduler's rate on the same machine. Everything shares the machine's cores:
what the extender and its watch use, the scheduler and the API server do not have. On two cores they
are all busy, so the ratio is one of processor times, which are printed too.
"""

from __future__ import annotations

import os
import re
import statistics
import urllib.request
from collections.abc import Iterator

from bench.large_cluster import own_control_plane
from bench.measurement import binding_watch, process_usage, results
from cluster import api, child_processes, objects
from cluster.control_plane import control_plane, scheduler_config
from cluster.partage_processes import extender_process

NODES = int(os.environ.get("PARTAGE_BENCH_THROUGHPUT_NODES", "1000"))
PODS = int(os.environ.get("PARTAGE_BENCH_THROUGHPUT_PODS", "1000"))
ROUNDS = int(os.environ.get("PARTAGE_BENCH_THROUGHPUT_ROUNDS", "3"))
_ANSWERS = {"16 nodes in an answer": ("--nodes", "16"), "one node": ("--nodes", "auto")}
_PLAIN = "plain"
_VERBS = ("filter", "prioritize", "bind")
_QUERIES_PER_SECOND = 5000
_CARDS = 8
_CARD_GIB = 80
_PATIENCE_S = 300.0


def run() -> Iterator[results.Result]:
    """The lines, after all rounds."""
    return own_control_plane.run(_run)


def _run(plane: control_plane.ControlPlane) -> Iterator[results.Result]:
    plane.client.create_all(objects.nodes(NODES, cards=_CARDS, card_units=_CARD_GIB))
    rounds = Rounds(plane)
    for number in range(ROUNDS):
        rounds.all_kinds()
        yield results.Note(f"round {number + 1} of {ROUNDS}: {rounds.latest()}")
    yield from rounds.lines()


class Rounds:
    """All kinds of scheduling, in turns."""

    def __init__(self, plane: control_plane.ControlPlane) -> None:
        self._plane = plane
        self._rates: dict[str, list[float]] = {}  # pods a second
        self._times_ms: dict[str, list[float]] = {}  # of whatever was looked at beside

    def all_kinds(self) -> None:
        """Each once."""
        config = scheduler_config.plain(
            self._plane.kubeconfig, queries_per_second=_QUERIES_PER_SECOND
        )
        pods = (_pod(number, {}) for number in range(PODS))
        self._note_rate(_PLAIN, self._rate(_PLAIN, pods, config, None))
        for kind, options in _ANSWERS.items():
            self._note_rate(kind, self._partage(kind, options))

    def latest(self) -> str:
        """The rates of the last round."""
        return ", ".join(f"{kind} {rates[-1]:.0f} pods/s" for kind, rates in self._rates.items())

    def lines(self) -> Iterator[results.Result]:
        """The medians."""
        plain = statistics.median(self._rates[_PLAIN])
        for kind in _ANSWERS:
            yield results.Rate(
                what=f"{PODS} pods that share cards, {NODES} nodes, {kind}",
                per_second=statistics.median(self._rates[kind]),
                without="plain pods",
                without_per_second=plain,
                aim=0.8,
            )
        for what, took_ms in self._times_ms.items():
            yield results.Amount(what=what, amount=statistics.median(took_ms), unit="ms")

    def _partage(self, kind: str, options: tuple[str, ...]) -> float:
        run = self._plane.folder / "run"
        extender = extender_process.Extender(run, self._plane.kubeconfig, options=options)
        config = scheduler_config.partage(
            self._plane.kubeconfig,
            port=extender.port,
            advertised={objects.MEMORY, objects.COUNT},
            queries_per_second=_QUERIES_PER_SECOND,
        )
        pods = (_pod(number, {objects.MEMORY: number % 8 + 1}) for number in range(PODS))
        extender.start()
        try:
            rate = self._rate(kind, pods, config, extender.pid)
            self._note_verbs(kind, extender.port)
        finally:
            extender.close()
        return rate

    def _rate(
        self, kind: str, pods: Iterator[api.Object], config: str, extender: int | None
    ) -> float:
        """Pods per second, from the first binding to the last."""
        client = self._plane.client
        client.create_all(pods)
        with binding_watch.Watch(self._plane.kubeconfig) as watch:
            self._plane.start_scheduler(config)
            before_s = self._spent_s(extender)
            bound_at_s = watch.wait(PODS, patience_s=_PATIENCE_S)
            self._note_spent(kind, before_s, self._spent_s(extender))
        self._plane.stop_scheduler()
        client.call("DELETE", api.path("Pod", "", api.DEFAULT) + "?gracePeriodSeconds=0")
        return (PODS - 1) / (bound_at_s[-1] - bound_at_s[0])

    def _spent_s(self, extender: int | None) -> dict[str, float]:
        pids = self._plane.pids()
        if extender is not None:
            pids["extender"] = extender
        return process_usage.spent_by_name_s(pids)

    def _note_rate(self, kind: str, rate: float) -> None:
        self._rates.setdefault(kind, []).append(rate)

    def _note_spent(self, kind: str, before_s: dict[str, float], after_s: dict[str, float]) -> None:
        for who, spent_s in after_s.items():
            took_ms = 1000 * (spent_s - before_s[who]) / PODS
            what = f"{kind}: processor time of {who} for a pod"
            self._times_ms.setdefault(what, []).append(took_ms)

    def _note_verbs(self, kind: str, port: int) -> None:
        url = f"http://{child_processes.LOOPBACK}:{port}/metrics"
        with urllib.request.urlopen(url) as answer:
            page: str = answer.read().decode()
        for verb in _VERBS:
            calls, took_s = (_series(page, part, verb) for part in ("count", "sum"))
            if calls:
                what = f"{kind}: {verb}, mean"
                self._times_ms.setdefault(what, []).append(1000 * took_s / calls)


def _series(page: str, part: str, verb: str) -> float:
    pattern = rf'^partage_verb_seconds_{part}{{verb="{verb}"}} (\S+)'
    match = re.search(pattern, page, re.MULTILINE)
    return float(match[1]) if match else 0.0


def _pod(number: int, cards: dict[str, int]) -> api.Object:
    return objects.pod(f"pod-{number}", {"cpu": "100m", **cards})
