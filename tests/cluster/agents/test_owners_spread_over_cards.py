"""Pods of one owner run on different cards of a real node, if they ask for it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from cluster import api, objects
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

SAME_OWNER = "the GPU has a pod of the same owner (partage.dev/spread)"


def _workload(site: Site, kind: str) -> api.Object:
    """Three pods on the node with two cards, each of which would have room for all of them."""
    labels = {"app": "three"}
    main = objects.container(limits={"aliyun.com/gpu-mem": 2})
    spec: dict[str, Any] = {
        "containers": [main],
        "nodeSelector": {"kubernetes.io/hostname": site.nodes[0].name},
        "terminationGracePeriodSeconds": 1,
    }
    metadata = {"labels": labels, "annotations": {"partage.dev/spread": "owner"}}
    replicas: dict[str, Any] = {
        "replicas": 3,
        "podManagementPolicy": "Parallel",
        "selector": {"matchLabels": labels},
    }
    if kind == "Job":
        spec["restartPolicy"] = "Never"
        replicas = {"parallelism": 3, "completions": 3}
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "three", "namespace": api.DEFAULT, "labels": labels},
        "spec": {**replicas, "template": {"metadata": metadata, "spec": spec}},
    }


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_two_run_on_different_cards_and_the_third_waits(site: Site, kind: str) -> None:
    """It says why, also after the extender was killed; when one of the two ends, another runs."""
    site.client.create(_workload(site, kind))
    try:
        making.eventually(lambda: len(_placed(site)) == 2)
        running = site.running(*sites.names(_placed(site)))
        assert len({uuid for pod in running for uuid in site.cards(_name(pod))}) == 2
        (third,) = [pod for pod in _pods(site) if not pod["spec"].get("nodeName")]
        making.told(site.plane, _name(third), SAME_OWNER)
        site.extender.kill()
        site.start()
        assert _answer(site, third)["FailedNodes"] == {site.nodes[0].name: SAME_OWNER}
        site.client.delete("Pod", _name(running[0]))
        # The owner makes another pod at once, which may be tried before the one that waits.
        (newcomer,) = making.eventually(lambda: _placed(site, but=running), patience_s=90)
        (started,) = site.running(_name(newcomer))
        assert not sites.shares(started).keys() & sites.shares(running[1]).keys()
    finally:
        site.client.delete(kind, "three")


def _answer(site: Site, pod: api.Object) -> Any:
    """What the extender says of a pod when it is asked as kube-scheduler asks."""
    return site.extender.post("/scheduler/filter", {"Pod": pod, "NodeNames": [site.nodes[0].name]})


def _pods(site: Site) -> list[api.Object]:
    pods = site.client.list_all("Pod", selector="app=three")
    return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


def _placed(site: Site, but: Collection[api.Object] = ()) -> list[api.Object]:
    others = {pod["metadata"]["uid"] for pod in but}
    placed = [pod for pod in _pods(site) if pod["spec"].get("nodeName")]
    return [pod for pod in placed if pod["metadata"]["uid"] not in others]


def _name(pod: api.Object) -> str:
    return str(pod["metadata"]["name"])
