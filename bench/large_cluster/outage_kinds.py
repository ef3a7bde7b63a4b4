"""Outage kinds: what the API server goes through while pods are bound.

Each is there for one burst of pods. It begins when it is told to happen, and is over when that
returns. The extender reaches the server by ``kubeconfig``: directly, or through a proxy where the
answers to Bindings are what goes wrong.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import fault_proxy, faults

PAUSED = "paused"
KILLED = "killed"
MISREPORTED = "misreported"
TURNED_AWAY = "turned-away"
NAMES = {
    PAUSED: "API server paused for 10 s",
    KILLED: "API server killed and started again",
    MISREPORTED: "1 in 10 Bindings done and answered with 504",
    TURNED_AWAY: "1 in 10 Bindings answered with 429",
}

_PAUSE_S = 10.0
_ONE_IN = 10
_PATIENCE_S = 120.0
_POLL_S = 0.05

Bound = Callable[[], float]  # the part of all pods that are bound


class Outage(Protocol):
    """One of them."""

    kubeconfig: Path

    def happen(self, bound: Bound) -> None:
        """Begin, in the middle of a burst, and return when it is over."""

    def report(self) -> str:
        """What became of Bindings, if that is known."""


@contextlib.contextmanager
def made(name: str, plane: ControlPlane, folder: Path, pods: int) -> Iterator[Outage]:
    """The outage of a name, for a burst of so many pods."""
    if name == PAUSED:
        yield _Stopped(plane, _pause)
    elif name == KILLED:
        yield _Stopped(plane, _kill)
    else:
        with fault_proxy.FaultProxy(plane, folder) as proxy:
            yield _Answered(proxy, _fault(name), pods)


class _Stopped:
    """The server itself does not answer, from when a quarter of the pods are bound."""

    def __init__(self, plane: ControlPlane, stop: Callable[[ControlPlane], None]) -> None:
        self.kubeconfig = plane.kubeconfig
        self._plane = plane
        self._stop = stop

    def happen(self, bound: Bound) -> None:
        _wait(lambda: bound() >= 0.25)
        self._stop(self._plane)

    def report(self) -> str:
        return ""


class _Answered:
    """Some Bindings are answered wrongly, until there was one for each pod."""

    def __init__(
        self, proxy: fault_proxy.FaultProxy, fault: Callable[[], faults.Fault], pods: int
    ) -> None:
        self.kubeconfig = proxy.kubeconfig
        self._proxy = proxy
        self._fault = fault
        self._pods = pods

    def happen(self, bound: Bound) -> None:
        fault = self._proxy.add(self._fault())
        _wait(lambda: bound() >= 1 or self._proxy.count(faults.BINDINGS) >= self._pods)
        fault.end()

    def report(self) -> str:
        outcomes = self._proxy.outcomes().items()
        counted = (
            f"{count} x {outcome.server_status or 'not asked'} told as {outcome.client_status}"
            for outcome, count in sorted(outcomes)
            if outcome.resource == faults.BINDINGS.resource
        )
        return f"; Bindings: {', '.join(counted)}"


def _pause(plane: ControlPlane) -> None:
    plane.pause_apiserver()
    try:
        time.sleep(_PAUSE_S)
    finally:
        plane.resume_apiserver()


def _kill(plane: ControlPlane) -> None:
    plane.kill_apiserver()
    plane.start_apiserver()


def _fault(name: str) -> Callable[[], faults.Fault]:
    if name == MISREPORTED:
        return lambda: faults.misreport(faults.BINDINGS, 504, one_in=_ONE_IN)
    return lambda: faults.turn_away(faults.BINDINGS, 429, retry_after_s=1, one_in=_ONE_IN)


def _wait(over: Callable[[], bool]) -> None:
    """Return when it is over, or when it takes too long: what that means is for others to say."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while not over() and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
