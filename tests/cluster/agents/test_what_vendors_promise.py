"""What cGPU and GaiaGPU promise of nodes and containers, on real ones."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import objects
from cluster.node.node import Node
from partage.core.quantities import MIB
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

CGPU_MODE = "ack.node.gpu.schedule"
MEMORY, CORE, CARDS = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "nvidia.com/gpu"
VCUDA = {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}
QUOTA_MIB, CONTEXT_MIB = 1024, 256  # four blocks; what the simulated driver takes for a context
OUT_OF_MEMORY = (1, "CUDA_ERROR_OUT_OF_MEMORY\n")


@pytest.fixture
def node(site: Site) -> Iterator[Node]:
    """The node with two cards of 16 GiB; its label is gone when the test ends."""
    labelled = site.nodes[0]
    yield labelled
    _set_mode(site, labelled, None)
    _offers(site, labelled, {MEMORY: 32, CORE: 200, CARDS: 2})


def _set_mode(site: Site, node: Node, mode: str | None) -> None:
    site.client.patch("Node", node.name, {"metadata": {"labels": {CGPU_MODE: mode}}})


def _offers(site: Site, node: Node, expected: dict[str, int]) -> None:
    """Wait until the kubelet has reported these amounts: it does every ten seconds."""

    def counted() -> dict[str, int]:
        status = site.client.get("Node", node.name)["status"]["allocatable"]
        return {resource: int(status.get(resource, 0)) for resource in expected}

    making.eventually(lambda: counted() == expected, why=lambda: str(counted()))


class TestCgpu:
    """Aliyun's modes of nodes."""

    def test_a_label_takes_away_what_the_mode_does_not_serve(self, site: Site, node: Node) -> None:
        """At once, and back: a label that is gone holds nothing back, unlike on ACK."""
        for mode, expected in (
            (None, {MEMORY: 32, CORE: 200, CARDS: 2}),
            ("core_mem", {MEMORY: 32, CORE: 200, CARDS: 0}),
            ("cgpu", {MEMORY: 32, CORE: 0, CARDS: 0}),
            ("default", {MEMORY: 0, CORE: 0, CARDS: 2}),
            (None, {MEMORY: 32, CORE: 200, CARDS: 2}),
        ):
            _set_mode(site, node, mode)
            _offers(site, node, expected)

    def test_share_tells_and_does_not_limit(self, site: Site, node: Node) -> None:
        """Both variables are there; the program sees the card, and gets more than it asked for."""
        _set_mode(site, node, "share")
        _offers(site, node, {MEMORY: 32, CORE: 0, CARDS: 0})
        selected: dict[str, Any] = {"nodeSelector": {CGPU_MODE: "share"}}
        site.create(
            objects.running_pod("told-only", objects.container(limits={MEMORY: 2}), **selected)
        )
        (pod,) = site.running("told-only")
        environment = site.environment("told-only")
        assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
        assert environment["ALIYUN_COM_GPU_MEM_DEV"] == "16"
        assert site.cards("told-only") == dict.fromkeys(sites.shares(pod), 16384)
        assert site.said("told-only", "gpu", "try", "4096") == "held\n"


class TestGaiaGpu:
    """Tkestack's vcuda."""

    def test_nodes_offer_percents_and_blocks(self, site: Site) -> None:
        """A hundred for each card, and one for each 256 MiB."""
        amounts = {"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 2 * 64}
        _offers(site, site.nodes[0], amounts)

    def test_memory_is_exact(self, site: Site) -> None:
        """Four blocks are 1024 MiB: the last that fits succeeds, one MiB more does not."""
        site.create(objects.running_pod("exact", objects.container(limits=VCUDA)))
        (pod,) = site.running("exact")
        assert site.cards("exact") == dict.fromkeys(sites.shares(pod), QUOTA_MIB)
        most_mib = QUOTA_MIB - CONTEXT_MIB
        assert site.said("exact", "gpu", "try", str(most_mib)) == "held\n"
        refused = site.exec("exact", "gpu", "try", str(most_mib + 1))
        assert (refused.returncode, refused.stdout) == OUT_OF_MEMORY

    def test_processes_of_a_container_have_one_quota(self, site: Site) -> None:
        """What the first holds, and its context, is missing for the second."""
        holding = objects.container("gpu", "hold", "200", limits=VCUDA)
        site.create(objects.running_pod("pair", holding))
        (pod,) = site.running("pair")
        node = pod["spec"]["nodeName"]
        held = (200 + CONTEXT_MIB) * MIB
        making.eventually(lambda: _metric(site, node, "container_memory_used_bytes") == held)
        most_mib = QUOTA_MIB - 200 - 2 * CONTEXT_MIB
        assert site.said("pair", "gpu", "try", str(most_mib)) == "held\n"
        refused = site.exec("pair", "gpu", "try", str(most_mib + 1))
        assert (refused.returncode, refused.stdout) == OUT_OF_MEMORY

    def test_what_is_used_and_asked_for_is_measured_by_container_and_card(self, site: Site) -> None:
        """Of core and of memory."""
        site.create(objects.running_pod("pair", objects.container(limits=VCUDA)))
        (pod,) = site.running("pair")
        node, (uuid,) = pod["spec"]["nodeName"], sites.shares(pod)
        site.said("pair", "gpu", "spin", "2")
        assert _metric(site, node, "container_memory_granted_bytes", uuid) == QUOTA_MIB * MIB
        assert _metric(site, node, "container_compute_granted_ratio", uuid) == 0.2
        making.eventually(lambda: _metric(site, node, "container_busy_seconds_total", uuid) > 0.1)
        assert _metric(site, node, "container_memory_peak_bytes", uuid) >= CONTEXT_MIB * MIB

    def test_a_container_that_cannot_start_gives_everything_back(self, site: Site) -> None:
        """The scheduler's card is the node's, and when the pod is gone nobody has it."""
        whole = {"tencent.com/vcuda-core": 200}
        wants = {"partage.dev/fence": "driver"}
        shared = objects.container(limits=VCUDA)
        where: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": site.nodes[0].name}}
        site.create(objects.running_pod("strict", shared, annotations=wants, **where))
        making.told(site.plane, "strict", "fence driver")
        site.create(objects.running_pod("after", objects.container(limits=whole), **where))
        making.told(site.plane, "after", "Insufficient tencent.com/vcuda-core", "no GPU is unused")
        site.gone("strict")
        (pod,) = site.running("after")
        assert site.cards("after").keys() == sites.shares(pod).keys()
        assert len(sites.shares(pod)) == 2


def _metric(site: Site, node: str, name: str, uuid: str = "") -> float:
    """One number of the agent's metrics about the pod; missing is an error."""
    page = site.agent(node).metrics()
    for line in page.splitlines():
        match = re.fullmatch(rf"partage_{name}{{(.*)}} (\S+)", line)
        if match is not None and 'pod="pair"' in match[1] and uuid in match[1]:
            return float(match[2])
    raise AssertionError(page)
