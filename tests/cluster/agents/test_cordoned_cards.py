"""A card of a real node is cordoned, drained and opened again; pods that run there are spared."""

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
    """The node with two cards of 16 GiB, all of them open before and after."""
    yield site.nodes[0]
    for index in ("0", "1"):
        sites.partage(site, "uncordon", site.nodes[0].name, index)


def test_nothing_new_lands_on_a_cordoned_card_and_who_is_there_stays(
    site: Site, node: Node
) -> None:
    """The sums of the scheduler and of the kubelet agree; when the card is opened, it is used."""
    site.create(_pod("before", node, 3))
    (before,) = site.running("before")
    (card,) = sites.shares(before).values()
    done = sites.partage(site, "cordon", node.name, card["uuid"], "--reason", "fan")
    assert (done.returncode, done.stderr) == (0, "")
    making.eventually(lambda: _allocatable(site, node) == 32 - 13)
    site.create(_pod("beside", node, 10), _pod("too-much", node, 10))
    making.eventually(lambda: len(_running(site, "beside", "too-much")) == 1)
    (lucky,) = _running(site, "beside", "too-much")
    assert sites.shares(lucky).keys().isdisjoint(sites.shares(before))
    shown = json.loads(sites.partage(site, "inspect", node.name, "-o", "json").stdout)
    reasons = [c.get("cordon_reason") for c in shown["nodes"][0]["cards"] if c.get("cordoned")]
    assert reasons == ["fan"]
    assert "cordoned" in _top(site, node)
    sites.partage(site, "uncordon", node.name, card["uuid"])
    site.running("beside", "too-much")
    making.eventually(lambda: _allocatable(site, node) == 32)
    assert site.pod("before")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_card_is_drained_by_evictions(site: Site, node: Node) -> None:
    """What has a controller comes again on the other card; a pod made by hand is left alone."""
    site.client.create(_deployment("served", node))
    (name,) = making.eventually(lambda: _names(site, "served"))
    (served,) = site.running(name)
    (card,) = sites.shares(served).values()
    site.create(_pod("bare", node, 1))
    (bare,) = site.running("bare")
    assert sites.shares(bare).keys() == sites.shares(served).keys()  # binpack
    done = sites.partage(site, "cordon", node.name, str(card["index"]), "--drain", "-o", "json")
    outcome = json.loads(done.stdout)
    assert done.returncode == 1, done
    assert outcome["evicted"] == [f"default/{name}"]
    assert [left["pod"] for left in outcome["left"]] == ["bare"]
    (other,) = making.eventually(lambda: _names(site, "served", but=name))
    (again,) = site.running(other)
    assert sites.shares(again).keys().isdisjoint(sites.shares(served))
    done = sites.partage(site, "cordon", node.name, str(card["index"]), "--drain", "--force")
    assert done.returncode == 0, done
    assert "pod default/bare: gone" in done.stdout
    making.eventually(lambda: _allocatable(site, node) == 16)


def test_a_disruption_budget_holds_a_drain_up(site: Site, node: Node) -> None:
    """The Eviction API is asked, which says no while the budget is used up."""
    site.client.create(_deployment("served", node))
    (name,) = making.eventually(lambda: _names(site, "served"))
    (served,) = site.running(name)
    (card,) = sites.shares(served).values()
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    site.client.call("POST", budgets, _budget("served"))
    try:
        words = ("cordon", node.name, card["uuid"], "--drain", "--timeout", "2")
        done = sites.partage(site, *words)
        assert done.returncode == 1, done
        assert "disruption budget" in done.stdout
        assert site.pod(name)["status"]["phase"] == "Running"
    finally:
        site.client.call("DELETE", f"{budgets}/served")
    done = sites.partage(site, *words[:-2], "--timeout", "60")
    assert done.returncode == 0, done


def _pod(name: str, node: Node, gib: int) -> api.Object:
    where = {"kubernetes.io/hostname": node.name}
    return objects.running_pod(name, objects.container(limits={MEMORY: gib}), nodeSelector=where)


def _deployment(name: str, node: Node) -> api.Object:
    labels = {"app": name}
    template = _pod("", node, 2)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": api.DEFAULT},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template["spec"]},
        },
    }


def _budget(name: str) -> api.Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": api.DEFAULT},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}},
    }


def _names(site: Site, app: str, but: str = "") -> list[str]:
    pods = site.client.list_all("Pod", selector=f"app={app}")
    names = [pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return [name for name in names if name != but]


def _running(site: Site, *names: str) -> list[api.Object]:
    pods = [site.pod(name) for name in names]
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


def _allocatable(site: Site, node: Node) -> int:
    return int(site.client.get("Node", node.name)["status"]["allocatable"][MEMORY])


def _top(site: Site, node: Node) -> str:
    return sites.partage(site, "top", "--once", "--agent", site.agent(node.name).url).stdout
