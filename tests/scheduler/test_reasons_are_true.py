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
from partage.scheduler import nominations
from partage.scheduler.binds import pod_patches
from partage.scheduler.verbs import filter_history, filter_texts, filter_verb
from tests.scheduler import one_pod_server, small_cluster

UNKNOWN = filter_texts.REASONS[refusals.Code.NO_NODES]
NO_CARDS = filter_texts.REASONS[refusals.Code.NO_CARDS]
TOO_SMALL = filter_texts.REASONS[refusals.Code.CARD_TOO_SMALL]
NO_MEMORY = filter_texts.REASONS[refusals.Code.MEMORY]

SIZES_GIB = st.lists(st.sampled_from([8, 16, 24]), max_size=3)


class Cards:
    """The same cluster, kept by hand: free memory of each card in GiB."""

    def __init__(self, cluster: small_cluster.Cluster, sizes_gib: list[list[int]]) -> None:
        self.cluster = cluster
        self.sizes = {f"n{i}": sizes for i, sizes in enumerate(sizes_gib)}
        self.free = {name: list(sizes) for name, sizes in self.sizes.items()}
        self.pods: list[tuple[str, str, int, int]] = []
        self.made = 0
        for name, sizes in self.sizes.items():
            cluster.mirror.nodes.put(small_cluster.carded(name, *(size * 1024 for size in sizes)))

    def take(self, choice: int, units: int) -> None:
        """A pod of somebody else's appears on a card, if it fits there."""
        free_cards = [
            (n, i) for n, free in self.free.items() for i, g in enumerate(free) if g >= units
        ]
        if free_cards:
            node, index = free_cards[choice % len(free_cards)]
            self.made += 1
            name = f"other-{self.made}"
            self.pods.append((name, node, index, units))
            self.free[node][index] -= units
            record = small_cluster.gpushare_record(units, index, self.sizes[node][index])
            self.cluster.mirror.pods.put(
                small_cluster.pod(name, {small_cluster.MEMORY: units}, on=node, annotations=record)
            )

    def give(self, choice: int) -> None:
        """One of them goes."""
        if self.pods:
            name, node, index, units = self.pods.pop(choice % len(self.pods))
            self.free[node][index] += units
            self.cluster.mirror.pods.drop(f"uid-{name}")

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
    cluster = small_cluster.Cluster()
    cards = Cards(cluster, sizes_gib)
    for change in before:
        _change(cards, change)
    names = [*cards.sizes, "gone"]
    body = small_cluster.args(
        small_cluster.wire_pod("p", {small_cluster.MEMORY: str(units)}), names
    )
    answer = _answer(cluster.own, body, cards, meanwhile)
    if answer["NodeNames"]:
        assert all(cards.fits(name, units) for name in answer["NodeNames"])
        return
    reasons = {**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}
    assert reasons == {name: cards.reason(name, units) for name in names}
    assert not any(cards.fits(name, units) for name in names)
    never = {name for name, text in reasons.items() if text != NO_MEMORY}
    assert set(answer["FailedAndUnresolvableNodes"]) == never


def _change(cards: Cards, change: tuple[bool, int, int]) -> None:
    takes, choice, units = change
    if takes:
        cards.take(choice, units)
    else:
        cards.give(choice)


def _answer(
    own: filter_verb.Filter, body: bytes, cards: Cards, meanwhile: list[tuple[bool, int, int]]
) -> dict[str, Any]:
    """The answer, with a change at each moment in which others may work."""
    changes = iter(meanwhile)
    for _ in _steps(pending := Pending(own.filter(body))):
        change = next(changes, None)
        if change is not None:
            _change(cards, change)
    answer: dict[str, Any] = json.loads(pending.answer)
    return answer


class Pending:
    """An answer of filter, at once or in steps."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer


def _steps(pending: Pending) -> Iterator[None]:
    while not isinstance(pending.answer, bytes):
        try:
            pending.answer.send(None)
        except StopIteration as end:
            pending.answer = end.value
        else:
            yield


def test_a_pod_that_is_being_bound_is_not_told_that_nothing_has_room() -> None:
    """The node may be any of those that were not asked about."""
    cluster = small_cluster.Cluster()
    for name in ("n1", "n2"):
        cluster.mirror.nodes.put(small_cluster.node(name))
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    (first, other) = cluster.filter(small_cluster.args(pod, ["n1", "n2"]))["NodeNames"]
    cluster.fleet.confirm("uid-p")
    for answer in (
        cluster.filter(small_cluster.args(pod, [other])),
        cluster.gpushare_filter(small_cluster.args(pod, [other])),
    ):
        assert not answer["NodeNames"]
        assert answer["FailedNodes"] == {other: f"the pod is bound to node {first}, or about to be"}


def _large(count: int = 452) -> tuple[small_cluster.Cluster, list[str]]:
    """A cluster of which one node is empty and all others are full."""
    cluster = small_cluster.Cluster()
    names = [f"n{i:03}" for i in range(count)]
    for name in names:
        cluster.mirror.nodes.put(small_cluster.node(name, count=1))
        if name != names[-1]:
            record = small_cluster.gpushare_record(12, 0)
            cluster.mirror.pods.put(
                small_cluster.pod(
                    f"on-{name}", {small_cluster.MEMORY: 12}, on=name, annotations=record
                )
            )
    return cluster, names


def test_a_refusal_says_how_many_nodes_were_asked_about() -> None:
    """There may be room on another one."""
    cluster, names = _large()
    answer = cluster.filter(
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "8"}), names[:100])
    )
    texts = set(answer["FailedNodes"].values())
    assert texts == {f"{NO_MEMORY} (kube-scheduler asked about 100 of 452 nodes)"}


class Nominated(nominations.Nominations):
    """Keeps the nominations that are due."""

    def nodes(self) -> list[str]:
        """The nodes that pods are to be nominated to."""
        nodes = []
        while not self._queue.empty():
            nodes.append(self._queue.get_nowait()[1])
        return nodes


def _nominating(cluster: small_cluster.Cluster) -> tuple[filter_verb.Filter, Nominated]:
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    patches = pod_patches.PodPatches(one_pod_server.Server(), now=lambda: now)
    named = Nominated(cluster.mirror, patches, clock=cluster.clock)
    return cluster.own_filter(nominations=named), named


def _ask(own: filter_verb.Filter, name: str, names: list[str]) -> None:
    body = small_cluster.args(small_cluster.wire_pod(name, {small_cluster.MEMORY: "8"}), names)
    for _ in _steps(Pending(own.filter(body))):
        pass


def test_a_node_that_was_not_asked_about_is_nominated() -> None:
    """It is the only one on which the pod fits."""
    cluster, names = _large()
    own, named = _nominating(cluster)
    _ask(own, "p", names[:100])
    assert named.nodes() == [names[-1]]


def test_a_pod_is_nominated_a_few_times_and_to_other_nodes() -> None:
    """kube-scheduler may have its reasons, which are not ours to know."""
    cluster, names = _large()
    for name in names[200:]:
        cluster.mirror.pods.drop(f"uid-on-{name}")
    own, named = _nominating(cluster)
    for _ in range(10):
        _ask(own, "p", names[:150])
    tried = named.nodes()
    assert len(tried) == len(set(tried)) == nominations.MOST_TRIES
    cluster.clock.now += nominations.PAUSE_S + 1
    _ask(own, "p", names[:150])
    assert len(named.nodes()) == 1


def test_a_pod_that_somebody_else_nominated_is_left_alone() -> None:
    """Victims may be dying for it there."""
    cluster, names = _large()
    own, named = _nominating(cluster)
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "8"})
    body = small_cluster.args({**pod, "status": {"nominatedNodeName": "n007"}}, names[:100])
    for _ in _steps(Pending(own.filter(body))):
        pass
    assert named.nodes() == []


def test_nobody_is_nominated_where_all_nodes_were_asked_about() -> None:
    """Of fewer than a hundred names kube-scheduler left none out."""
    cluster, names = _large()
    own, named = _nominating(cluster)
    _ask(own, "p", names[:99])
    _ask(own, "q", names[:-1][:20])
    assert named.nodes() == []


def test_a_scheduler_that_asks_about_parts_is_reported() -> None:
    """The same number of nodes again and again, and never the same ones."""
    cluster, names = _large()
    history = filter_history.FilterHistory(clock=cluster.clock)
    for start in (0, 100, 200):
        assert history.problem == ""
        history.note("p", set(names[start : start + 212]), len(names), 1)
    assert "percentageOfNodesToScore" in history.problem
    history.note("p", set(names), len(names), 1)
    assert history.problem == ""


def test_a_scheduler_that_asks_about_the_same_nodes_again_is_not_reported() -> None:
    """Those are all that fit for other reasons."""
    cluster, names = _large()
    history = filter_history.FilterHistory(clock=cluster.clock)
    for _ in range(10):
        history.note("p", set(names[:212]), len(names), 1)
    assert history.problem == ""
