"""Loads: the CPU and main memory that a pod reserves, as kube-scheduler counts them.

Partage never decides by them, that is the scheduler's business; but a policy that knows how much
CPU a node has left can avoid stranding its cards, and preemption must not spare a pod whose CPU is
needed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from partage.core import errors, quantities
from partage.dialects import pods, rules

_MILLI = 1000


class Load(msgspec.Struct, frozen=True):
    """What a pod reserves of its node besides cards."""

    cpu_milli: int = 0
    main_mib: int = 0

    def __add__(self, other: Load) -> Load:
        return Load(self.cpu_milli + other.cpu_milli, self.main_mib + other.main_mib)


_Sum = TypeVar("_Sum", int, Load)


def of(pod: pods.Pod) -> Load:
    """The pod's load at its worst moment, each dimension by itself, and its overhead."""
    return _worst(pod, _load, _larger, Load()) + amounts(pod.spec.overhead)


def at_worst(pod: pods.Pod, amount: Callable[[pods.Resources], int]) -> int:
    """The most that a pod has of something at one moment, given what each container has."""
    return _worst(pod, amount, max, 0)


def amounts(resources: Mapping[str, pods.Amount]) -> Load:
    """The CPU and memory among some resources."""
    cpu, memory = resources.get("cpu", 0), resources.get("memory", 0)
    return _read(rules.as_text(cpu), rules.as_text(memory))


def _worst(
    pod: pods.Pod, read: Callable[[pods.Resources], _Sum], larger: Callable[..., _Sum], zero: _Sum
) -> _Sum:
    """Init containers run one after another, each beside the sidecars that started before it; then
    all apps run beside all sidecars. A pod may have thousands of them, so they are gone through
    once.
    """
    beside, worst = zero, zero
    for container in pod.spec.init_containers:
        now = beside + read(container.resources)
        worst = larger(worst, now)
        if container.restart_policy == "Always":
            beside = now
    for container in pod.spec.containers:
        beside += read(container.resources)
    return larger(worst, beside)


def _larger(load: Load, other: Load) -> Load:
    return Load(max(load.cpu_milli, other.cpu_milli), max(load.main_mib, other.main_mib))


def _load(resources: pods.Resources) -> Load:
    """Requests; where only a limit is written, the API server makes it the request."""
    return amounts({**resources.limits, **resources.requests})


@functools.lru_cache(maxsize=4096)  # pods come in batches that look alike
def _read(cpu: str, memory: str) -> Load:
    return Load(_milli(cpu), _mib(memory))


def _milli(text: str) -> int:
    try:
        return -int(-quantities.parse(text) * _MILLI // 1)
    except errors.QuantityError:
        return 0  # the API server took it, so it is not a request that a node can serve


def _mib(text: str) -> int:
    try:
        return quantities.to_mib(text)
    except errors.QuantityError:
        return 0
