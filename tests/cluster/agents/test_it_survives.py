"""Whatever is killed in the midst of work, nothing is lost, and nobody gets another's card."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable

import pytest

from cluster import api, objects
from cluster.node.node import Node
from partage.core.quantities import MIB
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"
SHOW = ("sh", "-c", "gpu info; sleep infinity")
NEW = 24


def _agent(site: Site, node: Node) -> None:
    agent = site.agent(node.name)
    agent.kill()
    time.sleep(0.3)  # some pods are to start while there is none
    agent.start(ready=False)


def _kubelet(site: Site, node: Node) -> None:
    node.restart_kubelet()


def _containerd(site: Site, node: Node) -> None:
    node.kill_containerd()
    node.start_containerd()


def _extender(site: Site, node: Node) -> None:
    site.extender.kill()
    site.extender.start(ready=False)


@pytest.mark.parametrize("kill", [_agent, _kubelet, _containerd, _extender])
def test_a_crash_while_pods_start(site: Site, kill: Callable[[Site, Node], None]) -> None:
    """Those that run go on undisturbed, those that are on their way arrive, and all is right."""
    node = site.nodes[1]
    old = [f"old-{i}" for i in range(6)]
    site.create(*_pods(old, node))
    before = {pod["metadata"]["name"]: _process(pod) for pod in site.running(*old)}
    site.create(_deployment(NEW, node))
    making.eventually(lambda: len(_running(site)) > len(old) + 3, patience_s=90)
    kill(site, node)
    making.eventually(
        lambda: len(_running(site)) == len(old) + NEW,
        patience_s=240,
        why=lambda: site.describe(sites.names(site.client.list_all("Pod"))),
    )
    pods = _running(site)
    after = {pod["metadata"]["name"]: _process(pod) for pod in pods}
    assert {name: after[name] for name in old} == before
    _check(site, node, pods)


def test_the_shim_of_a_pod(site: Site) -> None:
    """Its containers die with it and start again, with the same share; neighbours go on."""
    node = site.nodes[1]
    site.create(*_pods(["victim", "neighbour"], node))
    pods = {pod["metadata"]["name"]: pod for pod in site.running("victim", "neighbour")}
    node.kill_shim("victim")
    making.eventually(
        lambda: _process(site.pod("victim")) != _process(pods["victim"]), patience_s=90
    )
    after = site.running("victim", "neighbour")
    assert _process(after[1]) == _process(pods["neighbour"])
    assert sites.shares(after[0]) == sites.shares(pods["victim"])
    _check(site, node, after)


def test_an_agent_that_was_away_while_pods_went_and_came(site: Site) -> None:
    """It finds what it started before, and removes what is gone."""
    node = site.nodes[1]
    site.create(*_pods(["stays", "goes"], node))
    site.running("stays", "goes")
    agent = site.agent(node.name)
    agent.kill()
    site.gone("goes")
    agent.start()
    making.eventually(lambda: len(list(site.root(node.name).tenants.iterdir())) == 1)
    site.create(*_pods(["comes"], node))
    pods = site.running("stays", "comes")
    _check(site, node, pods)
    rows = {row["pod"]: row for row in agent.report()["containers"]}
    assert rows["stays"]["fence"] == "hook"
    assert rows["stays"]["peak_bytes"] > 0


def _pods(names: Iterable[str], node: Node) -> list[api.Object]:
    container = objects.container(*SHOW, limits={MEMORY: 2})
    where = {"kubernetes.io/hostname": node.name}
    return [objects.running_pod(name, container, nodeSelector=where) for name in names]


def _deployment(count: int, node: Node) -> api.Object:
    """Pods with an owner, which makes anew what a kubelet without its plugins fails for good."""
    labels = {"app": "new"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pods(["new"], node)[0]["spec"]},
        },
    }


def _running(site: Site) -> list[api.Object]:
    return [pod for pod in site.client.list_all("Pod") if _runs(pod)]


def _runs(pod: api.Object) -> bool:
    return pod["status"].get("phase") == "Running" and bool(_process(pod))


def _process(pod: api.Object) -> str:
    """Which run of its container this is."""
    statuses = pod["status"].get("containerStatuses", [])
    return str(statuses[0].get("containerID", "")) if statuses else ""


def _said(node: Node, pod: api.Object) -> list[str]:
    return node.logs(pod["metadata"]["name"], "main").split()


def _check(site: Site, node: Node, pods: list[api.Object]) -> None:
    """Each pod sees the card of its grant, with its share, and no card is over."""
    taken: dict[str, int] = {}
    for pod in pods:
        ((uuid, share),) = sites.shares(pod).items()
        said = making.eventually(functools.partial(_said, node, pod))
        assert (said[0], said[2]) == (uuid, "2048")
        (held,) = site.tenant(pod).cards
        assert (held.uuid, held.memory_bytes) == (uuid, 2048 * MIB)
        taken[uuid] = taken.get(uuid, 0) + share["memory_mib"]
    sizes = {card["uuid"]: card["memory_mib"] for card in site.agent(node.name).report()["cards"]}
    assert all(used <= sizes[uuid] for uuid, used in taken.items())
