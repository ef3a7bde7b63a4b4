"""A hundred pods of one size at once, twice: all that is said of each of them agrees."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from cluster import api, objects
from cluster.node.node import Node
from partage.agent.containers import cdi
from partage.core.quantities import MIB
from partage.kubelet import pod_resources
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"
PODS = 100
NAMES = [f"same-{i}" for i in range(PODS)]


def test_they_are_told_apart(site: Site) -> None:
    """By annotation, environment, PodResources, specification and fence, each time anew."""
    node = site.nodes[1]  # 104 GiB
    first = _round(site, node)
    site.gone(*NAMES)
    second = _round(site, node)
    assert not first & second


def _round(site: Site, node: Node) -> set[str]:
    """Create them, check them, and tell their uids."""
    show = ("sh", "-c", "env; gpu info; sleep infinity")
    container = objects.container(*show, limits={MEMORY: 1})
    where = {"kubernetes.io/hostname": node.name}
    site.create(*(objects.running_pod(n, container, nodeSelector=where) for n in NAMES))
    pods = site.running(*NAMES, patience_s=240)
    holdings = _holdings(node)
    for pod in pods:
        _check(site, node, pod, holdings[pod["metadata"]["name"]])
    assert sum(len(ids) for ids in holdings.values()) == len(set().union(*holdings.values()))
    return {pod["metadata"]["uid"] for pod in pods}


def _check(site: Site, node: Node, pod: api.Object, ids: frozenset[str]) -> None:
    meta = pod["metadata"]
    ((uuid, share),) = sites.shares(pod).items()
    assert share["memory_mib"] == 1024
    said = node.logs(meta["name"], "main").splitlines()
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in said
    assert f"ALIYUN_COM_GPU_MEM_IDX={meta['annotations']['ALIYUN_COM_GPU_MEM_IDX']}" in said
    seen, _, total_mib = said[-1].split()
    assert (seen, total_mib) == (uuid, "1024")
    specification = _specification(node, ids)
    assert specification["annotations"]["partage.dev/uid"] == meta["uid"]
    assert f"NVIDIA_VISIBLE_DEVICES={uuid}" in specification["containerEdits"]["env"]
    (held,) = site.tenant(pod).cards
    assert (held.uuid, held.memory_bytes) == (uuid, 1024 * MIB)


def _holdings(node: Node) -> dict[str, frozenset[str]]:
    """The device IDs of each pod, by the kubelet."""
    listed = asyncio.run(pod_resources.listed(node.pod_resources))
    return {holding.pod: holding.ids for holding in listed if holding.resource == MEMORY}


def _specification(node: Node, ids: frozenset[str]) -> dict[str, Any]:
    path = node.cdi / f"partage-{cdi.device(MEMORY, ids)}.json"
    device: dict[str, Any] = json.loads(path.read_text())["devices"][0]
    return device
