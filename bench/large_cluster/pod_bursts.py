"""Pod bursts: bursts of pods through a running scheduler, one after another, and what they cost.

While a burst is scheduled, the pods of the one before are deleted. For the first burst to have that
too, one more burst comes before it, which is not measured; it also warms everything up. Times are
of this process's clock: a pod is created when its request is sent, and bound when a watch tells.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from concurrent import futures

import msgspec

from bench.large_cluster import realistic_objects
from bench.measurement import binding_watch, metrics_page, process_usage, scheduling_failures
from cluster import api, child_processes, progress
from cluster.control_plane.control_plane import ControlPlane

Limits = Callable[[int], dict[str, int]]  # of a pod, by its number
Check = Callable[[ControlPlane], None]

_COMING, _LEAVING = 8, 2  # connections
_PATIENCE_S = 600.0
_SCHEDULED, _UNSCHEDULABLE, _ERROR = _RESULTS = ("scheduled", "unschedulable", "error")


class Burst(msgspec.Struct, frozen=True):
    """When each pod was created and bound."""

    created_at_s: dict[str, float]
    bound_at_s: dict[str, float]

    @property
    def per_second(self) -> float:
        """Pods a second from the first binding to the last."""
        first_s, last_s = min(self.bound_at_s.values()), max(self.bound_at_s.values())
        return (len(self.bound_at_s) - 1) / (last_s - first_s)

    @property
    def per_second_from_creation(self) -> float:
        """Pods a second from the first creation to the last binding."""
        first_s, last_s = min(self.created_at_s.values()), max(self.bound_at_s.values())
        return len(self.bound_at_s) / (last_s - first_s)

    def waits_ms(self) -> list[float]:
        """How long each pod waited."""
        return [1000 * (self.bound_at_s[name] - at_s) for name, at_s in self.created_at_s.items()]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Some bursts of the same size; what was counted is per pod."""

    bursts: list[Burst]
    spent_ms: dict[str, float]  # of processor time, by program
    bindings: float
    attempts: dict[str, float]  # of the scheduler, by result
    failures: scheduling_failures.Failures

    @property
    def rates(self) -> list[float]:
        """Pods a second of each burst."""
        return [burst.per_second for burst in self.bursts]

    @property
    def pods(self) -> int:
        """How many pods were measured."""
        return sum(len(burst.bound_at_s) for burst in self.bursts)

    def wait_ms(self, percent: int) -> float:
        """So many percent of all pods waited no longer than this."""
        waits_ms = [wait_ms for burst in self.bursts for wait_ms in burst.waits_ms()]
        return statistics.quantiles(waits_ms, n=100)[percent - 1]


class Counts(msgspec.Struct, frozen=True):
    """What the programs have counted so far."""

    spent_s: dict[str, float]
    bindings: float
    attempts: dict[str, float]

    @classmethod
    def now(cls, plane: ControlPlane, pids: dict[str, int]) -> Counts:
        """Read them."""
        page = plane.client.text("/metrics")
        bindings = {"verb": "POST", "resource": "pods", "subresource": "binding"}
        return cls(
            process_usage.spent_by_name_s(plane.pids() | pids),
            metrics_page.total(page, "apiserver_request_total", **bindings),
            _attempts(plane),
        )


class Runner:
    """Runs bursts of one kind of pods; ``name`` is the beginning of all their names."""

    def __init__(self, plane: ControlPlane, name: str, size: int, limits: Limits) -> None:
        self._plane = plane
        self._name = name
        self._size = size
        self._limits = limits
        self._shown = progress.Progress("burst")

    def run(self, rounds: int, *, pids: dict[str, int], check: Check = lambda _: None) -> Series:
        """All bursts, and one before them; the last is checked when all its pods are bound.

        ``pids`` are of programs that are not the control plane's.
        """
        pids = {**pids, "this benchmark": os.getpid()}  # which makes and deletes the pods
        with binding_watch.Watch(self._plane.kubeconfig) as watch:
            self._burst(watch, 0)
            before = Counts.now(self._plane, pids)
            bursts = [self._burst(watch, number) for number in range(1, rounds + 1)]
            after = Counts.now(self._plane, pids)
        check(self._plane)
        self._delete(rounds)
        return self._series(bursts, before, after)

    def _burst(self, watch: binding_watch.Watch, number: int) -> Burst:
        with futures.ThreadPoolExecutor(1) as pool:
            leaving = pool.submit(self._delete, number - 1)
            created_at_s = self._create(number)
            watch.wait(self._size * (number + 1), patience_s=_PATIENCE_S)
            leaving.result()
        burst = Burst(created_at_s, watch.times_s(created_at_s))
        which = f"burst {number}" if number else "the burst before the first"
        self._shown.note(f"{self._name}, {which}: {burst.per_second:.1f} pods/s")
        return burst

    def _create(self, number: int) -> dict[str, float]:
        """When each pod was created, by its name."""
        created_at_s = {}

        def create(pod: api.Object) -> None:
            created_at_s[pod["metadata"]["name"]] = time.monotonic()
            self._plane.client.create(pod)

        with futures.ThreadPoolExecutor(_COMING) as pool:
            any(pool.map(create, self._pods(number)))
        return created_at_s

    def _delete(self, number: int) -> None:
        """Delete the pods of a burst, if there was one."""

        def delete(name: str) -> None:
            self._plane.client.delete("Pod", name, grace_seconds=0)

        with futures.ThreadPoolExecutor(_LEAVING) as pool:
            any(pool.map(delete, self._names(number) if number >= 0 else ()))

    def _names(self, number: int) -> list[str]:
        """Those of the first burst begin in another way, so that nobody counts its events."""
        begin = f"{self._name}-{number}" if number else f"before-{self._name}"
        return [f"{begin}-{index}" for index in range(self._size)]

    def _pods(self, number: int) -> list[api.Object]:
        return [
            realistic_objects.pod(name, self._limits(index), cpu="100m")
            for index, name in enumerate(self._names(number))
        ]

    def _failures(self, attempts: dict[str, float]) -> scheduling_failures.Failures:
        if attempts[_UNSCHEDULABLE] or attempts[_ERROR]:
            scheduling_failures.wait_for_events(self._plane.client)
        return scheduling_failures.of_pods(self._plane.client, f"{self._name}-")

    def _series(self, bursts: list[Burst], before: Counts, after: Counts) -> Series:
        pods = self._size * len(bursts)
        attempts = {
            result: (count - before.attempts[result]) / pods
            for result, count in after.attempts.items()
        }
        spent_s = {who: at_s - before.spent_s[who] for who, at_s in after.spent_s.items()}
        return Series(
            bursts=bursts,
            spent_ms={who: 1000 * who_s / pods for who, who_s in spent_s.items()},
            bindings=(after.bindings - before.bindings) / pods,
            attempts=attempts,
            failures=self._failures(attempts),
        )


def _attempts(plane: ControlPlane) -> dict[str, float]:
    name = "scheduler_schedule_attempts_total"
    page = child_processes.page(f"{plane.scheduler_url}/metrics")
    return {result: metrics_page.total(page, name, result=result) for result in _RESULTS}
