"""Our own filter and prioritize: the best few nodes, reasons only when nothing fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from partage.core import refusals
from partage.scheduler.verbs import filter_texts
from tests.scheduler import small_cluster

GPU = "nvidia.com/gpu"


def _ten(cluster: small_cluster.Cluster) -> list[str]:
    names = [f"n{i}" for i in range(10)]
    for name in names:
        cluster.mirror.nodes.put(small_cluster.node(name))
    return names


def test_only_the_best_nodes_are_named_and_no_reasons() -> None:
    """kube-scheduler reads an answer more slowly than we make it."""
    cluster = small_cluster.Cluster(limit=3)
    names = [*_ten(cluster), "gone"]
    answer = cluster.filter(
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), names)
    )
    assert len(answer["NodeNames"]) == 3
    assert answer["FailedNodes"] is None
    assert answer["FailedAndUnresolvableNodes"] is None


def test_all_nodes_are_named_if_so_configured() -> None:
    """Zero is "all"."""
    cluster = small_cluster.Cluster(limit=0)
    names = _ten(cluster)
    answer = cluster.filter(
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), names)
    )
    assert sorted(answer["NodeNames"]) == names


@pytest.mark.parametrize(
    ("wish", "nodes"),
    [({}, 1), ({"affinity": {"podAffinity": {}}}, 3), ({"topologySpreadConstraints": [{}]}, 3)],
)
def test_a_pod_without_preferences_gets_the_best_node_alone(
    wish: dict[str, Any], nodes: int
) -> None:
    """kube-scheduler then neither asks for priorities nor scores."""
    cluster = small_cluster.Cluster()
    names = _ten(cluster)
    cluster.own = cluster.own_filter(limit=3, limit_without_preference=1)
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    picky = {**pod, "spec": {**pod["spec"], **wish}}
    assert len(cluster.filter(small_cluster.args(picky, names))["NodeNames"]) == nodes


def test_only_nodes_of_the_question_are_named() -> None:
    """kube-scheduler has ruled the others out, and a stranger in the answer is an error to it."""
    cluster = small_cluster.Cluster()
    _ten(cluster)
    answer = cluster.filter(
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), ["n7", "n3"])
    )
    assert sorted(answer["NodeNames"]) == ["n3", "n7"]


def test_when_nothing_fits_every_node_has_a_reason_and_never_is_told_apart() -> None:
    """A node that is left out counts as one where evicting cannot help."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("small", units_per_card=8))
    cluster.mirror.nodes.put(small_cluster.node("full", count=1))
    cluster.mirror.nodes.put(small_cluster.node("cpu", capacity={}))
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 9},
            on="full",
            annotations=small_cluster.gpushare_record(9, 0),
        )
    )
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "10"})
    answer = cluster.filter(small_cluster.args(pod, ["small", "full", "cpu", "gone"]))
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"full": "no GPU has enough free memory"}
    assert answer["FailedAndUnresolvableNodes"] == {
        "small": "no GPU is large enough",
        "cpu": "the node has no GPU that Partage knows of",
        "gone": "Partage does not know the node (yet)",
    }


def test_every_reason_has_its_text() -> None:
    """A code without one would end in an exception."""
    assert filter_texts.REASONS.keys() == set(refusals.Code)


def test_a_request_that_is_not_allowed_is_unresolvable_everywhere() -> None:
    """Nobody should be evicted for it."""
    cluster = small_cluster.Cluster()
    names = _ten(cluster)
    pod = small_cluster.wire_pod("p", {GPU: "1", small_cluster.MEMORY: "3"})
    answer = cluster.filter(small_cluster.args(pod, names))
    assert answer["FailedAndUnresolvableNodes"].keys() == set(names)
    assert "another dialect" in answer["FailedAndUnresolvableNodes"]["n1"]


def test_pods_without_cards_pass() -> None:
    """They are not ours to judge."""
    cluster = small_cluster.Cluster()
    names = [*_ten(cluster), "elsewhere"]
    assert sorted(
        cluster.filter(small_cluster.args(small_cluster.wire_pod("p", {}), names))["NodeNames"]
    ) == sorted(names)


def test_filter_holds_what_it_promised_first() -> None:
    """The next pod is filtered before this one is bound."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1", count=1))
    first = small_cluster.args(small_cluster.wire_pod("a", {small_cluster.MEMORY: "9"}), ["n1"])
    second = small_cluster.args(small_cluster.wire_pod("b", {small_cluster.MEMORY: "9"}), ["n1"])
    assert cluster.filter(first)["NodeNames"] == ["n1"]
    assert cluster.filter(second)["NodeNames"] == []
    assert cluster.filter(first)["NodeNames"] == ["n1"]  # its own hold is not in its way
    cluster.clock.now += 16
    cluster.binds.expire()
    assert cluster.freed[-1] == "n1"
    assert cluster.filter(second)["NodeNames"] == ["n1"]


def test_a_bound_pod_hears_of_its_own_node_only() -> None:
    """kube-scheduler may not know yet; a second decision would be a second grant."""
    cluster = small_cluster.Cluster()
    names = _ten(cluster)
    body = small_cluster.args(small_cluster.wire_pod("a", {small_cluster.MEMORY: "3"}), names)
    chosen = cluster.filter(body)["NodeNames"][0]
    cluster.fleet.confirm("uid-a")
    assert cluster.filter(body)["NodeNames"] == [chosen]
    others = [name for name in names if name != chosen]
    assert (
        cluster.filter(
            small_cluster.args(small_cluster.wire_pod("a", {small_cluster.MEMORY: "3"}), others)
        )["NodeNames"]
        == []
    )


def test_scores_run_from_ten_downwards_and_the_held_node_is_best() -> None:
    """kube-scheduler takes 0 to 10."""
    cluster = small_cluster.Cluster(limit=0)
    names = _ten(cluster)
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    best = cluster.filter(small_cluster.args(pod, names))["NodeNames"]
    scores = json.loads(cluster.scores.prioritize(small_cluster.args(pod, best)))
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
    assert small_cluster.Cluster().scores.prioritize(body) == b"[]"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"Pod": 3}', b"\xff\xfe", b"[" * 100_000])
def test_filter_answers_an_unreadable_body_with_an_error(body: bytes) -> None:
    """Never with an exception."""
    assert small_cluster.Cluster().filter(body)["Error"].startswith("the body cannot be read")
