"""A card is unhealthy and recovers: pods, people and old readers are told; no pod is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from cluster import api, objects
from cluster.node.node import Node
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    """The node with two cards; they are well before and after."""
    yield site.nodes[0]
    sites.simsmi(site.nodes[0], "reset")
    making.eventually(lambda: _unhealthy(site, site.nodes[0]) == [])


@pytest.mark.parametrize("trouble", [("xid", "0", "48"), ("lose", "0")], ids=["xid", "lost"])
def test_nothing_starts_on_an_unhealthy_card_until_it_is_well(
    site: Site, node: Node, trouble: tuple[str, ...]
) -> None:
    """The scheduler knows by the annotation, old readers by the ConfigMap, pods by an event."""
    site.create(_pod("before", node, 3))
    (before,) = site.running("before")
    (card,) = sites.shares(before).values()
    sites.simsmi(node, trouble[0], str(card["index"]), *trouble[2:])
    making.eventually(lambda: _unhealthy(site, node) == [card["index"]])
    making.eventually(lambda: _old_list(site, node) == str(card["index"]))
    making.eventually(lambda: any("is unhealthy" in text for text in site.events("before")))
    making.eventually(lambda: _allocatable(site, node) == 16)
    site.create(_pod("beside", node, 10), _pod("too-much", node, 10))
    making.eventually(lambda: len(_running(site, "beside", "too-much")) == 1)
    (lucky,) = _running(site, "beside", "too-much")
    assert sites.shares(lucky).keys().isdisjoint(sites.shares(before))
    assert site.pod("before")["status"]["phase"] == "Running"
    sites.simsmi(node, "heal", str(card["index"]))
    making.eventually(lambda: _unhealthy(site, node) == [])
    site.running("beside", "too-much")
    making.eventually(lambda: _old_list(site, node) == "")
    making.eventually(lambda: _allocatable(site, node) == 32)
    assert site.pod("before")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_an_error_of_an_application_is_not_the_cards_fault(site: Site, node: Node) -> None:
    """Xid 31 is what a program with a bad pointer gets."""
    sites.simsmi(node, "xid", "1", "31")
    sites.simsmi(node, "xid", "0", "48")
    making.eventually(lambda: _unhealthy(site, node) == [0])


def test_the_kubelet_shows_the_unhealthyness_on_the_right_pods(site: Site, node: Node) -> None:
    """Its IDs say nothing about cards; the agent marks those of containers on the unhealthy one."""
    names = [f"on-{i}" for i in range(6)]
    site.create(*(_pod(name, node, 5) for name in names))
    pods = {pod["metadata"]["name"]: pod for pod in site.running(*names)}
    index = {name: next(iter(sites.shares(pod).values()))["index"] for name, pod in pods.items()}
    assert set(index.values()) == {0, 1}
    sites.simsmi(node, "xid", "1", "48")

    def marked() -> set[str]:
        return {name for name in names if _is_marked(site.pod(name))}

    making.eventually(lambda: marked() == {name for name in names if index[name] == 1})


def _pod(name: str, node: Node, gib: int) -> api.Object:
    where = {"kubernetes.io/hostname": node.name}
    return objects.running_pod(name, objects.container(limits={MEMORY: gib}), nodeSelector=where)


def _running(site: Site, *names: str) -> list[api.Object]:
    pods = [site.pod(name) for name in names]
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def _unhealthy(site: Site, node: Node) -> list[int]:
    annotation = site.client.get("Node", node.name)["metadata"]["annotations"]["partage.dev/cards"]
    return [card["index"] for card in json.loads(annotation)["cards"] if not card["healthy"]]


def _allocatable(site: Site, node: Node) -> int:
    return int(site.client.get("Node", node.name)["status"]["allocatable"][MEMORY])


def _old_list(site: Site, node: Node) -> str | None:
    try:
        unhealthy = site.client.get("ConfigMap", f"unhealthy-gpu-{node.name}", "kube-system")
    except api.ApiError:
        return None
    return str(unhealthy["data"]["gpus"])


def _is_marked(pod: api.Object) -> bool:
    statuses = pod["status"]["containerStatuses"][0].get("allocatedResourcesStatus", [])
    healths = {resource["health"] for status in statuses for resource in status["resources"]}
    return healths == {"Unhealthy"}
