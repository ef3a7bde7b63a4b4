"""Modes of real nodes: what containers get, and what a label does to a node that is in use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cluster import api, objects
from cluster.node.node import Node
from partage.admission import additions
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MODE = "sched.tensorstack.dev/node-alloc-mode"
CARDS = "tensorstack.dev/nvidia-gpu"
PERCENT, WHOLE_NODE = f"{CARDS}-percent", f"{CARDS}-node"
HOSTNAME = "kubernetes.io/hostname"
GROUP = {"scheduler.tensorstack.dev/group-name": "gpu-usage"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    """The node with two cards of 16 GiB; its label is gone when the test ends."""
    labelled = site.nodes[0]
    yield labelled
    _set_mode(site, labelled, None)
    making.eventually(lambda: not site.client.get("Node", labelled.name)["spec"].get("taints"))
    _offers(site, labelled, cards=2, percent=200, whole=1)


def _set_mode(site: Site, node: Node, mode: str | None) -> None:
    site.client.patch("Node", node.name, {"metadata": {"labels": {MODE: mode}}})


def _offers(site: Site, node: Node, **amounts: int) -> None:
    """Wait until the kubelet has reported so much of T9k's resources: it does every ten seconds."""

    def counted() -> dict[str, int]:
        status = site.client.get("Node", node.name)["status"]["allocatable"]
        names = {"cards": CARDS, "percent": PERCENT, "whole": WHOLE_NODE}
        return {word: int(status.get(names[word], 0)) for word in amounts}

    making.eventually(lambda: counted() == amounts, why=lambda: str(counted()))


def _pod(name: str, limits: dict[str, int], node: Node, **spec: Any) -> api.Object:
    """A pod of T9k on one node; nobody adds tolerations here."""
    made = objects.running_pod(
        name,
        objects.container(limits=limits),
        schedulerName="t9k-scheduler",
        tolerations=[{"operator": "Exists"}],
        nodeSelector={HOSTNAME: node.name},
        **spec,
    )
    made["metadata"]["labels"] = GROUP
    return made


def _told_of_node(site: Site, node: Node, reason: str) -> list[str]:
    events = site.client.list_all("Event")
    return [
        event["message"]
        for event in events
        if event["reason"] == reason and event["involvedObject"]["name"] == node.name
    ]


def test_a_percentage_is_told_in_mib(site: Site, node: Node) -> None:
    """30 % of 16384 MiB are 4915, as T9k's environment has it."""
    _set_mode(site, node, "sgn")
    _offers(site, node, cards=0, percent=200, whole=0)
    site.create(_pod("share", {PERCENT: 30}, node))
    (pod,) = site.running("share")
    environment = site.environment("share")
    assert environment["T9K_GPU_PERCENT"] == "30"
    assert environment["T9K_GPU_MEMORY"] == "4915"
    assert environment["NVIDIA_VISIBLE_DEVICES"] == ",".join(sites.shares(pod))


def test_cards_of_an_exclusive_node_are_distinct(site: Site, node: Node) -> None:
    """And all that the container sees."""
    _set_mode(site, node, "xgn")
    _offers(site, node, cards=2, percent=0, whole=1)
    site.create(_pod("cards", {CARDS: 2}, node))
    site.running("cards")
    uuids = site.environment("cards")["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert node.cards is not None
    assert sorted(uuids) == sorted(node.cards.uuids)
    assert site.cards("cards").keys() == set(uuids)


def test_a_label_changes_what_is_offered_under_running_pods(site: Site, node: Node) -> None:
    """They live on, also when a container crashes and when the kubelet starts again.

    What the new mode serves is placed beside them, and people are told once.
    """
    _set_mode(site, node, "sgn")
    _offers(site, node, cards=0, percent=200, whole=0)
    site.create(_pod("share", {PERCENT: 30}, node))
    (before,) = site.running("share")
    told_before = len(_told_of_node(site, node, "ModeChanged"))

    _set_mode(site, node, "xgn")
    _offers(site, node, cards=2, percent=0, whole=1)
    making.eventually(lambda: len(_told_of_node(site, node, "ModeChanged")) == told_before + 1)
    assert "1 pod of the mode before still runs (default/share)" in "".join(
        _told_of_node(site, node, "ModeChanged")
    )
    site.create(_pod("card", {CARDS: 1}, node))
    (card,) = site.running("card")
    assert not sites.shares(card).keys() & sites.shares(before).keys()
    site.create(_pod("second", {CARDS: 1}, node))

    sandbox = node.sandbox("share")
    node.kill_shim("share")
    # The kubelet may see the end of the container before that of its sandbox, and make it twice.
    making.eventually(lambda: _runs_in_another(site, node, "share", sandbox))
    (after,) = site.running("share")
    node.restart_kubelet()
    making.eventually(node.is_ready)
    _offers(site, node, cards=2, percent=0, whole=1)
    site.create(_pod("later", {}, node))  # a kubelet first takes back what it had
    site.running("later")
    assert site.pod("share")["metadata"]["uid"] == before["metadata"]["uid"]
    assert sites.shares(after) == sites.shares(before)
    assert site.environment("share")["T9K_GPU_MEMORY"] == "4915"
    assert not making.node_of(site.plane, "second")
    site.gone("share")
    site.running("second")
    assert len(_told_of_node(site, node, "ModeChanged")) == told_before + 1


def _runs_in_another(site: Site, node: Node, name: str, sandbox: str) -> bool:
    """Whether a pod has a new sandbox, and the containers that its status names are there."""
    statuses = site.pod(name)["status"].get("containerStatuses", [])
    ids = {status.get("containerID", "").rpartition("/")[2] for status in statuses}
    return node.sandbox(name) not in ("", sandbox) and ids <= set(node.containers())


def test_pods_of_daemon_sets_are_beside_a_pod_with_a_whole_node(site: Site, node: Node) -> None:
    """Kubernetes still gives them the label by which they are known."""
    _set_mode(site, node, "xgn")
    _offers(site, node, cards=2, percent=0, whole=1)
    labels = {"app": "watches"}
    spec = objects.running_pod("", objects.container(), tolerations=[{"operator": "Exists"}])
    site.client.create(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "watches", "namespace": api.DEFAULT},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec["spec"]},
            },
        }
    )
    try:
        daemons = making.eventually(lambda: _daemons(site))
        assert all("pod-template-generation" in pod["metadata"]["labels"] for pod in daemons)
        alone = {"podAntiAffinity": {REQUIRED: [additions.ALONE]}}
        site.create(_pod("node", {WHOLE_NODE: 1}, node, affinity=alone))
        (pod,) = site.running("node")
        assert pod["spec"]["nodeName"] == node.name
        site.create(_pod("plain", {}, node))
        making.told(site.plane, "plain", "anti-affinity")
        site.gone("node", "plain")
    finally:
        site.client.delete("DaemonSet", "watches")
        making.eventually(lambda: not _daemons(site))


def _daemons(site: Site) -> list[api.Object]:
    """One on each node, when all are there."""
    pods = site.client.list_all("Pod", selector="app=watches")
    return pods if len(pods) == len(site.nodes) else []
