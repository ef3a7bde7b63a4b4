"""Requests of every family, side by side on the same cards of two real nodes."""

from __future__ import annotations

from typing import Any

import pytest

from cluster import api, objects
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

ONLINE = {"tke.cloud.tencent.com/app-class": "online"}
OFFLINE = {"tke.cloud.tencent.com/app-class": "offline"}
QGPU = "tke.cloud.tencent.com/qgpu-"

# name: (limits, annotations, MiB of each card that a program sees; 0: the card is its own)
REQUESTS: dict[str, tuple[dict[str, int], dict[str, str], int]] = {
    "gpushare": ({"aliyun.com/gpu-mem": 3}, {}, 3072),
    "cgpu": ({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 30}, {}, 2048),
    "qgpu": ({f"{QGPU}core": 20, f"{QGPU}memory": 2}, {}, 2048),
    "qgpu-online": ({f"{QGPU}memory": 2}, ONLINE, 2048),
    "qgpu-offline": ({f"{QGPU}core-greedy": 30, f"{QGPU}memory": 1}, OFFLINE, 1024),
    "gaia": ({"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 4}, {}, 1024),
    "elastic-io": ({"elasticgpu.io/gpu-memory": 512}, {}, 512),
    "elastic-com": ({"elasticgpu.com/gpu-core": 20, "elasticgpu.com/gpu-memory": 600}, {}, 600),
    "hami": ({"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1000}, {}, 1000),
    "partage": (
        {
            "partage.dev/cards": 1,
            "partage.dev/memory-mib": 700,
            "partage.dev/compute-percent": 20,
        },
        {},
        700,
    ),
    "t9k-card": ({"tensorstack.dev/nvidia-gpu": 1}, {}, 0),
    "nvidia-card": ({"nvidia.com/gpu": 1}, {}, 0),
    "partage-card": ({"partage.dev/cards": 1}, {}, 0),
}


def test_all_of_them_at_once(site: Site) -> None:
    """Each container sees its cards alone, with its share; those with a card of their own, it."""
    whole = [name for name in REQUESTS if name.endswith("-card")]
    site.create(*(_pod(name) for name in whole))
    site.running(*whole)  # first, as shares may lie on every card
    site.create(*(_pod(name) for name in REQUESTS if name not in whole))
    pods = {pod["metadata"]["name"]: pod for pod in site.running(*REQUESTS)}
    for name, (_, _, visible_mib) in REQUESTS.items():
        granted = sites.shares(pods[name])
        seen = site.cards(name)
        assert seen.keys() == granted.keys(), name
        assert site.environment(name)["NVIDIA_VISIBLE_DEVICES"] == ",".join(granted), name
        expected = {visible_mib} if visible_mib else {s["memory_mib"] for s in granted.values()}
        assert set(seen.values()) == expected, name
        assert {share["exclusive"] for share in granted.values()} == {not visible_mib}, name
    alone = [uuid for name in REQUESTS if name.endswith("-card") for uuid in _uuids(pods[name])]
    others = [u for n in REQUESTS if not n.endswith("-card") for u in _uuids(pods[n])]
    assert len(set(alone)) == len(alone)
    assert not set(alone) & set(others)


def test_a_share_in_percent_without_a_number_of_cards_is_of_one_card(site: Site) -> None:
    """The kubelet asks the agent by the percentages, too: the container sees its share."""
    limits = {"partage.dev/memory-percent": 20, "partage.dev/compute-percent": 33}
    site.create(_asking("first", limits))
    (pod,) = site.running("first")
    ((uuid, share),) = sites.shares(pod).items()
    assert share["compute_percent"] == 33
    assert site.cards("first") == {uuid: share["memory_mib"]}


def test_a_percentage_of_t9k_is_advice_unless_the_node_enforces_it(site: Site) -> None:
    """As its documentation has it; the container is told, and sees the card."""
    site.create(_asking("percent", {"tensorstack.dev/nvidia-gpu-percent": 25}))
    (pod,) = site.running("percent")
    ((uuid, share),) = sites.shares(pod).items()
    environment = site.environment("percent")
    assert environment["T9K_GPU_PERCENT"] == "25"
    assert environment["T9K_GPU_MEMORY"] == str(share["memory_mib"])
    assert site.cards("percent") == {uuid: 4 * share["memory_mib"]}


def test_a_whole_node(site: Site) -> None:
    """T9k's third mode: all cards of one node, and nobody else there."""
    site.create(_asking("node", {"tensorstack.dev/nvidia-gpu-node": 1}))
    (pod,) = site.running("node")
    cards = site.node(pod["spec"]["nodeName"]).cards
    assert cards is not None
    assert site.cards("node").keys() == set(cards.uuids)
    assert site.environment("node")["NVIDIA_VISIBLE_DEVICES"] == "all"


@pytest.mark.parametrize("named", ["aliyun.com/gpu-mem", "partage.dev/memory-mib"])
def test_what_nodes_offer_is_what_their_cards_have(site: Site, named: str) -> None:
    """By the kubelet's own account, in the unit of the resource."""
    unit = {"partage.dev/cards": 1, "aliyun.com/gpu-mem": 1024, "partage.dev/memory-mib": 1}[named]
    sizes = {site.nodes[0].name: (16, 16), site.nodes[1].name: (24, 12, 60, 8)}
    for node, gib in sizes.items():
        status = site.client.get("Node", node)["status"]
        assert int(status["allocatable"][named]) == sum(gib) * 1024 // unit
        assert status["capacity"]["aliyun.com/gpu-count"] == str(len(gib))
    labels = site.client.get("Node", site.nodes[0].name)["metadata"]["labels"]
    assert labels["nvidia.com/gpu.count"] == "2"
    assert labels["nvidia.com/gpu.memory"] == "16384"
    assert labels["nvidia.com/gpu.product"].startswith("Simulated")


def _pod(name: str) -> api.Object:
    limits, annotations, _ = REQUESTS[name]
    return _asking(name, limits, annotations=annotations)


def _asking(name: str, limits: dict[str, int], **more: Any) -> api.Object:
    return objects.running_pod(name, objects.container(limits=limits), **more)


def _uuids(pod: api.Object) -> list[str]:
    return list(sites.shares(pod))
