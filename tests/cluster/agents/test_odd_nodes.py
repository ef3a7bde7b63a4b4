"""Nodes that are not as usual: with one card, with another's plugin, without a driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.node.node import Node
from cluster.partage_processes import extender_process
from cluster.partage_processes.agent_process import Agent
from tests.cluster import making, whole_cards

MEMORY = "aliyun.com/gpu-mem"


@pytest.fixture
def third(
    nodes: tuple[Node, Node],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> Iterator[Node]:
    """A node more, with the cards that the test names."""
    folder = tmp_path_factory.mktemp("third")  # short, as paths of sockets must be
    made = Node(nodes[0].plane, folder, 3, cards=request.param)
    try:
        made.start()
        yield made
    finally:
        made.stop()
        made.plane.client.delete("Node", made.name)


@pytest.fixture
def agent(third: Node) -> Iterator[Agent]:
    """Its agent, started when the test says so."""
    made = Agent(third, third.plane.kubeconfig)
    yield made
    made.close()


@pytest.mark.parametrize("third", ["16GiB"], indirect=True)
def test_on_one_card_there_is_no_choice(third: Node, agent: Agent) -> None:
    """A pod that nobody granted anything gets it, if it asks as gpushare's do; others do not."""
    agent.start()
    client = third.plane.client
    pod = objects.running_pod("lone", objects.container(limits={MEMORY: 3}), node_name=third.name)
    client.create(pod)
    making.eventually(lambda: client.get("Pod", "lone")["status"].get("phase") == "Running")
    assert third.exec("lone", "main", "gpu", "info").stdout.split()[2] == "3072"
    limits = {"partage.dev/cards": 1, "partage.dev/memory-mib": 100}
    other = objects.running_pod("other", objects.container(limits=limits), node_name=third.name)
    client.create(other)
    making.eventually(lambda: any("extender" in t for t in making.events(third.plane, "other")))
    assert client.get("Pod", "other")["status"]["phase"] == "Pending"
    for name in ("lone", "other"):
        client.delete("Pod", name, grace_seconds=0)


@pytest.mark.parametrize("third", ["2x8GiB"], indirect=True)
def test_nvidias_own_plugin_keeps_its_resource(third: Node, agent: Agent) -> None:
    """Partage leaves nvidia.com/gpu to whoever serves it, says so, and serves the rest."""
    assert third.cards is not None
    with whole_cards.WholeCards(third, third.cards.uuids):
        making.eventually(lambda: _allocatable(third, "nvidia.com/gpu") == 2)
        agent.start()
        making.eventually(lambda: _allocatable(third, MEMORY) == 16)
        assert "served by another plugin" in agent.log()
        assert _allocatable(third, "nvidia.com/gpu") == 2
    events = third.plane.client.list_all("Event")
    about = [
        event["message"] for event in events if event["involvedObject"].get("name") == third.name
    ]
    assert any("nvidia.com/gpu" in text for text in about)


@pytest.mark.parametrize("third", ["2x8GiB"], indirect=True)
def test_what_nvidias_plugin_gave_away_is_recorded_and_left_alone(
    third: Node, agent: Agent, tmp_path: Path
) -> None:
    """Of two cards it has given one; a share goes to the other, and a second one waits for room."""
    assert third.cards is not None
    client, whole = third.plane.client, objects.container(limits={"nvidia.com/gpu": 1})
    extender = extender_process.Extender(tmp_path, third.plane.kubeconfig)
    with whole_cards.WholeCards(third, third.cards.uuids):
        making.eventually(lambda: _allocatable(third, "nvidia.com/gpu") == 2)
        client.create(objects.running_pod("theirs", whole, node_name=third.name))
        making.eventually(lambda: client.get("Pod", "theirs")["status"]["phase"] == "Running")
        agent.start()
        making.eventually(lambda: making.GRANT in making.written(client.get("Pod", "theirs")))
        (theirs,) = _cards(client.get("Pod", "theirs"))
        try:
            extender.start()
            advertised = [MEMORY, "nvidia.com/gpu"]
            making.schedule(third.plane, extender.port, advertised=advertised)
            selector = {"kubernetes.io/hostname": third.name}
            for name in ("ours", "late"):
                share = objects.running_pod(name, objects.container(limits={MEMORY: 6}))
                share["spec"]["nodeSelector"] = selector
                client.create(share)
            making.eventually(lambda: making.node_of(third.plane, "ours"))
            (ours,) = _cards(client.get("Pod", "ours"))
            making.told(third.plane, "late", "no GPU has enough free memory")
        finally:
            extender.close()
            third.plane.stop_scheduler()
            for name in ("theirs", "ours", "late"):
                client.delete("Pod", name, grace_seconds=0)
    assert {theirs, ours} == set(third.cards.uuids)


def _cards(pod: api.Object) -> list[str]:
    grant = making.grant(pod)
    return [share["uuid"] for container in grant["containers"] for share in container["shares"]]


@pytest.mark.parametrize("third", [""], indirect=True)
def test_without_a_driver_it_says_so_and_waits(third: Node, agent: Agent) -> None:
    """One line, with what to do; nothing is offered meanwhile."""
    agent.start(ready=False)
    making.eventually(lambda: "waiting until there are cards" in agent.log())
    assert agent.log().count("waiting until there are cards") == 1
    assert _allocatable(third, MEMORY) == 0
    assert agent.pid is not None


def _allocatable(node: Node, resource: str) -> int:
    status = node.plane.client.get("Node", node.name)["status"]
    return int(status["allocatable"].get(resource, 0))
