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
from partage.dialects import aliyun, base, gaia, hami_records, loads, native, pods, registry

_MOST = 1024  # templates; tenants write them
_LONGEST = 1 << 12  # bytes of one that is remembered
_NULL = b"null"  # what JSON makes of numbers that are none, so of several that are not the same

RECORDS = frozenset(  # whose values say nothing of what a pod asks for
    {
        native.GRANT,
        native.LOOKED_AT,
        aliyun.INDEX,
        aliyun.CARD_UNITS,
        aliyun.POD_UNITS,
        aliyun.ASSIGNED,
        aliyun.ASSUME_TIME,
        aliyun.ALLOCATION,
        gaia.TIME,
        gaia.NODE,
        gaia.ASSIGNED,
        hami_records.ALLOCATED,
        hami_records.TO_ALLOCATE,
        hami_records.NODE,
        hami_records.TIME,
        hami_records.BIND_TIME,
        hami_records.BIND_PHASE,
    }
)

_encode = msgspec.json.Encoder().encode


class Asked(msgspec.Struct, frozen=True):
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
        return errors.DemandError(wrong.field, wrong.problem, instead=wrong.instead)


class Templates:
    """What was read lately."""

    def __init__(self) -> None:
        self._settings: base.Settings | None = None
        self._known: dict[bytes, Asked] = {}

    def asked(self, pod: pods.Pod, settings: base.Settings) -> Asked:
        """What a pod asks for, by these settings."""
        if settings is not self._settings:
            self._settings = settings
            self._known.clear()
        key = _key(pod)
        known = self._known.get(key)
        if known is None:
            known = read(pod, settings)
            self._remember(key, known)
        return known

    def _remember(self, key: bytes, asked: Asked) -> None:
        if not key or len(key) > _LONGEST:
            return
        if len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]  # the oldest; it is soon read again
        self._known[key] = asked


def read(pod: pods.Pod, settings: base.Settings) -> Asked:
    """What a pod asks for, its load in it."""
    load = loads.of(pod)
    try:
        demand = registry.demand(pod, settings)
    except errors.DemandError as error:
        return Asked(load=load, wrong=error)
    if demand is not None:
        demand = msgspec.structs.replace(demand, cpu_milli=load.cpu_milli, main_mib=load.main_mib)
    return Asked(demand, load)


def _key(pod: pods.Pod) -> bytes:
    """All that matters of a pod, as text; empty if there is no telling it apart from others."""
    spec, meta = pod.spec, pod.metadata
    words = list(_words(pod)) if meta.annotations else ()
    label = meta.labels.get(aliyun.COUNT, "")
    counted = aliyun.COUNT in meta.labels
    try:
        key = _encode((spec.containers, spec.init_containers, spec.overhead, words, label, counted))
    except (ValueError, OverflowError):
        return b""
    return b"" if _NULL in key else key


def _words(pod: pods.Pod) -> Iterator[tuple[str, str]]:
    """The annotations that a dialect reads, in order, since the first that is wrong is told."""
    for name, text in pod.metadata.annotations.items():
        if name.startswith(registry.PREFIXES):
            yield name, "" if name in RECORDS else text
