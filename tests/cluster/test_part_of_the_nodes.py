"""kube-scheduler asks about a part of the nodes: pods still find the only node that will do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from partage.core import cards
from partage.dialects import nodes
from tests.cluster import making
from tests.cluster.making import MEMORY

SMALL, ONLY = 451, "the-only-one"
AT_A_TIME = 22  # percent; about 100 nodes, as few as kube-scheduler ever asks about


def _node(name: str, *sizes_gib: int) -> api.Object:
    node_cards = [
        cards.Card(uuid=f"GPU-{name}-{i}", index=i, memory_mib=size * 1024, model="Simulated")
        for i, size in enumerate(sizes_gib)
    ]
    return objects.node(name, cards=0, annotations={nodes.CARDS: nodes.encode(node_cards)})


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> Iterator[ControlPlane]:
    """Many nodes whose cards are too small, together large enough, and one that will do."""
    clean_cluster.client.create_all(_node(f"small-{i:03}", 8, 8) for i in range(SMALL))
    clean_cluster.client.create(_node(ONLY, *[16] * 8))
    extender.start()
    yield clean_cluster
    clean_cluster.stop_scheduler()


def _schedule(plane: ControlPlane, extender: extender_process.Extender, percent: int) -> None:
    plane.start_scheduler(
        scheduler_config.partage(
            plane.kubeconfig,
            port=extender.port,
            advertised=(),
            queries_per_second=500,
            scored_percent=percent,
        )
    )


def test_nobody_waits_for_luck(plane: ControlPlane, extender: extender_process.Extender) -> None:
    """Six pods, one after the other: each is bound in seconds, though its node is rarely asked."""
    _schedule(plane, extender, AT_A_TIME)
    for i in range(6):
        plane.client.create(objects.pod(f"p{i}", {MEMORY: 12}))
        assert making.bound(plane, f"p{i}")["spec"]["nodeName"] == ONLY
    assert extender.metric("partage_nominations_total") > 0
    messages = [message for i in range(6) for message in making.events(plane, f"p{i}")]
    assert all("asked about" in text for text in messages if "GPU" in text)
    assert not any("free memory" in text for text in messages)  # none of them is merely full


def test_a_scheduler_that_asks_about_all_finds_it_at_once(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """As the shipped configuration lets it."""
    _schedule(plane, extender, 100)
    plane.client.create_all(objects.pod(f"p{i}", {MEMORY: 12}) for i in range(6))
    for i in range(6):
        assert making.bound(plane, f"p{i}")["spec"]["nodeName"] == ONLY
        assert not [text for text in making.events(plane, f"p{i}") if "GPU" in text]
    assert extender.metric("partage_nominations_total") == 0


def test_what_keeps_a_pod_from_a_node_is_named(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """A cordoned node and a taint are not a want of memory; explain says so."""
    _schedule(plane, extender, 100)
    plane.client.patch("Node", ONLY, {"spec": {"unschedulable": True}})
    plane.client.create(objects.pod("p", {MEMORY: 12}))
    making.eventually(lambda: making.events(plane, "p"))
    explanation = making.eventually(lambda: _explained(extender, "cordoned"))
    assert explanation["summary"].startswith(f"not now: node {ONLY} is cordoned")
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    plane.client.patch("Node", ONLY, {"spec": {"unschedulable": None, "taints": [taint]}})
    explanation = making.eventually(lambda: _explained(extender, "taint"))
    assert "team=vision:NoSchedule, which the pod does not tolerate" in explanation["summary"]
    plane.client.patch("Node", ONLY, {"spec": {"taints": None}})
    making.bound(plane, "p")


def _explained(extender: extender_process.Extender, word: str) -> api.Object | None:
    explanation: api.Object = extender.get("/explain/default/p")
    return explanation if word in explanation["summary"] else None
