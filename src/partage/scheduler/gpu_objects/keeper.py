"""The keeper: GPU objects stay equal to the cards of the fleet.

It compares. What the fleet says of a node's cards is computed again when the node has changed, and
compared with what the API server has; what differs waits to be written. So it makes no difference
whether a change was seen, a predecessor was killed in the middle, or somebody edited an object: the
next comparison finds it. Only a replica that leads and has read everything compares and writes, and
it reads the objects first.

Decisions are made on the same event loop. Comparing goes in small steps (a node with 8 cards takes
0.06 ms), and writes have a rate, however many objects wait. docs/performance.md has the numbers,
bench/benchmarks/gpu_objects.py measures them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import NoReturn

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube.reflection import reflector
from partage.scheduler.gpu_objects import (
    card_objects,
    definition,
    stored_objects,
    write_queue,
    writer,
)
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

# A write costs the API server about as much as a Binding, and pods matter more than their picture.
# So Bindings and these writes together have a rate: in a storm of binds objects are written at a
# fifth of it, and what changed often meanwhile is one write. Alone, 40,000 cards take 13 minutes.
MOST_PER_S = 100.0
_LEAST_PART = 5
_WRITERS = 4  # requests under way at a time
_LOOK_S = 0.5  # between comparisons; a pod's containers start together, and are one write
_AT_ONCE = 8  # nodes between two breaths
_SWEEP_S = 300.0  # after which all nodes are compared, and a definition is looked for
_PAUSE_S = 1.0  # after a request that failed
_OURS = {"labelSelector": f"{card_objects.MANAGER_LABEL}={card_objects.MANAGER}"}
_PROBLEM = "GPU objects"


class Keeper:
    """Keeps the objects of all cards."""

    def __init__(
        self,
        api: kube.Api,
        mirror: mirrors.Mirror,
        *,
        ready: Callable[[], bool],
        binds: Callable[[], int] = lambda: 0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api = api
        self._fleet = mirror.fleet
        self._problems = mirror.problems
        self._ready = ready  # whether it leads, and everything was read
        self._binds = binds  # how many Bindings were sent so far
        self._binds_before = 0
        self._clock = clock
        self._sleep = sleep
        self._refusals: set[str] = set()  # objects that could not be written for a lasting reason
        self._absent = False  # whether it was said that there is nothing to keep
        self.written = 0  # requests so far
        self._begin()

    @property
    def waiting(self) -> int:
        """How many objects are not yet what they should be."""
        return len(self._queue)

    async def run(self) -> NoReturn:
        """For ever: keep the objects, where they are defined."""
        while True:
            form = await self._definition() if self._ready() else None
            if form is not None:
                await self._keep(form)
            await self._sleep(_SWEEP_S if self._absent else _PAUSE_S)

    async def compare(self) -> None:
        """Find what is to be written since this was last called, in small steps."""
        for count, node in enumerate(self._changed_nodes()):
            if count % _AT_ONCE == 0:
                await asyncio.sleep(0)
            self._compare(node)

    def _begin(self) -> None:
        """Nothing is known of the objects."""
        self._queue = write_queue.WriteQueue()
        self._moment: int | None = None  # of the fleet, up to which nodes were compared
        self._sweep_at = 0.0
        self._due: set[str] = set()  # nodes to compare, though the fleet says nothing of them
        self.stored = stored_objects.StoredObjects(self._due.add)

    async def _definition(self) -> definition.Definition | None:
        """How objects are written; None if there is nothing to write them to."""
        try:
            form = await definition.read(self._api)
        except kube_errors.Forbidden as error:
            self._forbidden(error)
            self._absent = True
            return None
        except kube_errors.KubeError as error:
            log.warning("whether there are GPU objects cannot be told; trying again: %s", error)
            return None
        if form is None and not self._absent:
            log.info(
                "there are no GPU objects to keep: their definition is not installed "
                "(deploy/claims.yaml has it)"
            )
        self._absent = form is None
        return form

    async def _keep(self, form: definition.Definition) -> None:
        """Compare and write, until the definition is gone."""
        self._begin()
        reflected = reflector.Reflector(
            *(self._api, definition.PATH, stored_objects.Gpu, self.stored),
            key=lambda gpu: gpu.metadata.name,
            query=_OURS,
        )
        hand = writer.Writer(self._api, form, self.stored)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(reflected.run())
                group.create_task(self._look(reflected.synced))
                for _ in range(_WRITERS):
                    group.create_task(self._write(hand))
        except* writer.Absent as gone:
            log.warning("GPU objects are kept no longer: %s", gone.exceptions[0])

    async def _look(self, read: asyncio.Event) -> NoReturn:
        while True:
            await read.wait()
            if self._ready():
                await self.compare()
            else:
                self._moment = None  # all of them, when it leads again
            await self._sleep(_LOOK_S)

    def _changed_nodes(self) -> Collection[str]:
        """The nodes whose objects may differ by now."""
        since, self._moment = self._moment, self._fleet.moment
        changed = None if since is None else self._fleet.changed(since)
        due = self._due.copy()
        self._due.clear()
        if changed is None or self._clock() >= self._sweep_at:
            self._sweep_at = self._clock() + _SWEEP_S
            changed = set(self._fleet.names())
        return changed | due | (self.stored.nodes() - self._fleet.names())

    def _compare(self, node: str) -> None:
        names = set(self.stored.names(node))
        names |= {name for name in self._refusals if card_objects.node_of(name) == node}
        for card in self._cards(node):
            names.discard(card.name)
            stored = self.stored.get(card.name)
            if stored is None or stored.digest != card.digest:
                self._queue.add(card.name)
        for name in names:
            self._queue.add(name)

    def _cards(self, node: str) -> Iterator[card_objects.CardObject]:
        """The objects of a node as they should be; none if it is gone."""
        state = self._fleet.state(node)
        if state is None:
            return iter(())
        held = frozenset(uid for uid in state.grants if self._fleet.hold_of(uid) is not None)
        if held:
            self._due.add(node)  # a hold that is confirmed is no change to the fleet
        return card_objects.of_node(state, held)

    async def _write(self, hand: writer.Writer) -> NoReturn:
        """One object after the other, at this writer's part of the rate."""
        while True:
            name = await self._queue.next()
            began_at = self._clock()
            try:
                requests = await self._settle(hand, name)
            finally:
                self._queue.done(name)
            self.written += requests
            until_s = began_at + self._turns(requests) * _WRITERS / MOST_PER_S
            await self._sleep(max(0.0, until_s - self._clock()))

    def _turns(self, requests: int) -> int:
        """How many turns of the rate are used up: by the requests, and by Bindings meanwhile."""
        binds = self._binds()
        meanwhile, self._binds_before = binds - self._binds_before, binds
        return min(requests + meanwhile, requests * _LEAST_PART)

    async def _settle(self, hand: writer.Writer, name: str) -> int:
        """Write an object as it should be now; what failed is compared again."""
        node = card_objects.node_of(name)
        if not self._ready():
            self._due.add(node)
            return 0
        card = next((card for card in self._cards(node) if card.name == name), None)
        try:
            requests = await hand.write(name, card)
        except kube_errors.Conflict as error:
            log.debug("GPU object %s is another by now: %s", name, error)
            self._due.add(node)
            return 2
        except (kube_errors.Forbidden, kube_errors.Invalid, writer.Foreign) as error:
            self._refused(name, error)
            return 1
        except kube_errors.KubeError as error:
            log.warning("GPU object %s is not up to date; trying again: %s", name, error)
            await self._sleep(max(_PAUSE_S, getattr(error, "retry_after_s", 0.0)))
            self._due.add(node)
            return 1
        self._refusals.discard(name)
        self._problems.set(f"GPU object {name}", "")
        if requests:
            self._problems.set(_PROBLEM, "")
        return requests

    def _refused(self, name: str, error: Exception) -> None:
        """What will be refused again is tried again with the next change, or the next sweep."""
        if isinstance(error, kube_errors.Forbidden):
            self._forbidden(error)
        else:
            self._refusals.add(name)
            self._problems.set(f"GPU object {name}", str(error))

    def _forbidden(self, error: kube_errors.Forbidden) -> None:
        text = f"{error}; allow what deploy/extender.yaml allows on gpus of elasticgpu.io"
        self._problems.set(_PROBLEM, text)
