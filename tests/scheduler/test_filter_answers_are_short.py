"""Our own filter and prioritize: the best few nodes, reasons only when nothing fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from partage.core import refusals
from partage.scheduler import filtering, texts
from tests.scheduler import making

GPU = "nvidia.com/gpu"


def _ten(world: making.World) -> list[str]:
    names = [f"n{i}" for i in range(10)]
    for name in names:
        world.mirror.nodes.put(making.node(name))
    return names


def test_only_the_best_nodes_are_named_and_no_reasons() -> None:
    """kube-scheduler reads an answer more slowly than we make it."""
    world = making.World(limit=3)
    names = [*_ten(world), "gone"]
    answer = world.filter(making.args(making.wire_pod("p", {making.MEMORY: "3"}), names))
    assert len(answer["NodeNames"]) == 3
    assert answer["FailedNodes"] is None
    assert answer["FailedAndUnresolvableNodes"] is None


def test_all_nodes_are_named_if_so_configured() -> None:
    """Zero is "all"."""
    world = making.World(limit=0)
    names = _ten(world)
    answer = world.filter(making.args(making.wire_pod("p", {making.MEMORY: "3"}), names))
    assert sorted(answer["NodeNames"]) == names


@pytest.mark.parametrize(
    ("wish", "nodes"),
    [({}, 1), ({"affinity": {"podAffinity": {}}}, 3), ({"topologySpreadConstraints": [{}]}, 3)],
)
def test_a_pod_without_preferences_gets_the_best_node_alone(
    wish: dict[str, Any], nodes: int
) -> None:
    """kube-scheduler then neither asks for priorities nor scores."""
    world = making.World()
    names = _ten(world)
    world.own = filtering.Filter(
        world.decider, world.questions, limit=3, limit_without_preference=1
    )
    pod = making.wire_pod("p", {making.MEMORY: "3"})
    picky = {**pod, "spec": {**pod["spec"], **wish}}
    assert len(world.filter(making.args(picky, names))["NodeNames"]) == nodes


def test_only_nodes_of_the_question_are_named() -> None:
    """kube-scheduler has ruled the others out, and a stranger in the answer is an error to it."""
    world = making.World()
    _ten(world)
    answer = world.filter(making.args(making.wire_pod("p", {making.MEMORY: "3"}), ["n7", "n3"]))
    assert sorted(answer["NodeNames"]) == ["n3", "n7"]


def test_when_nothing_fits_every_node_has_a_reason_and_never_is_told_apart() -> None:
    """A node that is left out counts as one where evicting cannot help."""
    world = making.World()
    world.mirror.nodes.put(making.node("small", units_per_card=8))
    world.mirror.nodes.put(making.node("full", count=1))
    world.mirror.nodes.put(making.node("cpu", capacity={}))
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 9}, on="full", annotations=making.gpushare_record(9, 0))
    )
    pod = making.wire_pod("p", {making.MEMORY: "10"})
    answer = world.filter(making.args(pod, ["small", "full", "cpu", "gone"]))
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"full": "no GPU has enough free memory"}
    assert answer["FailedAndUnresolvableNodes"] == {
        "small": "no GPU is large enough",
        "cpu": "the node has no GPU that Partage knows of",
        "gone": "the node is not known to Partage (yet)",
    }


def test_every_reason_has_its_text() -> None:
    """A code without one would end in an exception."""
    assert texts.REASONS.keys() == set(refusals.Code)


def test_a_request_that_is_not_allowed_is_unresolvable_everywhere() -> None:
    """Nobody should be evicted for it."""
    world = making.World()
    names = _ten(world)
    pod = making.wire_pod("p", {GPU: "1", making.MEMORY: "3"})
    answer = world.filter(making.args(pod, names))
    assert answer["FailedAndUnresolvableNodes"].keys() == set(names)
    assert "other words" in answer["FailedAndUnresolvableNodes"]["n1"]


def test_pods_without_cards_pass() -> None:
    """They are not ours to judge."""
    world = making.World()
    names = [*_ten(world), "elsewhere"]
    assert sorted(
        world.filter(making.args(making.wire_pod("p", {}), names))["NodeNames"]
    ) == sorted(names)


def test_filter_holds_what_it_promised_first() -> None:
    """The next pod is filtered before this one is bound."""
    world = making.World()
    world.mirror.nodes.put(making.node("n1", count=1))
    first = making.args(making.wire_pod("a", {making.MEMORY: "9"}), ["n1"])
    second = making.args(making.wire_pod("b", {making.MEMORY: "9"}), ["n1"])
    assert world.filter(first)["NodeNames"] == ["n1"]
    assert world.filter(second)["NodeNames"] == []
    assert world.filter(first)["NodeNames"] == ["n1"]  # its own hold is not in its way
    world.clock.now += 16
    world.binds.expire()
    assert world.freed[-1] == "n1"
    assert world.filter(second)["NodeNames"] == ["n1"]


def test_a_bound_pod_hears_of_its_own_node_only() -> None:
    """kube-scheduler may not know yet; a second decision would be a second grant."""
    world = making.World()
    names = _ten(world)
    body = making.args(making.wire_pod("a", {making.MEMORY: "3"}), names)
    chosen = world.filter(body)["NodeNames"][0]
    world.fleet.confirm("uid-a")
    assert world.filter(body)["NodeNames"] == [chosen]
    others = [name for name in names if name != chosen]
    assert (
        world.filter(making.args(making.wire_pod("a", {making.MEMORY: "3"}), others))["NodeNames"]
        == []
    )


def test_scores_run_from_ten_downwards_and_the_held_node_is_best() -> None:
    """kube-scheduler takes 0 to 10."""
    world = making.World(limit=0)
    names = _ten(world)
    pod = making.wire_pod("p", {making.MEMORY: "3"})
    best = world.filter(making.args(pod, names))["NodeNames"]
    scores = json.loads(world.own.prioritize(making.args(pod, best)))
    assert scores[0] == {"Host": best[0], "Score": 10}
    numbers = [entry["Score"] for entry in scores]
    assert numbers == sorted(numbers, reverse=True)
    assert numbers[1] < 10
    assert numbers[-1] == 0
    assert {entry["Host"] for entry in scores} == set(names)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b'{"Pod": null, "NodeNames": ["a"]}',
        b"{}",
        b'{"Pod": {}, "Nodes": {"items": [{"metadata": {"name": 3}}]}}',
    ],
)
def test_prioritize_answers_an_unreadable_body_with_no_scores(body: bytes) -> None:
    """Its errors are ignored by kube-scheduler, so the answer is an empty list."""
    assert making.World().own.prioritize(body) == b"[]"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"Pod": 3}', b"\xff\xfe", b"[" * 100_000])
def test_filter_answers_an_unreadable_body_with_an_error(body: bytes) -> None:
    """Never with an exception."""
    assert making.World().filter(body)["Error"].startswith("the body cannot be read")
