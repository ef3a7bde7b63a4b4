"""Kicking: make kube-scheduler look again at pods it was told do not fit.

kube-scheduler tries a rejected pod again when something in the cluster changes, and it cannot know
that a card has room: its own events often come before ours, or not at all (a sick card that is well
again, a hold that expired). Otherwise such a pod waits for the flush, five minutes later. One patch
of one node is enough to wake all of them, so that is what is done: one patch for all that was freed
within a moment, only if something that was refused since the last one fits by now, and never two
within a second. Each patch makes kube-scheduler ask again about every pod that was refused, so one
that cannot help would cost as much as one that can.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable
from typing import NoReturn

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import deciding
from partage.scheduler import mirror as mirrors

log = logging.getLogger(__name__)

ANNOTATION = "partage.dev/room-since"

_MOMENT_S = 0.05
_PAUSE_S = 1.0


class Kicker:
    """Waits for room, and tells kube-scheduler."""

    def __init__(self, api: kube.Api, *, leading: Callable[[], bool]) -> None:
        self._api = api
        self._leading = leading
        self._freed = asyncio.Event()
        self._node = ""
        self._woken = False  # all are to be asked about, whether anything fits or not
        self._forbidden = False
        self.kicks = 0

    def freed(self, node: str) -> None:
        """A node has more room than before."""
        self._node = node
        self._freed.set()

    def wake(self) -> None:
        """Let kube-scheduler ask again about all that wait, whoever refused them."""
        self._woken = True
        self._freed.set()

    async def run(self, decider: deciding.Decider) -> NoReturn:
        """For ever: one kick after the other."""
        while True:
            await self._freed.wait()
            await asyncio.sleep(_MOMENT_S)
            self._freed.clear()
            if self._leading() and (self._woken or await self._helps(decider)):
                await self._kick_all(decider)
                await asyncio.sleep(_PAUSE_S)

    async def _helps(self, decider: deciding.Decider) -> bool:
        """Whether something that was refused fits by now."""
        if len(decider.refused) >= deciding.MOST_REFUSED:
            return True
        for demand in list(decider.refused):
            if decider.may_fit(demand):
                return True
            await asyncio.sleep(0)
        return False

    async def _kick_all(self, decider: deciding.Decider) -> None:
        refused, woken = dict(decider.refused), self._woken
        decider.refused.clear()
        self._woken = False
        if not await self._kick(decider.mirror):
            decider.refused.update(refused)
            self._woken = woken
            self._freed.set()

    async def _kick(self, mirror: mirrors.Mirror) -> bool:
        # Any node will do, and the one that has room may be gone by now.
        if mirror.fleet.state(self._node) is None:
            self._node = next(iter(mirror.nodes.keys()), self._node)
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        body = {"metadata": {"annotations": {ANNOTATION: now}}}
        try:
            await self._api.patch(f"/api/v1/nodes/{self._node}", body)
        except kube_errors.Forbidden as error:
            self._complain(error)
            return True
        except kube_errors.KubeError as error:
            log.warning(
                "kube-scheduler could not be told that node %s has room: %s", self._node, error
            )
            return False
        self.kicks += 1
        return True

    def _complain(self, error: kube_errors.Forbidden) -> None:
        """Once is enough: rights do not change often, and all else works without this one."""
        if not self._forbidden:
            self._forbidden = True
            log.error(
                "pods that were refused may wait for minutes though there is room: %s; "
                "allow 'patch' on nodes, as deploy/extender.yaml does",
                error,
            )
