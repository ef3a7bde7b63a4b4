"""Pods with a share of a card that falls unhealthy are told, and no others."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from partage.agent.cluster import agent_events
from partage.core import grants
from partage.dialects import bound_pods, pods
from partage.kube import api
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY
from tests.dialects import dialect_pods
from tests.kube import api_clients, scripted_server

FIRST, SECOND = agent_node.uuid(0), agent_node.uuid(1)
Event = tuple[str, str, str]


class Node:
    """A node with pods on two cards, and somebody who tells of them."""

    def __init__(self, client: api.Api, server: scripted_server.Server) -> None:
        server.respond = lambda _: scripted_server.Answer(status=201)
        self.server = server
        self.facts = agent_node.facts()
        over = agent_node.ended(agent_node.pod("over", {MEMORY: 1}, 0))
        stray = agent_node.unplaced("stray", {MEMORY: 1})
        plain = agent_node.unplaced("plain", {})
        running = [
            agent_node.pod("first", {MEMORY: 1}, 0),
            agent_node.pod("second", {MEMORY: 1}, 1),
        ]
        self.pods = agent_node.Pods(*running, over, stray, plain)
        now = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        self.teller = agent_events.Teller(client, agent_node.NODE, self.pods, now=lambda: now)

    def judge(self, **unhealthy: str) -> None:
        """The health of cards was judged; those that are named are unhealthy."""
        before = self.facts.unhealthy
        names = {"first": FIRST, "second": SECOND, "unknown": "GPU-x"}
        self.facts.set_unhealthy({names[name]: why for name, why in unhealthy.items()})
        self.teller.about_cards(before, self.facts, self.grant)

    def grant(self, pod: pods.Pod) -> grants.Grant | None:
        """What a pod has."""
        grant = bound_pods.granted(pod, self.facts.node, dialect_pods.SETTINGS)
        return grant if isinstance(grant, grants.Grant) else None

    async def events(self) -> list[Event]:
        """What is told in all: to whom, why, and of which kind."""
        self.teller.about_resource("x/y", "the end")  # comes after all that is due
        async with api_clients.running(self.teller.run()):
            await scripted_server.until(lambda: self.messages()[-1:] == ["the end"])
        events = [
            (event["involvedObject"]["name"], event["reason"], event["type"])
            for event in self._all()
        ]
        return events[:-1]

    def messages(self) -> list[str]:
        """All texts."""
        return [event["message"] for event in self._all()]

    def _all(self) -> list[Any]:
        return agent_node.bodies(self.server, "POST")


@pytest.fixture
def node(client: api.Api, server: scripted_server.Server) -> Node:
    """Where nothing was told yet."""
    return Node(client, server)


def unhealthy(name: str) -> Event:
    """That a card is unhealthy."""
    return name, "CardUnhealthy", "Warning"


def well(name: str) -> Event:
    """That it is healthy again."""
    return name, "CardRecovered", "Normal"


async def test_pods_on_the_card_are_told_and_others_not(node: Node) -> None:
    """Nor is one that ended, that has no grant, or that wants no card; the node always is."""
    node.judge(first="Xid 79: fallen off the bus")
    assert await node.events() == [unhealthy("gpu-1"), unhealthy("first")]
    text = f"card 0 ({FIRST}) is unhealthy: Xid 79: fallen off the bus. Nothing new starts there"
    assert node.messages()[:2] == [f"{text} until it is healthy"] * 2


async def test_only_what_changed_is_told(node: Node) -> None:
    """The problem of the other card is old."""
    node.judge(second="lost")
    node.judge(second="lost", first="lost")
    assert await node.events() == [
        unhealthy("gpu-1"),
        unhealthy("second"),
        unhealthy("gpu-1"),
        unhealthy("first"),
    ]


async def test_another_reason_is_news(node: Node) -> None:
    """It may decide what is to be done with the node."""
    node.judge(first="Xid 48")
    node.judge(first="Xid 79")
    assert await node.events() == [unhealthy("gpu-1"), unhealthy("first")] * 2


async def test_a_card_that_falls_unhealthy_again_is_told_again(node: Node) -> None:
    """With the same words, however slow the API server is: the last text is the truth."""
    node.judge(first="lost")
    node.judge()
    node.judge(first="lost")
    assert await node.events() == [
        unhealthy("gpu-1"),
        unhealthy("first"),
        well("gpu-1"),
        well("first"),
        unhealthy("gpu-1"),
        unhealthy("first"),
    ]


async def test_nothing_is_told_of_cards_that_nobody_knows(node: Node) -> None:
    """There is no index to name them by."""
    node.judge(unknown="lost")
    assert await node.events() == []


async def test_a_resource_that_is_not_served_is_told_once(node: Node) -> None:
    """On the node, as often as it is found."""
    for _ in range(3):
        node.teller.about_resource("x/y", "too many")
    assert await node.events() == [("gpu-1", "ResourceNotServed", "Warning")]


async def test_texts_that_wait_are_bounded(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the API server is away; what is left out is in the log."""
    waiting = agent_events._MOST
    for number in range(waiting + 5):
        node.teller.about_resource("x/y", f"text {number}")
    assert f"the one about {agent_node.NODE} is dropped: text {waiting + 4}" in caplog.text
    assert f"the one about {agent_node.NODE} is dropped: text {waiting - 1}" not in caplog.text
    assert node.teller._due.qsize() == waiting
