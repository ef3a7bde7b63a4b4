"""Presence: a node says that its agent leaves before it does, so that nothing is bound there.

A kubelet fails every pod for good that comes to it while its plugin is away, and a pod without an
owner is lost by it. So an agent that is asked to end, for an update say, writes on its node that it
leaves. From then on the extender places nothing there, while the agent still serves what was bound
before. Then it goes from the kubelet, and takes the mark away when the node's status says that the
node offers nothing: from then on kube-scheduler knows.

One that crashes leaves no mark, and neither does a machine that fails. A mark that was left by one
that was killed meanwhile is taken away by the next, and so is that of a second agent by the first,
which goes on: the one that serves the node opens it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import NoReturn

import msgspec

from partage.dialects import nodes
from partage.kube import api as kube
from partage.kube import errors as kube_errors

log = logging.getLogger(__name__)

_TOLD_S = 5.0  # for the API server to store the mark
_SETTLING_S = 2.0  # others hear of it, and a Binding that is on its way arrives
_PATIENCE_S = 22.0  # of the 30 that a pod has to end
_AGAIN_S = 0.2
_LOOK_S = 2.0  # between two looks at what the node says
_REGISTERING_S = 60.0  # a resource that is never registered does not close the node


class Callbacks(msgspec.Struct, frozen=True):
    """What an agent that leaves waits for; time passes as the clock says."""

    problems: Callable[[], Collection[str]]  # why resources are not registered
    coming: Callable[[], Awaitable[Collection[str]]]  # pods to which the kubelet gave nothing yet
    end: Callable[[], Collection[str]]  # goes from the kubelet; the resources that it had
    offers: Callable[[str], bool]  # whether the node's status still has some of a resource
    marked: Callable[[], bool]  # whether the node says that its agent leaves
    now: Callable[[], dt.datetime]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class Presence:
    """Keeps the mark on this node as it should be."""

    def __init__(self, api: kube.Api, name: str, callbacks: Callbacks) -> None:
        self._api = api
        self._path = f"/api/v1/nodes/{name}"
        self._callbacks = callbacks
        self._serves = False  # and means to stay
        self._turn = asyncio.Lock()  # what is written last is what was meant last

    async def run(self) -> NoReturn:
        """Open the node, and keep it open as long as this agent serves it."""
        await self.arrive()
        while True:
            await self._callbacks.sleep(_LOOK_S)
            if self._serves and self._callbacks.marked() and not self._callbacks.problems():
                log.info("another agent has left; this one serves the node")
                await self._mark(None)

    async def arrive(self) -> None:
        """Take a mark that was left away, once the kubelet counts on this agent."""
        began_at = self._callbacks.clock()
        while self._callbacks.problems() and self._waited_s(began_at) < _REGISTERING_S:
            await self._callbacks.sleep(_AGAIN_S)
        self._serves = True
        while not await self._mark(None):
            await self._callbacks.sleep(_TOLD_S)

    async def leave(self) -> None:
        """Say that the agent leaves, serve what was bound before, and return when all know."""
        began_at = self._callbacks.clock()
        moment = self._callbacks.now().isoformat(timespec="seconds")
        serves, self._serves = self._serves, False
        if not serves or not await self._mark(moment):
            return
        log.info("the agent leaves: nothing new is placed on this node")
        await self._callbacks.sleep(_SETTLING_S)
        await self._serve_all(began_at)
        resources = self._callbacks.end()
        while any(map(self._callbacks.offers, resources)):
            if self._waited_s(began_at) >= _PATIENCE_S:
                log.warning("the node still offers cards; it stays closed until an agent comes")
                return
            await self._callbacks.sleep(_AGAIN_S)
        await self._callbacks.sleep(_SETTLING_S)  # kube-scheduler may hear later than we do
        await self._mark(None)

    async def _serve_all(self, began_at: float) -> None:
        """Until the kubelet has given their devices to all pods that were bound before."""
        while coming := await self._callbacks.coming():
            if self._waited_s(began_at) >= _PATIENCE_S / 2:
                names = ", ".join(sorted(coming))
                log.warning("the kubelet has not admitted these pods, which fail now: %s", names)
                return
            await self._callbacks.sleep(_AGAIN_S)

    def _waited_s(self, began_at: float) -> float:
        return self._callbacks.clock() - began_at

    async def _mark(self, text: str | None) -> bool:
        """Whether the node says so now; without a text it says nothing any more."""
        change = {"metadata": {"annotations": {nodes.AWAY: text}}}
        try:
            async with self._turn:
                await asyncio.wait_for(self._api.patch(self._path, change), _TOLD_S)
        except (kube_errors.KubeError, TimeoutError) as error:
            log.warning("the node does not say whether its agent is there: %s", error)
            return False
        return True
