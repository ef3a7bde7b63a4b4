"""The verbs of gpushare's extender: shapes, order and texts as people's tools know them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scheduler import small_cluster

INSUFFICIENT = "Insufficient GPU Memory in one device"


def _filter(cluster: small_cluster.Cluster, body: bytes) -> dict[str, Any]:
    answer: dict[str, Any] = cluster.gpushare_filter(body)
    return answer


def _cluster() -> small_cluster.Cluster:
    """The three nodes of gpushare's design document: 2 cards of 16276 MiB each."""
    cluster = small_cluster.Cluster()
    for name, used in (("N1", (16276, 12207)), ("N2", (12207, 12207)), ("N3", (8138, 16276))):
        cluster.mirror.nodes.put(small_cluster.node(name, units_per_card=16276))
        for index, units in enumerate(used):
            cluster.mirror.pods.put(
                small_cluster.pod(
                    f"{name}-{index}".lower(),
                    {small_cluster.MEMORY: units},
                    on=name,
                    annotations=small_cluster.gpushare_record(units, index, card=16276),
                )
            )
    return cluster


def test_the_filter_example_of_the_design_document() -> None:
    """A node fits by one card, never by its sum."""
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "8138"})
    answer = _filter(_cluster(), small_cluster.args(pod, ["N1", "N2", "N3"]))
    assert answer == {
        "Nodes": None,
        "NodeNames": ["N3"],
        "FailedNodes": {"N1": INSUFFICIENT, "N2": INSUFFICIENT},
        "FailedAndUnresolvableNodes": None,
        "Error": "",
    }


def test_names_come_back_in_the_order_they_were_sent() -> None:
    """Programs compare positions."""
    cluster = small_cluster.Cluster()
    names = ["n3", "n1", "n2"]
    for name in names:
        cluster.mirror.nodes.put(small_cluster.node(name))
    answer = _filter(
        cluster,
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}), names),
    )
    assert answer["NodeNames"] == names
    assert answer["FailedNodes"] == {}


def test_the_other_two_texts() -> None:
    """A node that is unknown, and one without cards."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("cpu", capacity={}))
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    answer = _filter(cluster, small_cluster.args(pod, ["cpu", "gone"]))
    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {
        "cpu": "The node cpu is not for GPU share, need skip",
        "gone": 'node "gone" not found',
    }


@pytest.mark.parametrize(
    "spelling",
    [("pod", "nodenames"), ("POD", "NODENAMES"), ("pOd", "nodeNames")],
    ids=["lower", "upper", "mixed"],
)
def test_keys_are_read_in_any_letter_case(spelling: tuple[str, str]) -> None:
    """Go does so, and clients rely on it."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    body = json.dumps({spelling[0]: pod, spelling[1]: ["n1"]}).encode()
    assert _filter(cluster, body)["NodeNames"] == ["n1"]


def test_whole_nodes_are_answered_with_whole_nodes() -> None:
    """A scheduler that does not trust our memory sends them, and wants them back."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    items = [{"metadata": {"name": name}, "x": 1} for name in ("n1", "n2")]
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"})
    answer = _filter(cluster, json.dumps({"Pod": pod, "Nodes": {"items": items}}).encode())
    assert answer["NodeNames"] == ["n1"]
    assert answer["Nodes"] == {"items": items[:1]}
    assert list(answer["FailedNodes"]) == ["n2"]


def test_what_is_missing_is_said_as_gpushare_says_it() -> None:
    """No pod, no nodes."""
    cluster = small_cluster.Cluster()
    assert _filter(cluster, small_cluster.args(None, ["n1"]))["Error"] == "arg or pod is nil"
    pod = small_cluster.wire_pod("p", {})
    assert _filter(cluster, small_cluster.args(pod, None))["Error"] == "cannot get node names"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b'{"Pod": 3}', b"\xff", b"[" * 100_000])
def test_a_body_that_cannot_be_read_is_answered_in_the_error(body: bytes) -> None:
    """And everything else is null."""
    answer = _filter(small_cluster.Cluster(), body)
    assert answer.pop("Error").startswith("the body cannot be read")
    assert set(answer.values()) == {None}


def test_a_pod_that_asks_for_nothing_passes_where_a_healthy_card_is() -> None:
    """As it does there."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    cluster.mirror.nodes.put(small_cluster.node("cpu", capacity={}))
    answer = _filter(cluster, small_cluster.args(small_cluster.wire_pod("p", {}), ["n1", "cpu"]))
    assert answer["NodeNames"] == ["n1"]


def test_a_request_that_is_not_allowed_says_so_for_every_node() -> None:
    """There is no point in waiting, and the pod's event names the field."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "10G"})
    (reason,) = _filter(cluster, small_cluster.args(pod, ["n1"]))["FailedNodes"].values()
    assert "spec.containers[0].resources.limits[aliyun.com/gpu-mem]" in reason


def test_inspect_lists_cards_and_their_tenants() -> None:
    """In units of the cluster, nodes by name, nothing for nodes without cards."""
    cluster = _cluster()
    cluster.mirror.nodes.put(small_cluster.node("a-cpu", capacity={}))
    answer = cluster.inspect()
    assert [node["name"] for node in answer["nodes"]] == ["N1", "N2", "N3"]
    assert answer["nodes"][2] == {
        "name": "N3",
        "totalGPU": 32552,
        "usedGPU": 24414,
        "devs": [
            {
                "id": 0,
                "totalGPU": 16276,
                "usedGPU": 8138,
                "pods": [{"name": "n3-0", "namespace": "default", "usedGPU": 8138}],
            },
            {
                "id": 1,
                "totalGPU": 16276,
                "usedGPU": 16276,
                "pods": [{"name": "n3-1", "namespace": "default", "usedGPU": 16276}],
            },
        ],
    }
    assert cluster.inspect("N3")["nodes"] == answer["nodes"][2:]
    assert cluster.inspect("a-cpu")["nodes"][0]["devs"] == []


def test_inspect_of_an_unknown_node_is_an_answer() -> None:
    """There it ends the connection."""
    answer = small_cluster.Cluster().inspect("gone")
    assert answer == {"nodes": [], "error": 'node "gone" not found'}


def test_within_a_node_the_fullest_card_that_is_enough_is_taken() -> None:
    """The bind example of the design document: 12207, 8138, 4069, 16276 free; 8138 takes card 1."""
    cluster = small_cluster.Cluster("priced")
    cluster.mirror.nodes.put(small_cluster.node(count=4, units_per_card=16276))
    for index, units in enumerate((4069, 8138, 12207)):
        cluster.mirror.pods.put(
            small_cluster.pod(
                f"a{index}",
                {small_cluster.MEMORY: units},
                on="n1",
                annotations=small_cluster.gpushare_record(units, index, card=16276),
            )
        )
    _filter(
        cluster,
        small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "8138"}), ["n1"]),
    )
    held = cluster.fleet.hold_of("uid-p")
    assert held is not None
    assert [share.index for share in held.grant.containers[0].shares] == [1]
