"""Every reason of a refusal is true of the fleet in the moment of the answer.

What is true is decided here by hand, from the sizes of the cards and what pods have of them, for
pods that ask for memory of one card. The fleet changes while the answer is being made.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from partage.core import refusals
from partage.scheduler import filtering, nominations, pod_patches, questions, texts
from tests.scheduler import making, scripted

UNKNOWN = texts.REASONS[refusals.Code.NO_NODES]
NO_CARDS = texts.REASONS[refusals.Code.NO_CARDS]
TOO_SMALL = texts.REASONS[refusals.Code.CARD_TOO_SMALL]
NO_MEMORY = texts.REASONS[refusals.Code.MEMORY]

SIZES_GIB = st.lists(st.sampled_from([8, 16, 24]), max_size=3)


class Cards:
    """The same cluster, kept by hand: free memory of each card in GiB."""

    def __init__(self, world: making.World, sizes_gib: list[list[int]]) -> None:
        self.world = world
        self.sizes = {f"n{i}": sizes for i, sizes in enumerate(sizes_gib)}
        self.free = {name: list(sizes) for name, sizes in self.sizes.items()}
        self.pods: list[tuple[str, str, int, int]] = []
        self.made = 0
        for name, sizes in self.sizes.items():
            world.mirror.nodes.put(making.carded(name, *(size * 1024 for size in sizes)))

    def take(self, choice: int, units: int) -> None:
        """A pod of somebody else's appears on a card, if it fits there."""
        there = [(n, i) for n, free in self.free.items() for i, g in enumerate(free) if g >= units]
        if there:
            node, index = there[choice % len(there)]
            self.made += 1
            name = f"other-{self.made}"
            self.pods.append((name, node, index, units))
            self.free[node][index] -= units
            record = making.gpushare_record(units, index, self.sizes[node][index])
            self.world.mirror.pods.put(
                making.pod(name, {making.MEMORY: units}, on=node, annotations=record)
            )

    def give(self, choice: int) -> None:
        """One of them goes."""
        if self.pods:
            name, node, index, units = self.pods.pop(choice % len(self.pods))
            self.free[node][index] += units
            self.world.mirror.pods.drop(f"uid-{name}")

    def fits(self, name: str, units: int) -> bool:
        """Whether a node has room."""
        return any(free >= units for free in self.free.get(name, []))

    def reason(self, name: str, units: int) -> str:
        """Why it has none."""
        if name not in self.sizes:
            return UNKNOWN
        if not self.sizes[name]:
            return NO_CARDS
        return TOO_SMALL if max(self.sizes[name]) < units else NO_MEMORY


CHANGE = st.tuples(st.booleans(), st.integers(0, 1000), st.integers(1, 12))


@given(
    sizes_gib=st.lists(SIZES_GIB, min_size=1, max_size=6),
    before=st.lists(CHANGE, max_size=12),
    meanwhile=st.lists(CHANGE, max_size=8),
    units=st.integers(1, 26),
)
@settings(deadline=None, max_examples=300)
def test_a_refusal_says_what_is_so_and_never_refuses_what_fits(
    sizes_gib: list[list[int]],
    before: list[tuple[bool, int, int]],
    meanwhile: list[tuple[bool, int, int]],
    units: int,
) -> None:
    """Also if the fleet changes between two nodes that are looked at."""
    world = making.World()
    cards = Cards(world, sizes_gib)
    for change in before:
        _change(cards, change)
    names = [*cards.sizes, "gone"]
    body = making.args(making.wire_pod("p", {making.MEMORY: str(units)}), names)
    answer = _answer(world.own, body, cards, meanwhile)
    if answer["NodeNames"]:
        assert all(cards.fits(name, units) for name in answer["NodeNames"])
        return
    told = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    assert told == {name: cards.reason(name, units) for name in names}
    assert not any(cards.fits(name, units) for name in names)
    never = {name for name, text in told.items() if text != NO_MEMORY}
    assert set(answer["FailedAndUnresolvableNodes"]) == never


def _change(cards: Cards, change: tuple[bool, int, int]) -> None:
    takes, choice, units = change
    if takes:
        cards.take(choice, units)
    else:
        cards.give(choice)


def _answer(
    own: filtering.Filter, body: bytes, cards: Cards, meanwhile: list[tuple[bool, int, int]]
) -> dict[str, Any]:
    """The answer, with a change at each moment in which others may work."""
    changes = iter(meanwhile)
    for _ in _steps(found := Found(own.filter(body))):
        change = next(changes, None)
        if change is not None:
            _change(cards, change)
    answer: dict[str, Any] = json.loads(found.answer)
    return answer


class Found:
    """An answer of filter, at once or in steps."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def _steps(found: Found) -> Iterator[None]:
    while not isinstance(found.answer, bytes):
        try:
            found.answer.send(None)
        except StopIteration as end:
            found.answer = end.value
        else:
            yield


def test_a_pod_that_is_being_bound_is_not_told_that_nothing_has_room() -> None:
    """The node may be any of those that were not asked about."""
    world = making.World()
    for name in ("n1", "n2"):
        world.mirror.nodes.put(making.node(name))
    pod = making.wire_pod("p", {making.MEMORY: "3"})
    (first, other) = world.filter(making.args(pod, ["n1", "n2"]))["NodeNames"]
    world.fleet.confirm("uid-p")
    for answer in (
        world.filter(making.args(pod, [other])),
        json.loads(world.old.filter(making.args(pod, [other]))),
    ):
        assert not answer["NodeNames"]
        assert answer["FailedNodes"] == {other: f"the pod is bound to node {first}, or about to be"}


def _large(count: int = 452) -> tuple[making.World, list[str]]:
    """A cluster of which one node is empty and all others are full."""
    world = making.World()
    names = [f"n{i:03}" for i in range(count)]
    for name in names:
        world.mirror.nodes.put(making.node(name, count=1))
        if name != names[-1]:
            record = making.gpushare_record(12, 0)
            world.mirror.pods.put(
                making.pod(f"on-{name}", {making.MEMORY: 12}, on=name, annotations=record)
            )
    return world, names


def test_a_refusal_says_how_many_nodes_were_asked_about() -> None:
    """There may be room on another one."""
    world, names = _large()
    answer = world.filter(making.args(making.wire_pod("p", {making.MEMORY: "8"}), names[:100]))
    texts_told = set(answer["FailedNodes"].values())
    assert texts_told == {f"{NO_MEMORY} (kube-scheduler asked about 100 of 452 nodes)"}


class Nominated(nominations.Nominations):
    """Takes note of nothing but what is wanted."""

    def wanted(self) -> list[str]:
        """The nodes that pods are to be nominated to."""
        found = []
        while not self._wanted.empty():
            found.append(self._wanted.get_nowait()[1])
        return found


def _nominating(world: making.World) -> tuple[filtering.Filter, Nominated]:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    patches = pod_patches.PodPatches(scripted.Server(), now=lambda: now)
    named = Nominated(world.mirror, patches, clock=world.clock)
    asked = questions.Questions(clock=world.clock)
    return filtering.Filter(world.decider, asked, limit=64, nominated=named), named


def _ask(own: filtering.Filter, name: str, names: list[str]) -> None:
    body = making.args(making.wire_pod(name, {making.MEMORY: "8"}), names)
    for _ in _steps(Found(own.filter(body))):
        pass


def test_a_node_that_was_not_asked_about_is_nominated() -> None:
    """It is the only one on which the pod fits."""
    world, names = _large()
    own, named = _nominating(world)
    _ask(own, "p", names[:100])
    assert named.wanted() == [names[-1]]


def test_a_pod_is_nominated_a_few_times_and_to_other_nodes() -> None:
    """kube-scheduler may have its reasons, which are not ours to know."""
    world, names = _large()
    for name in names[200:]:
        world.mirror.pods.drop(f"uid-on-{name}")
    own, named = _nominating(world)
    for _ in range(10):
        _ask(own, "p", names[:150])
    tried = named.wanted()
    assert len(tried) == len(set(tried)) == nominations.MOST_TRIES
    world.clock.now += nominations.PAUSE_S + 1
    _ask(own, "p", names[:150])
    assert len(named.wanted()) == 1


def test_a_pod_that_somebody_else_nominated_is_left_alone() -> None:
    """Victims may be dying for it there."""
    world, names = _large()
    own, named = _nominating(world)
    pod = making.wire_pod("p", {making.MEMORY: "8"})
    body = making.args({**pod, "status": {"nominatedNodeName": "n007"}}, names[:100])
    for _ in _steps(Found(own.filter(body))):
        pass
    assert named.wanted() == []


def test_nobody_is_nominated_where_all_nodes_were_asked_about() -> None:
    """Of fewer than a hundred names kube-scheduler left none out."""
    world, names = _large()
    own, named = _nominating(world)
    _ask(own, "p", names[:99])
    _ask(own, "q", names[:-1][:20])
    assert named.wanted() == []


def test_a_scheduler_that_asks_about_parts_is_reported() -> None:
    """The same number of nodes again and again, and never the same ones."""
    world, names = _large()
    asked = questions.Questions(clock=world.clock)
    for start in (0, 100, 200):
        assert asked.problem == ""
        asked.note("p", set(names[start : start + 212]), len(names), 1)
    assert "percentageOfNodesToScore" in asked.problem
    asked.note("p", set(names), len(names), 1)
    assert asked.problem == ""


def test_a_scheduler_that_asks_about_the_same_nodes_again_is_not_reported() -> None:
    """Those are all that fit for other reasons."""
    world, names = _large()
    asked = questions.Questions(clock=world.clock)
    for _ in range(10):
        asked.note("p", set(names[:212]), len(names), 1)
    assert asked.problem == ""
