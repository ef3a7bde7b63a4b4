"""Answers that do not come, between the extender and a real API server: no card is granted twice.

One card of 16 GiB, and pods of 10: whoever forgets the first gives the card to the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import fault_proxy, faults
from cluster.partage_processes import extender_process
from partage.core import cards
from partage.dialects import nodes
from tests.cluster import making
from tests.cluster.making import MEMORY

BINDINGS = faults.BINDINGS
WATCHES = faults.Requests("watch", "pods")
FULL = "no GPU has enough free memory"
CARD_MIB = 16384


@pytest.fixture
def between(clean_cluster: ControlPlane, tmp_path: Path) -> Iterator[fault_proxy.FaultProxy]:
    """A proxy in front of a cluster that has one node with one card."""
    card = cards.Card(uuid="GPU-1", index=0, memory_mib=CARD_MIB, model="Simulated")
    written = {nodes.CARDS: nodes.encode([card])}
    clean_cluster.client.create(objects.node("n1", cards=0, annotations=written))
    with fault_proxy.FaultProxy(clean_cluster, tmp_path) as started:
        yield started


@pytest.fixture
def behind(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, tmp_path: Path
) -> Iterator[extender_process.Extender]:
    """An extender that reaches the API server through the proxy, and a scheduler that asks it."""
    extender = extender_process.Extender(tmp_path, between.kubeconfig)
    extender.start()
    making.schedule(clean_cluster, extender.port, advertised=())
    yield extender
    clean_cluster.stop_scheduler()
    extender.close()


def _taken_mib(plane: ControlPlane) -> int:
    """What the pods say that they have, all together."""
    bound = [pod for pod in plane.client.list_all("Pod") if pod["spec"].get("nodeName")]
    shares = [s for pod in bound for c in making.grant(pod)["containers"] for s in c["shares"]]
    return sum(share["memory_mib"] for share in shares)


def _never_over_until(plane: ControlPlane, holds: Callable[[], bool]) -> None:
    """The card is not over at any look, until something holds."""

    def look() -> bool:
        assert _taken_mib(plane) <= CARD_MIB
        return holds()

    making.eventually(look)


def test_a_swallowed_answer_and_then_refused_connections(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, behind: extender_process.Extender
) -> None:
    """The first Binding happened, the second attempt fails for sure: the card stays taken."""
    swallowed = between.add(faults.swallow(BINDINGS, times=1))
    between.add(faults.drop(faults.Requests("get", "pods", "")))
    clean_cluster.client.create(objects.pod("a", {MEMORY: 10}))
    making.eventually(lambda: swallowed.hits)
    watches = between.count(WATCHES)
    between.refuse_connections()
    between.cut_connections()
    clean_cluster.client.create(objects.pod("b", {MEMORY: 10}))
    _never_over_until(clean_cluster, lambda: _was_refused(clean_cluster, "b"))
    between.end_all()
    between.accept_connections()
    _never_over_until(
        clean_cluster,
        lambda: between.count(WATCHES) > watches and behind.metric("partage_binds_in_doubt") == 0,
    )
    question = {"Pod": clean_cluster.client.get("Pod", "b"), "NodeNames": ["n1"]}
    assert behind.post("/scheduler/filter", question)["FailedNodes"] == {"n1": FULL}
    assert making.node_of(clean_cluster, "a") == "n1"
    assert making.node_of(clean_cluster, "b") == ""
    assert _taken_mib(clean_cluster) <= CARD_MIB


def _was_refused(plane: ControlPlane, name: str) -> bool:
    return any(FULL in text for text in making.events(plane, name))


def test_a_binding_that_comes_late_finds_another_version(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, behind: extender_process.Extender
) -> None:
    """Its doubt has ended and its hold expired; another pod has the card by then."""
    late = between.add(faults.hold_back(BINDINGS, times=1))
    clean_cluster.client.create(objects.pod("a", {MEMORY: 10}))
    making.eventually(lambda: late.hits)
    clean_cluster.stop_scheduler()  # nobody tries the pod again
    making.eventually(lambda: behind.metric("partage_holds") == 0)
    _bind_b(clean_cluster, behind)
    late.end()
    making.eventually(lambda: between.count(BINDINGS, server_status=409))
    assert making.node_of(clean_cluster, "a") == ""
    assert _taken_mib(clean_cluster) <= CARD_MIB


def test_a_binding_of_a_killed_extender_cannot_happen_after_the_next_one_has_begun(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, behind: extender_process.Extender
) -> None:
    """The successor knows nothing of it, but makes it impossible before it decides anything."""
    late = between.add(faults.hold_back(BINDINGS, times=1))
    clean_cluster.client.create(objects.pod("a", {MEMORY: 10}))
    making.eventually(lambda: late.hits)
    clean_cluster.stop_scheduler()
    behind.kill()
    behind.start()
    _bind_b(clean_cluster, behind)
    late.end()
    making.eventually(lambda: between.count(BINDINGS, server_status=409))
    assert making.node_of(clean_cluster, "a") == ""
    assert _taken_mib(clean_cluster) <= CARD_MIB


def _bind_b(plane: ControlPlane, extender: extender_process.Extender) -> None:
    """Another pod gets the card, without a scheduler."""
    plane.client.create(objects.pod("b", {MEMORY: 10}))
    uid = plane.client.get("Pod", "b")["metadata"]["uid"]
    args = {"PodName": "b", "PodNamespace": "default", "PodUID": uid, "Node": "n1"}
    assert extender.post("/scheduler/bind", args) == {"Error": ""}


def test_a_doubt_is_settled_within_moments(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, behind: extender_process.Extender
) -> None:
    """One Binding in two is answered with 504 after it was applied: every pod is bound once."""
    clean_cluster.client.create(objects.node("n2", cards=4, card_units=80))
    between.add(faults.misreport(BINDINGS, 504, one_in=2))
    clean_cluster.client.create_all(objects.pod(f"p{i}", {MEMORY: 2}) for i in range(40))
    making.eventually(
        lambda: all(p["spec"].get("nodeName") for p in clean_cluster.client.list_all("Pod"))
    )
    making.eventually(lambda: behind.metric("partage_binds_in_doubt") == 0)
    assert between.count(BINDINGS) == 40
