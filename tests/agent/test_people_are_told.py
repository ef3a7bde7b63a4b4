"""Who has a share of a card that falls sick is told, and nobody else."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from partage.agent import telling
from partage.core import grants
from partage.dialects import pods, registry
from partage.kube import api
from tests.agent import making
from tests.agent.making import MEMORY
from tests.dialects import making as dialects
from tests.kube import making as kube
from tests.kube import scripted

FIRST, SECOND = making.uuid(0), making.uuid(1)
Told = tuple[str, str, str]


class Node:
    """A node with pods on two cards, and somebody who tells of them."""

    def __init__(self, client: api.Api, server: scripted.Server) -> None:
        server.respond = lambda _: scripted.Answer(status=201)
        self.server = server
        self.facts = making.facts()
        over = making.ended(making.pod("over", {MEMORY: 1}, 0))
        stray = making.unplaced("stray", {MEMORY: 1})
        plain = making.unplaced("plain", {})
        there = [making.pod("first", {MEMORY: 1}, 0), making.pod("second", {MEMORY: 1}, 1)]
        self.pods = making.Pods(*there, over, stray, plain)
        now = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
        self.teller = telling.Teller(client, making.NODE, self.pods, now=lambda: now)

    def judge(self, **sick: str) -> None:
        """The health of cards was judged; those that are named are sick."""
        before = self.facts.sick
        names = {"first": FIRST, "second": SECOND, "unknown": "GPU-x"}
        self.facts.set_sick({names[name]: why for name, why in sick.items()})
        self.teller.about_cards(before, self.facts, self.grant)

    def grant(self, pod: pods.Pod) -> grants.Grant | None:
        """What a pod has."""
        found = registry.granted(pod, self.facts.node, dialects.SETTINGS)
        return found if isinstance(found, grants.Grant) else None

    async def told(self) -> list[Told]:
        """What is told in all: to whom, why, and of which kind."""
        self.teller.about_resource("x/y", "the end")  # comes after all that is due
        async with kube.running(self.teller.run()):
            await scripted.until(lambda: self.messages()[-1:] == ["the end"])
        found = [
            (each["involvedObject"]["name"], each["reason"], each["type"]) for each in self._all()
        ]
        return found[:-1]

    def messages(self) -> list[str]:
        """All texts."""
        return [each["message"] for each in self._all()]

    def _all(self) -> list[Any]:
        return making.bodies(self.server, "POST")


@pytest.fixture
def node(client: api.Api, server: scripted.Server) -> Node:
    """Where nothing was told yet."""
    return Node(client, server)


def sick(name: str) -> Told:
    """That a card is sick."""
    return name, "CardUnhealthy", "Warning"


def well(name: str) -> Told:
    """That it is well again."""
    return name, "CardRecovered", "Normal"


async def test_pods_on_the_card_are_told_and_others_not(node: Node) -> None:
    """Nor is one that ended, that has no grant, or that wants no card; the node always is."""
    node.judge(first="Xid 79: fallen off the bus")
    assert await node.told() == [sick("gpu-1"), sick("first")]
    text = f"card 0 ({FIRST}) is sick: Xid 79: fallen off the bus. Nothing new starts there"
    assert node.messages()[:2] == [f"{text} until it is well"] * 2


async def test_only_what_changed_is_told(node: Node) -> None:
    """The other card's sickness is old."""
    node.judge(second="lost")
    node.judge(second="lost", first="lost")
    assert await node.told() == [sick("gpu-1"), sick("second"), sick("gpu-1"), sick("first")]


async def test_another_reason_is_news(node: Node) -> None:
    """It may decide what is to be done with the node."""
    node.judge(first="Xid 48")
    node.judge(first="Xid 79")
    assert await node.told() == [sick("gpu-1"), sick("first")] * 2


async def test_a_card_that_falls_sick_again_is_told_again(node: Node) -> None:
    """With the same words, however slow the API server is: the last text is the truth."""
    node.judge(first="lost")
    node.judge()
    node.judge(first="lost")
    assert await node.told() == [
        sick("gpu-1"),
        sick("first"),
        well("gpu-1"),
        well("first"),
        sick("gpu-1"),
        sick("first"),
    ]


async def test_nothing_is_told_of_cards_that_nobody_knows(node: Node) -> None:
    """There is no index to name them by."""
    node.judge(unknown="lost")
    assert await node.told() == []


async def test_a_resource_that_is_not_served_is_told_once(node: Node) -> None:
    """On the node, as often as it is found."""
    for _ in range(3):
        node.teller.about_resource("x/y", "too many")
    assert await node.told() == [("gpu-1", "ResourceNotServed", "Warning")]


async def test_texts_that_wait_are_bounded(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While the API server is away; what is left out is in the log."""
    waiting = telling._MOST
    for number in range(waiting + 5):
        node.teller.about_resource("x/y", f"text {number}")
    assert f"not told to {making.NODE}: text {waiting + 4}" in caplog.text
    assert f"not told to {making.NODE}: text {waiting - 1}" not in caplog.text
    assert node.teller._due.qsize() == waiting
