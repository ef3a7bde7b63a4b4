"""Outages: a burst of pods while the API server is out of order, and what holds all the time.

Real etcd, API server and kube-scheduler, nodes of 8 cards of 80 GiB, and pods that ask for 1 to 8
GiB. While they are scheduled the API server is paused for ten seconds; or killed and started again;
or one in ten Bindings is done and then answered with 504; or one in ten is answered with 429.

From the beginning to the end the pods are listed again and again. Whatever list there is, no card
has more than its memory, no pod has moved, and none is lost; else the benchmark ends with an error.
What is printed is the time from the end of the outage until all pods are bound.

``PARTAGE_BENCH_OUTAGES_ROUNDS=10`` has each outage ten times; ``..._NODES``, ``..._PODS`` and
``..._KINDS`` (paused, killed, misreported, turned-away) choose the rest.
"""

from __future__ import annotations

import http.client
import os
import threading
import time
from collections.abc import Iterator
from concurrent import futures

import msgspec

from bench.large_cluster import outage_kinds, own_control_plane, realistic_objects
from bench.measurement import card_sums, results, scheduling_failures
from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process

NODES = int(os.environ.get("PARTAGE_BENCH_OUTAGES_NODES", "500"))
PODS = int(os.environ.get("PARTAGE_BENCH_OUTAGES_PODS", "400"))
ROUNDS = int(os.environ.get("PARTAGE_BENCH_OUTAGES_ROUNDS", "1"))
KINDS = os.environ.get("PARTAGE_BENCH_OUTAGES_KINDS", ",".join(outage_kinds.NAMES)).split(",")

_AIM_S = 15
_QUERIES_PER_SECOND = 5000
_LARGEST_GIB = 8
_CARD_MIB = realistic_objects.CARD_GIB * 1024
_CONNECTIONS = 8
_SAMPLE_EVERY_S = 0.2
_RETRY_S = 0.2
_PATIENCE_S = 400.0  # more than the five minutes after which the scheduler looks again by itself
_NO_ANSWER = (OSError, http.client.HTTPException)


def run() -> Iterator[results.Result]:
    """All lines."""
    return own_control_plane.run(_run)


def _run(plane: ControlPlane) -> Iterator[results.Result]:
    plane.client.create_all(map(realistic_objects.node, realistic_objects.names(NODES)))
    for name in KINDS:
        yield from _rounds(plane, name)


def _rounds(plane: ControlPlane, name: str) -> Iterator[results.Result]:
    what = outage_kinds.NAMES[name]
    ends = []
    for number in range(1, ROUNDS + 1):
        ends.append(_through(plane, name, f"{name}-{number}"))
        yield results.Note(f"{what}, round {number} of {ROUNDS}: {ends[-1].text}")
        for said in ends[-1].said:
            yield results.Note(f"  (said: {said})")
    yield results.Amount(
        what=f"{what}, then all of {PODS} pods bound after",
        amount=max(end.after_s for end in ends),
        unit="s",
        aim=_AIM_S,
    )


class End(msgspec.Struct, frozen=True):
    """How a burst came through."""

    after_s: float  # the end of the outage all pods were bound
    text: str
    said: tuple[str, ...]  # to pods that could not be placed, the most frequent


def _through(plane: ControlPlane, name: str, prefix: str) -> End:
    """One burst through one outage."""
    with outage_kinds.made(name, plane, plane.folder, PODS) as outage:
        extender = extender_process.Extender(plane.folder / "run", outage.kubeconfig)
        extender.start()
        try:
            plane.start_scheduler(_configuration(plane, extender.port))
            return BurstDuringOutage(plane, outage, prefix).run()
        except card_sums.Broken as error:
            raise card_sums.Broken(f"{prefix}: {error}\n{extender.log()}") from error
        finally:
            extender.close()
            plane.stop_scheduler()
            everybody = api.path("Pod", "", api.DEFAULT)
            plane.client.call("DELETE", f"{everybody}?gracePeriodSeconds=0")


class BurstDuringOutage:
    """A burst and an outage at the same time, watched."""

    def __init__(self, plane: ControlPlane, outage: outage_kinds.Outage, prefix: str) -> None:
        self._plane = plane
        self._outage = outage
        self._prefix = prefix
        self._names = [f"{prefix}-{index}" for index in range(PODS)]
        self._sums = card_sums.Sums(_CARD_MIB)
        self._bound = self._samples = 0
        self._ended = False
        self._over = threading.Event()  # the outage
        self._over_at_s = 0.0

    def run(self) -> End:
        """From the first pod's creation until all are bound; raises Broken."""
        began_s = time.monotonic()
        with futures.ThreadPoolExecutor(_CONNECTIONS + 1) as pool:
            happening = pool.submit(self._happen)
            creating = [
                pool.submit(self._create, index, name) for index, name in enumerate(self._names)
            ]
            try:
                bound_at_s = self._watch(began_s + _PATIENCE_S)
            finally:
                self._ended = True
        for done in [happening, *creating]:
            done.result()
        after_s = max(0.0, bound_at_s - self._over_at_s)
        failures = scheduling_failures.of_pods(self._plane.client, f"{self._prefix}-")
        return End(after_s, self._text(after_s, bound_at_s - began_s, failures), failures.texts)

    def _text(self, after_s: float, took_s: float, failures: scheduling_failures.Failures) -> str:
        return (
            f"all bound {after_s:.1f} s after its end, {took_s:.1f} s in all;"
            f" right in {self._samples} lists, the fullest card has"
            f" {self._sums.fullest_mib / 1024:.0f} GiB; FailedScheduling was said {failures.said}"
            f" times, {failures.untrue} untrue{self._outage.report()}"
        )

    def _happen(self) -> None:
        try:
            self._outage.happen(lambda: self._bound / PODS)
        finally:
            self._over_at_s = time.monotonic()
            self._over.set()

    def _create(self, index: int, name: str) -> None:
        """Create a pod, however often it takes."""
        pod = realistic_objects.pod(name, {objects.MEMORY: index % _LARGEST_GIB + 1}, cpu="100m")
        while not self._ended:
            try:
                self._plane.client.create(pod)
            except api.ApiError as error:
                if error.status == http.HTTPStatus.CONFLICT:  # the first time did it
                    return
            except _NO_ANSWER:
                pass
            else:
                return
            time.sleep(_RETRY_S)

    def _watch(self, deadline_s: float) -> float:
        """When a list had all pods bound, after the outage was over."""
        while True:
            seen_s = time.monotonic()
            self._sample()
            if self._bound == PODS and self._over.is_set():
                return seen_s
            if time.monotonic() > deadline_s:
                raise card_sums.Broken(f"{self._bound} of {PODS} pods are bound, no more come")
            time.sleep(_SAMPLE_EVERY_S)

    def _sample(self) -> None:
        """Look at one moment, if the server answers."""
        try:
            pods = self._plane.client.list_all("Pod", api.DEFAULT)
        except (*_NO_ANSWER, api.ApiError):
            return
        bound = self._sums.check(pods)
        if bound < self._bound:
            raise card_sums.Broken(f"{self._bound} pods were bound, and now {bound} are")
        if bound == PODS:
            self._sums.check_none_lost(pods, self._names)
        self._bound = bound
        self._samples += 1


def _configuration(plane: ControlPlane, port: int) -> str:
    return scheduler_config.partage(
        plane.kubeconfig,
        port=port,
        advertised={objects.MEMORY, objects.COUNT},
        queries_per_second=_QUERIES_PER_SECOND,
    )
