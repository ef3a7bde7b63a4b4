"""Requeue: make kube-scheduler look again at pods that were refused.

kube-scheduler tries a rejected pod again when something in the cluster changes, and it cannot know
that a card has room: its own events often come before ours, or not at all (an unhealthy card that
is healthy again, a hold that expired, a namespace whose total was raised). Otherwise such a pod
waits for the flush, five minutes later. One patch of one node is enough to wake all of them, so
that is what is done: one patch for all that was freed within a moment, only if something that was
refused since the last one fits by now, and never two within a second. Each patch makes
kube-scheduler ask again about every pod that was refused, so one that cannot help would cost as
much as one that can.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from typing import NoReturn

from partage.core import demands, fleet
from partage.core.placement import rooms
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

ANNOTATION = "partage.dev/room-since"
MOST_REFUSED = 64  # demands that are remembered; tenants write them

_MOMENT_S = 0.05
_PAUSE_S = 1.0


class Requeue:
    """Waits for room, and makes kube-scheduler try the refused pods again."""

    def __init__(self, api: kube.Api, *, leading: Callable[[], bool]) -> None:
        self._api = api
        self._leading = leading
        self._freed = asyncio.Event()
        self._node = ""  # the one that was freed last
        self._wake_all = False  # whether anything fits or not
        self._forbidden = False
        # What did not fit since the last patch, and in which namespace, if that has a total.
        self.refused: dict[tuple[demands.PodDemand, str], None] = {}
        self.patches = 0

    def note_refused(self, demand: demands.PodDemand, namespace: str = "") -> None:
        """A pod with this demand was refused; ``namespace`` is where it is, if that has a total."""
        if len(self.refused) < MOST_REFUSED:
            self.refused[demand, namespace] = None

    def note_freed(self, node: str) -> None:
        """A node has more room than before; without a name: a namespace may have more."""
        self._node = node
        self._freed.set()

    def wake_all(self) -> None:
        """Make kube-scheduler try all pods again, also those that another replica refused."""
        self._wake_all = True
        self._freed.set()

    async def run(self, mirror: mirrors.Mirror) -> NoReturn:
        """For ever: a patch whenever it can help."""
        while True:
            await self._freed.wait()
            await asyncio.sleep(_MOMENT_S)
            self._freed.clear()
            if self._leading() and (self._wake_all or await self._helps(mirror.fleet)):
                await self._wake(mirror)
                await asyncio.sleep(_PAUSE_S)

    async def _helps(self, fleet: fleet.Fleet) -> bool:
        """Whether something that was refused fits by now, as far as that is known at once."""
        if len(self.refused) >= MOST_REFUSED:
            return True
        for demand, namespace in list(self.refused):
            if fleet.prepare(demand) is not None or fleet.best(demand, namespace=namespace):
                return True
            await asyncio.sleep(0)
        return False

    async def _wake(self, mirror: mirrors.Mirror) -> None:
        refused, wake_all = dict(self.refused), self._wake_all
        self.refused.clear()
        self._wake_all = False
        if not await self._patch(mirror):
            self.refused.update(refused)
            self._wake_all = wake_all
            self._freed.set()

    async def _patch(self, mirror: mirrors.Mirror) -> bool:
        # Any node with cards will do, and the one that has room may be gone by now. What has none
        # is not ours to write on: another vendor's node, say.
        if not self._has_cards(mirror.fleet.state(self._node)):
            states = filter(self._has_cards, mirror.fleet.states())
            self._node = next((state.node.name for state in states), "")
        if not self._node:
            return True  # nothing fits anywhere
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        body = {"metadata": {"annotations": {ANNOTATION: now}}}
        try:
            await self._api.patch(f"/api/v1/nodes/{self._node}", body)
        except kube_errors.Forbidden as error:
            self._complain(error)
            return True
        except kube_errors.KubeError as error:
            log.warning(
                "kube-scheduler does not know yet that node %s has room; trying again: %s",
                self._node,
                error,
            )
            return False
        self.patches += 1
        return True

    @staticmethod
    def _has_cards(state: rooms.NodeState | None) -> bool:
        return state is not None and bool(state.node.cards)

    def _complain(self, error: kube_errors.Forbidden) -> None:
        """Once is enough: rights do not change often, and all else works without this one."""
        if not self._forbidden:
            self._forbidden = True
            log.error(
                "pods that were refused may wait for minutes although there is room: %s; "
                "allow 'patch' on nodes, as deploy/extender.yaml does",
                error,
            )
