"""Events of the agent: what people should know, on the node and on the pods it concerns.

A card that falls unhealthy is told to every pod that has a share of it. Nothing is done to them: an
administrator knows whether a job is better finished or moved, and Partage does not.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Callable, Mapping
from typing import NoReturn

import msgspec

from partage.agent import node_state
from partage.agent.pods import node_pods
from partage.core import cards, grants
from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import events

log = logging.getLogger(__name__)

_MOST = 1000  # texts that wait for the API server; what comes then is in the log only

UNHEALTHY, RECOVERED, NOT_SERVED = "CardUnhealthy", "CardRecovered", "ResourceNotServed"
WAITING = "WaitingForCard"
TAKEN, BACK = "RegistrationTaken", "RegisteredAnew"
UNITS_DIFFER = "MemoryUnitsDiffer"
MODE_CHANGED = "ModeChanged"
COMPUTE = "ComputeNotUnderstood"
OUTSIDE, ENDED = "OutsideFence", "EndedOutsideFence"


class Text(msgspec.Struct, frozen=True):
    """One text that is to be told."""

    about: events.About
    reason: str
    message: str
    kind: str = events.WARNING
    news: bool = False  # even if the same was told before: it was otherwise in between


class Teller:
    """Writes the agent's events, one after the other."""

    def __init__(
        self,
        api: kube.Api,
        node: str,
        pods_of_node: node_pods.NodePods,
        *,
        now: Callable[[], dt.datetime],
    ) -> None:
        self._events = events.Events(api, "partage-agent", node, now=now)
        # Kubelets give the name as the uid of their node, and `kubectl describe` looks for that.
        self._node = events.About("Node", node, node)
        self._pods = pods_of_node
        self._due: asyncio.Queue[Text] = asyncio.Queue(_MOST)

    def about_resource(self, resource: str, why: str) -> None:
        """A resource is not served."""
        log.error("%s", why)
        self._tell(Text(self._node, NOT_SERVED, why))

    def about_taken(self, why: str) -> None:
        """Another plugin has registered resources of this agent."""
        log.error("%s", why)
        self._tell(Text(self._node, TAKEN, why, news=True))

    def about_return(self, how: str) -> None:
        """The agent has its resources again, or will in a moment."""
        log.warning("%s", how)
        self._tell(Text(self._node, BACK, how, events.NORMAL, news=True))

    def about_unit(self, why: str) -> None:
        """Nodes of the cluster count memory in different units."""
        log.warning("%s", why)
        self._tell(Text(self._node, UNITS_DIFFER, why))

    def about_mode(self, what: str) -> None:
        """The node is in another mode, and pods of the one before still run."""
        log.warning("%s", what)
        self._tell(Text(self._node, MODE_CHANGED, what, events.NORMAL, news=True))

    def about_waiting(self, pod: grants.Pod, why: str) -> None:
        """A container of a pod waits for others to leave its card; that ends by itself."""
        about = events.About("Pod", pod.name, pod.uid, pod.namespace)
        self._tell(Text(about, WAITING, why, events.NORMAL))

    def about_compute(self, pod: pods.Pod, problem: str) -> None:
        """What a pod says of its compute makes no sense, and has no effect."""
        self._tell(Text(_about(pod), COMPUTE, problem))

    def about_outside(self, pod: pods.Pod, text: str, ended: bool) -> None:
        """A container of a pod holds card memory beside its fence."""
        self._tell(Text(_about(pod), ENDED if ended else OUTSIDE, text))

    def about_cards(
        self,
        before: Mapping[str, str],
        state: node_state.NodeState,
        grant_of: Callable[[pods.Pod], grants.Grant | None],
    ) -> None:
        """The health of cards changed."""
        cards_by_uuid = {card.uuid: card for card in state.node.cards}
        now = state.unhealthy
        for uuid in sorted(before.keys() | now.keys()):
            if uuid in cards_by_uuid and before.get(uuid) != now.get(uuid):
                self._about_card(cards_by_uuid[uuid], now.get(uuid, ""), grant_of)

    async def run(self) -> NoReturn:
        """For ever: tell what is due."""
        while True:
            text = await self._due.get()
            if text.news:
                self._events.forget(text.about)
            await self._events.tell(text.about, text.reason, text.message, kind=text.kind)

    def _about_card(
        self, card: cards.Card, why: str, grant_of: Callable[[pods.Pod], grants.Grant | None]
    ) -> None:
        name = f"card {card.index} ({card.uuid})"
        if why:
            log.error("%s is unhealthy: %s", name, why)
            text = f"{name} is unhealthy: {why}. Nothing new starts there until it is healthy"
        else:
            log.info("%s is healthy again", name)
            text = f"{name} is healthy again"
        kind, reason = (events.WARNING, UNHEALTHY) if why else (events.NORMAL, RECOVERED)
        self._tell(Text(self._node, reason, text, kind, news=True))
        for pod in self._pods.by_uid.values():
            grant = None if pods.ended(pod) else grant_of(pod)
            if grant is not None and card.uuid in grants.uuids(grant):
                self._tell(Text(_about(pod), reason, text, kind, news=True))

    def _tell(self, text: Text) -> None:
        try:
            self._due.put_nowait(text)
        except asyncio.QueueFull:
            log.warning(
                "too many events wait to be sent; the one about %s is dropped: %s",
                text.about.name,
                text.message,
            )


def _about(pod: pods.Pod) -> events.About:
    meta = pod.metadata
    return events.About("Pod", meta.name, meta.uid, meta.namespace)
