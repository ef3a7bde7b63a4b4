"""The health of cards: a thread that waits for NVML and tells which are unhealthy, and why.

The thread itself decides nothing: events and looks come from
:mod:`partage.devices.nvml_events`, and :mod:`partage.devices.health_rules` decides what they mean.
It is a thread because NVML's wait blocks, and one of its own because a broken driver may hold a
call for long.

NVML itself may fail: the driver is unloaded, updated, or not there yet. Then all cards that were
ever seen are unhealthy, with that as the reason, and it is opened again at every look. A Watcher
can be started before there is a driver.

A context on an unhealthy card is tried by a thread for each card: a program that hangs in a broken
driver cannot be killed, and must not take the watch with it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType

import msgspec

from partage.core import errors
from partage.devices import context_measurement, health_rules, nvml_events

_NONE: Mapping[str, str] = {}
_PATIENCE_S = 5.0
_SLICE_S = 0.5  # of waiting, after which the watch checks whether it has to stop


class Unhealthy(msgspec.Struct, frozen=True):
    """An unhealthy card, and why in few words."""

    uuid: str
    reason: str


class Watcher:
    """Calls ``changed`` with all unhealthy cards and their reasons whenever those change.

    The first call comes with the first change: as long as all are healthy there is none. ``probe``
    says whether a context can be made on a card. ``ignored`` are Xids beyond those of applications
    that make no card unhealthy. ``before`` are the cards that an earlier watch left unhealthy, and
    why: an Xid is told once, and a card does not become healthy because the watch starts again.
    """

    def __init__(
        self,
        changed: Callable[[Mapping[str, str]], None],
        *,
        every_s: float = 5.0,
        patience: health_rules.Patience | None = None,
        ignored: Collection[int] = (),
        before: Mapping[str, str] = _NONE,
        probe: Callable[[str], bool] = context_measurement.can_make_context,
    ) -> None:
        self._changed = changed
        self._every_s = every_s
        self._patience = patience or health_rules.Patience()
        self._ignored = frozenset(ignored)
        self._probes = _Probes(probe)
        self._verdicts = {
            uuid: health_rules.struck(health_rules.Verdict(), reason, time.monotonic())
            for uuid, reason in before.items()
        }
        self._told: dict[str, str] = {}
        self._looked_s = time.monotonic()
        self._listener: nvml_events.Listener | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="card-health", daemon=True)

    def start(self) -> None:
        """Begin to watch; the first look is at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch; afterwards ``changed`` is not called."""
        self._stopped.set()
        self._thread.join(_PATIENCE_S)  # a driver that hangs must not keep us

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def silent_s(self) -> float:
        """For how long no look at the cards has ended; long means that the driver hangs."""
        return time.monotonic() - self._looked_s

    @property
    def unhealthy(self) -> tuple[Unhealthy, ...]:
        """The cards that are unhealthy now, as they were last told."""
        return tuple(Unhealthy(uuid, reason) for uuid, reason in sorted(self._told.items()))

    def _watch(self) -> None:
        due_s = time.monotonic()
        while not self._stopped.is_set():
            if time.monotonic() >= due_s:
                self._look()
                due_s = time.monotonic() + self._every_s
            else:
                self._hear(min(_SLICE_S, due_s - time.monotonic()))
            self._tell()
        self._close()

    def _look(self) -> None:
        now_s = time.monotonic()
        for uuid, look in self._looks().items():
            verdict = self._verdicts.get(uuid, health_rules.Verdict())
            seen = msgspec.structs.replace(look, context=self._probes.answer(uuid))
            verdict = health_rules.looked(verdict, seen, now_s, self._patience)
            if health_rules.wants_context(verdict, seen, now_s, self._patience):
                self._probes.begin(uuid)
            self._verdicts[uuid] = verdict
        self._looked_s = time.monotonic()

    def _looks(self) -> dict[str, health_rules.Look]:
        """At all cards. NVML is reopened if it failed, or if a card is gone: see nvml_events."""
        if any(verdict.lost for verdict in self._verdicts.values()):
            self._close()
        try:
            self._listener = self._listener or nvml_events.Listener()
            return self._listener.looks(self._verdicts)
        except errors.DeviceError as error:
            self._close()
            return dict.fromkeys(self._verdicts, health_rules.Look(problem=error.what))

    def _hear(self, timeout_s: float) -> None:
        if self._listener is None or not self._listener.hears:
            self._stopped.wait(timeout_s)
            return
        try:
            event = self._listener.wait(timeout_s)
        except errors.DeviceError:  # the next look tells of what
            self._close()
            return
        if event is not None:
            self._strike(event)

    def _strike(self, event: nvml_events.Event) -> None:
        ignored = self._ignored
        reason = (
            health_rules.MEMORY
            if event.xid is None
            else health_rules.xid_reason(event.xid, ignored)
        )
        if not reason:
            return
        now_s = time.monotonic()
        for uuid in self._verdicts if event.uuid is None else (event.uuid,):
            verdict = self._verdicts.get(uuid, health_rules.Verdict())
            self._verdicts[uuid] = health_rules.struck(verdict, reason, now_s)

    def _tell(self) -> None:
        verdicts = self._verdicts.items()
        unhealthy = {uuid: verdict.reason for uuid, verdict in verdicts if verdict.reason}
        if unhealthy != self._told and not self._stopped.is_set():
            self._told = unhealthy
            self._changed(dict(unhealthy))

    def _close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        self._listener = None


class _Probes:
    """Tries of contexts, at most one for each card at a time."""

    def __init__(self, probe: Callable[[str], bool]) -> None:
        self._probe = probe
        self._answers: dict[str, bool | None] = {}  # None: not yet

    def begin(self, uuid: str) -> None:
        if uuid in self._answers:
            return
        self._answers[uuid] = None
        threading.Thread(target=self._try, args=(uuid,), daemon=True).start()

    def answer(self, uuid: str) -> bool | None:
        """What came of a try, once."""
        answer = self._answers.get(uuid)
        if answer is not None:
            del self._answers[uuid]
        return answer

    def _try(self, uuid: str) -> None:
        answer = False
        try:
            answer = self._probe(uuid)
        finally:
            self._answers[uuid] = answer
