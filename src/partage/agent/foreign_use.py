"""Foreign use: what processes outside Partage hold of the node's cards, as the scheduler is told.

A display, somebody's shell, a privileged pod that asks for no card: what they hold cannot be
granted. Only what is proven is told: a process counts when two looks in a row found it foreign
(:mod:`partage.agent.process_owners`), and the agent's own processes never do.

Each change of the node makes kube-scheduler try every pod again that was refused. So amounts are
told in coarse steps; more at once, but for a pause after each change, and less when it has been
less for a while. A process whose use goes up and down counts with the most that it had.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from partage.devices import foreign_memory, nvml
from partage.fence import processes

log = logging.getLogger(__name__)

STEP_MIB = 256  # amounts are multiples of it, rounded up
PAUSE_S = 5.0  # between two changes
LESS_S = 10.0  # how long it must be less before less is told


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """The cards that the driver told of at one moment, and who is proven to be foreign."""

    taken_s: float  # of a clock that does not jump
    cards: tuple[nvml.Occupancy, ...]
    foreign: Mapping[int, int]  # when each started, by pid: ids come again


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler is told, and since when it could be told less."""

    mib: Mapping[str, int] = {}  # by uuid
    changed_s: float = float("-inf")
    less_since_s: Mapping[str, float] = {}  # by uuid


def look(
    cards: Iterable[nvml.Occupancy],
    is_foreign: Callable[[processes.Facts], bool],
    *,
    taken_s: float,
) -> Look:
    """Ask the kernel about the processes that the driver has just named."""
    seen = tuple(cards)
    pids = sorted({holder.pid for card in seen for holder in card.processes})
    return Look(taken_s=taken_s, cards=seen, foreign=dict(_foreign(pids, is_foreign)))


def confirmed(before: Look, now: Look) -> dict[str, int]:
    """What those hold who were foreign in both looks: MiB by uuid, of each card that answers."""
    pids = {pid for pid, started in now.foreign.items() if before.foreign.get(pid) == started}
    return {card.uuid: _held_mib(card, pids) for card in now.cards}


def told(before: Told, held_mib: Mapping[str, int], now_s: float) -> Told:
    """What is to be told after a look; a card that did not answer is as it was."""
    less_since_s = {
        uuid: before.less_since_s.get(uuid, now_s)
        for uuid, mib in held_mib.items()
        if _is_less(mib, before.mib.get(uuid, 0))
    }
    due = {
        uuid: _stepped(mib)
        for uuid, mib in held_mib.items()
        if _stepped(mib) > before.mib.get(uuid, 0)
        or now_s - less_since_s.get(uuid, now_s) >= LESS_S
    }
    if not due or now_s - before.changed_s < PAUSE_S:
        return msgspec.structs.replace(before, less_since_s=less_since_s)
    amounts = {uuid: mib for uuid, mib in {**before.mib, **due}.items() if mib}
    waiting = {uuid: since for uuid, since in less_since_s.items() if uuid not in due}
    return Told(mib=amounts, changed_s=now_s, less_since_s=waiting)


class ForeignUse:
    """Follows the looks, and says when the scheduler is to be told something else."""

    def __init__(self, changed: Callable[[Mapping[str, int]], None]) -> None:
        self._changed = changed
        self._last = Look(taken_s=0.0, cards=(), foreign={})
        self._told = Told()

    def recall(self, mib: Mapping[str, int]) -> None:
        """An earlier run of the agent told this; it holds until looks say otherwise."""
        self._told = Told(mib=dict(mib))

    def notice(self, now: Look) -> None:
        """One more look was taken."""
        before, held_mib = self._told, confirmed(self._last, now)
        self._last = now
        self._told = told(before, held_mib, now.taken_s)
        if self._told.mib == before.mib:
            return
        for uuid in sorted({*before.mib, *self._told.mib}):
            amounts = before.mib.get(uuid, 0), self._told.mib.get(uuid, 0)
            if amounts[0] != amounts[1]:
                log.info("card %s: %s", uuid, _text(amounts[1], _pids(now, uuid)))
        self._changed(self._told.mib)


def _foreign(
    pids: Iterable[int], is_foreign: Callable[[processes.Facts], bool]
) -> Iterator[tuple[int, int]]:
    for pid in pids:
        process = processes.facts(pid)
        if process is None or not is_foreign(process):
            continue
        if os.getpid() not in processes.ancestors(pid):  # it may measure what a context costs
            yield pid, process.started_ticks


def _held_mib(card: nvml.Occupancy, pids: set[int]) -> int:
    """At least 1 if anybody is there: the card is not unused then."""
    if pids.isdisjoint(holder.pid for holder in card.processes):
        return 0
    return max(1, foreign_memory.held_mib(card.processes, pids, card.used_bytes))


def _is_less(held_mib: int, last_mib: int) -> bool:
    """Whether so much is in use that less can be told, and not for a moment only."""
    spare_mib = STEP_MIB // 2 if held_mib else 0
    return _stepped(held_mib + spare_mib) < last_mib


def _stepped(mib: int) -> int:
    return -(-mib // STEP_MIB) * STEP_MIB


def _pids(now: Look, uuid: str) -> list[int]:
    holders = (holder.pid for card in now.cards if card.uuid == uuid for holder in card.processes)
    return [pid for pid in holders if pid in now.foreign]


def _text(mib: int, pids: list[int]) -> str:
    if not mib:
        return "no process outside Partage uses it any more"
    names = ", ".join(map(str, pids[:8]))
    return f"processes outside Partage ({names}) use up to {mib} MiB, which are not granted"
