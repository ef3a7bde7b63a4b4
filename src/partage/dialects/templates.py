"""Templates: what pods ask for, read once for all pods that are made alike.

A pod is read again and again: by filter, prioritize and bind, and with each event of the watch. To
read one takes 25 µs, to find what was read before takes 2 (``make bench ARGS=filter``). It is found
by the text of everything that :func:`registry.demand` and :func:`loads.of` can see, so the answer
is the one that reading would give. Records of grants differ from pod to pod; of these only the
names count, as nothing else of them is looked at to know what a pod asks for.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from partage.core import demands, errors
from partage.dialects import contract, loads, pods, registry, spread_groups

_MOST = 1024  # templates; tenants write them
_LONGEST = 1 << 12  # bytes of one that is remembered
_NULL = b"null"  # what JSON makes of NaN and infinities, so of numbers that differ

_encode = msgspec.json.Encoder().encode


class Reading(msgspec.Struct, frozen=True):
    """What a pod asks for, and its load; or what is wrong with its request."""

    demand: demands.PodDemand | None = None  # None: no card in any known dialect
    load: loads.Load = loads.Load()
    wrong: errors.DemandError | None = None

    @property
    def error(self) -> errors.DemandError | None:
        """The error, new each time, since raising one writes on it."""
        wrong = self.wrong
        if wrong is None:
            return None
        return errors.DemandError(
            wrong.field, wrong.problem, also=wrong.also, instead=wrong.instead
        )


class Templates:
    """What was read lately."""

    def __init__(self) -> None:
        self._settings: contract.Settings | None = None
        self._readings: dict[bytes, Reading] = {}

    def reading(self, pod: pods.Pod, settings: contract.Settings) -> Reading:
        """What a pod asks for, by these settings."""
        if settings is not self._settings:
            self._settings = settings
            self._readings.clear()
        key = _key(pod)
        reading = self._readings.get(key)
        if reading is None:
            reading = read(pod, settings)
            self._remember(key, reading)
        return reading

    def _remember(self, key: bytes, reading: Reading) -> None:
        if not key or len(key) > _LONGEST:
            return
        if len(self._readings) >= _MOST:
            del self._readings[next(iter(self._readings))]  # the oldest; it is soon read again
        self._readings[key] = reading


def read(pod: pods.Pod, settings: contract.Settings) -> Reading:
    """What a pod asks for, its load in it."""
    load = loads.of(pod)
    try:
        demand = registry.demand(pod, settings)
    except errors.DemandError as error:
        return Reading(load=load, wrong=error)
    if demand is not None:
        demand = msgspec.structs.replace(demand, cpu_milli=load.cpu_milli, main_mib=load.main_mib)
    return Reading(demand, load)


def _key(pod: pods.Pod) -> bytes:
    """All that matters of a pod, as text; empty if it cannot be told apart from others."""
    spec, meta = pod.spec, pod.metadata
    names = registry.names()
    words = list(_words(pod, names)) if meta.annotations else ()
    labels = [(name, meta.labels[name]) for name in names.pod_labels if name in meta.labels]
    group = spread_groups.facts(pod)
    # What a pod names in an annotation, such as a claim, is of its own namespace.
    if words and any(name.startswith(names.asking_annotations) for name, _ in words):
        group = (*group, meta.namespace)
    try:
        key = _encode((spec.containers, spec.init_containers, spec.overhead, words, labels, group))
    except (ValueError, OverflowError):
        return b""
    return b"" if _NULL in key else key


def _words(pod: pods.Pod, names: registry.Names) -> Iterator[tuple[str, str]]:
    """The annotations that a dialect reads, in order, since the first that is wrong is told."""
    for name, text in pod.metadata.annotations.items():
        if name.startswith(names.annotation_prefixes):
            yield name, "" if name in names.record_annotations else text
