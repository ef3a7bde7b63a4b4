"""Agents that count memory in different units: people are told, and pods keep their numbers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects
from cluster.partage_processes.agent_process import Agent
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"
CRASHING = ("sh", "-c", "sleep infinity & echo $! > /pid; wait; exit 1")


@pytest.fixture
def in_mib(site: Site) -> Iterator[Agent]:
    """An agent for the second node that counts MiB, in place of the site's own."""
    node = site.nodes[1]
    options = (*sites.OPTIONS, "--memory-unit", "MiB")
    made = Agent(node, site.plane.kubeconfig, name="in-mib", options=options)
    yield made
    made.close()


def test_nodes_that_differ_are_told_and_containers_keep_their_unit(
    site: Site, in_mib: Agent
) -> None:
    """A container that crashes under the other agent has the environment that it had before."""
    node = site.nodes[1]
    container = objects.container(*CRASHING, limits={MEMORY: 2})
    where = {"kubernetes.io/hostname": node.name}
    site.create(objects.running_pod("job", container, nodeSelector=where))
    site.running("job")
    before = site.environment("job")
    assert before["ALIYUN_COM_GPU_MEM_DEV"] in ("24", "12", "60", "8")
    assert before["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"

    site.agent(node.name).kill()
    in_mib.start()
    message = making.eventually(lambda: _told(site, node.name))
    assert (
        f"node {node.name} counts {MEMORY} in MiB, and node {site.nodes[0].name} in GiB" in message
    )
    problem = f"it counts {MEMORY} in MiB, and the cluster in GiB"
    making.eventually(lambda: problem in _inspected(site))  # when the kubelet has told its amounts

    site.exec("job", "sh", "-c", "kill $(cat /pid)")
    making.eventually(lambda: _restarts(site) == 1)
    site.running("job")
    assert site.environment("job") == before
    (held,) = site.tenant(site.pod("job")).cards
    assert held.memory_bytes == 2 << 30


def _told(site: Site, node: str) -> str:
    messages = [
        event["message"]
        for event in site.client.list_all("Event")
        if (event["reason"], event["involvedObject"]["name"]) == ("MemoryUnitsDiffer", node)
    ]
    return str(messages[0]) if messages else ""


def _inspected(site: Site) -> str:
    partage = Path(sys.executable).with_name("partage")
    command = [str(partage), "inspect", "--kubeconfig", str(site.plane.kubeconfig)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return str(done.stdout)


def _restarts(site: Site) -> int:
    return int(site.pod("job")["status"]["containerStatuses"][0]["restartCount"])
