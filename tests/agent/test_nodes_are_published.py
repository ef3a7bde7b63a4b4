"""What the cluster is told of a node's cards: all of it, and nothing while all is well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

import partage
from partage.agent import node_state
from partage.agent.cluster import node_publication
from partage.dialects import contract, node_readings, nodes
from partage.kube import api
from tests.agent import agent_node
from tests.kube import api_clients, scripted_server

COUNT, MEMORY, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.product"
FENCE = "partage.dev/fence"
UNHEALTHY = "/configmaps/unhealthy-gpu-gpu-1"


def labelled(model: str) -> str | None:
    """The label of a node whose first card has this model."""
    state = agent_node.facts()
    state.set_devices([agent_node.device(0, model=model)])
    return described(state).labels.get(PRODUCT)


def described(
    state: node_state.NodeState, labels: Mapping[str, str] | None = None
) -> node_publication.Description:
    """What a node with these labels should say."""
    return node_publication.described(state, labels or {}, fence="hook")


class TestDescribing:
    """What is said of cards, as values."""

    def test_the_annotation_has_every_card(self) -> None:
        """The scheduler reads back what the agent knows, the unhealthy ones too."""
        state = agent_node.facts(16384, 24576)
        state.set_unhealthy({agent_node.uuid(1): "lost"})
        description = described(state)
        meta = nodes.Metadata(agent_node.NODE, annotations=description.annotations)
        assert node_readings.read(nodes.Node(meta)).node.cards == state.node.cards

    def test_labels_are_those_of_feature_discovery(self) -> None:
        """So that manifests which select nodes by them go on working."""
        description = described(agent_node.facts(16384, 24576, spoken=["nvidia"]))
        assert description.labels == {
            FENCE: "hook",
            COUNT: "2",
            MEMORY: "16384",
            PRODUCT: "Tesla-T4",
        }

    def test_labels_are_left_to_feature_discovery_where_it_runs(self) -> None:
        """The annotation is ours all the same."""
        description = described(
            agent_node.facts(spoken=["nvidia"]), {"nvidia.com/gfd.timestamp": "1"}
        )
        assert description.labels == {FENCE: "hook"}
        assert description.annotations.keys() == {nodes.CARDS}

    @pytest.mark.parametrize(
        ("model", "label"),
        [
            ("NVIDIA A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB"),
            ("  Tesla   T4\t", "Tesla-T4"),
            ("NVIDIA RTX™ 6000 (Ada)", "NVIDIA-RTX-6000-Ada"),
            ("x" * 80, "x" * 63),
            ("x" * 62 + " 24GB", "x" * 62),
            ("", None),
            ("()", None),
        ],
    )
    def test_models_become_labels(self, model: str, label: str | None) -> None:
        """As GPU feature discovery writes them; a model that leaves nothing has none."""
        assert labelled(model) == label

    @hypothesis.given(st.text())
    def test_whatever_a_driver_says_is_a_label_or_none(self, model: str) -> None:
        """One label that Kubernetes refuses would keep all the others away."""
        label = labelled(model)
        assert label is None or re.fullmatch(
            r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", label
        )


class Cluster:
    """One node and its ConfigMap, on a real server that merges patches as Kubernetes does."""

    def __init__(self, server: scripted_server.Server, client: api.Api) -> None:
        self.server = server
        self.client = client
        self.node: dict[str, Any] = {"metadata": {"name": agent_node.NODE}, "status": {}}
        self.unhealthy: dict[str, Any] | None = None
        self.refusals: list[scripted_server.Answer] = []
        self.changed = 0
        server.respond = self._answer

    def publisher(self, facts: node_state.NodeState) -> node_publication.Publisher:
        """The part of an agent that publishes; it knows the node as it is now."""
        made = node_publication.Publisher(
            self.client,
            agent_node.NODE,
            facts,
            fence="hook",
            changed=self._changed,
        )
        made.put(self.watched_node)
        return made

    @property
    def watched_node(self) -> nodes.Node:
        """The node as a watch would tell it."""
        return msgspec.convert(self.node, nodes.Node)

    def requests(self) -> list[tuple[str, str]]:
        """What was asked since the last time."""
        requests = [
            (request.verb, request.path.rpartition("/v1")[2]) for request in self.server.requests
        ]
        self.server.requests.clear()
        return requests

    def _changed(self, _node: nodes.Node) -> None:
        self.changed += 1

    def _answer(self, request: scripted_server.Request) -> scripted_server.Step:
        if self.refusals:
            return self.refusals.pop(0)
        if request.path.endswith("/configmaps") and request.verb == "POST":
            self.unhealthy = json.loads(request.body)
        elif request.path.endswith(UNHEALTHY):
            if self.unhealthy is None:
                return scripted_server.refusal(404, "NotFound")
            if request.verb == "PATCH":
                merge(self.unhealthy, json.loads(request.body))
            return scripted_server.Answer(self.unhealthy)
        else:
            merge(self.node, json.loads(request.body))
        return scripted_server.Answer()


def merge(target: dict[str, Any], change: dict[str, Any]) -> None:
    """A merge patch."""
    for name, value in change.items():
        if isinstance(value, dict):
            merge(target.setdefault(name, {}), value)
        elif value is None:
            target.pop(name, None)
        else:
            target[name] = value


@pytest.fixture
def cluster(server: scripted_server.Server, client: api.Api) -> Cluster:
    """A cluster whose node says nothing yet."""
    return Cluster(server, client)


NODE, STATUS = ("PATCH", "/nodes/gpu-1"), ("PATCH", "/nodes/gpu-1/status")


async def test_a_new_node_is_told_everything(cluster: Cluster) -> None:
    """Cards, labels, the fence, and gpushare's number of cards in its status."""
    state = agent_node.facts()
    await cluster.publisher(state)._publish()

    assert cluster.requests() == [NODE, STATUS]
    published = nodes.encode(state.node.cards, agent=partage.__version__)
    assert cluster.node["metadata"]["annotations"] == {nodes.CARDS: published}
    assert cluster.node["metadata"]["labels"] == {
        COUNT: "2",
        MEMORY: "16384",
        PRODUCT: "Tesla-T4",
        "partage.dev/fence": "hook",
        "partage.dev/memory-unit": "GiB",
    }
    memory_mib = sum(card.memory_mib for card in state.node.cards)
    amounts = {"aliyun.com/gpu-count": "2", "partage.dev/memory-mib": str(memory_mib)}
    assert cluster.node["status"] == {"capacity": amounts, "allocatable": amounts}


async def test_nothing_is_written_while_all_is_well(cluster: Cluster) -> None:
    """Every change of a node makes kube-scheduler look at its waiting pods again."""
    publisher = cluster.publisher(agent_node.facts())
    await publisher._publish()
    publisher.put(cluster.watched_node)
    cluster.requests()
    await agent_node.settled(publisher._publish)
    await cluster.publisher(agent_node.facts())._publish()  # nor by the next agent
    assert cluster.requests() == []


@pytest.mark.parametrize(
    ("change", "expected_requests"),
    [
        ({"metadata": {"annotations": {nodes.CARDS: "{}"}}}, [NODE]),
        ({"metadata": {"labels": {"partage.dev/fence": "driver"}}}, [NODE]),
        ({"status": {"capacity": {"aliyun.com/gpu-count": "9"}}}, [STATUS]),
    ],
    ids=["annotation", "label", "capacity"],
)
async def test_what_somebody_edited_is_put_right(
    cluster: Cluster, change: dict[str, Any], expected_requests: list[tuple[str, str]]
) -> None:
    """That alone; labels and annotations of others are left as they are."""
    merge(cluster.node, {"metadata": {"labels": {"zone": "a"}, "annotations": {"x": "y"}}})
    publisher = cluster.publisher(agent_node.facts())
    await publisher._publish()
    right = json.dumps(cluster.node)
    merge(cluster.node, change)
    publisher.put(cluster.watched_node)
    cluster.requests()
    await publisher._publish()
    assert cluster.requests() == expected_requests
    assert json.dumps(cluster.node) == right


async def test_the_unit_of_memory_is_said_where_memory_is_offered_in_units(
    cluster: Cluster,
) -> None:
    """It is taken away where it means nothing any more: other agents look for it."""
    counting = contract.Settings(memory_unit_mib=1)
    await cluster.publisher(agent_node.facts(counting=counting))._publish()
    assert cluster.node["metadata"]["labels"]["partage.dev/memory-unit"] == "MiB"
    await cluster.publisher(agent_node.facts(spoken=["nvidia"]))._publish()
    assert "partage.dev/memory-unit" not in cluster.node["metadata"]["labels"]


async def test_discovery_keeps_its_labels(cluster: Cluster) -> None:
    """Where NVIDIA's own runs, what it says of models stays."""
    labels = {"nvidia.com/gfd.timestamp": "1", PRODUCT: "Theirs"}
    merge(cluster.node, {"metadata": {"labels": labels}})
    await cluster.publisher(agent_node.facts())._publish()
    own = {"partage.dev/fence": "hook", "partage.dev/memory-unit": "GiB"}
    assert cluster.node["metadata"]["labels"] == labels | own


async def test_the_label_of_another_vendor_is_left_alone(cluster: Cluster) -> None:
    """Somebody set it, and two who write the same label would never end."""
    labels = {"sched.tensorstack.dev/accelerator": "amd-gpu"}
    merge(cluster.node, {"metadata": {"labels": labels}})
    counting = contract.Settings(t9k_label=True)
    await cluster.publisher(agent_node.facts(counting=counting))._publish()
    assert cluster.node["metadata"]["labels"].items() >= labels.items()


@pytest.mark.parametrize(
    ("spoken", "t9k_label", "label", "count"),
    [
        (None, True, "nvidia-gpu", "2"),
        (None, False, None, "2"),
        (("t9k",), True, "nvidia-gpu", None),
    ],
)
async def test_families_get_what_they_ask_for(
    cluster: Cluster,
    spoken: Iterable[str] | None,
    t9k_label: bool,
    label: str | None,
    count: str | None,
) -> None:
    """T9k's label if it was asked for, gpushare's number if gpushare is spoken."""
    state = agent_node.facts(spoken=spoken, counting=contract.Settings(t9k_label=t9k_label))
    await cluster.publisher(state)._publish()
    labels = cluster.node["metadata"]["labels"]
    assert labels.get("sched.tensorstack.dev/accelerator") == label
    assert cluster.node["status"].get("capacity", {}).get("aliyun.com/gpu-count") == count


async def test_a_node_whose_cards_are_not_known_is_left_alone(cluster: Cluster) -> None:
    """Before the driver answered nothing is known, and nothing must be taken back."""
    empty = node_state.NodeState(agent_node.NODE, agent_node.facts().settings, ["aliyun"])
    await cluster.publisher(empty)._publish()
    assert cluster.requests() == []


async def test_unhealthy_cards_are_listed_for_those_who_read_only_that(cluster: Cluster) -> None:
    """A ConfigMap is made for the first, changed with the next, and emptied in the end."""
    state = agent_node.facts(16384, 16384, 16384)
    publisher = cluster.publisher(state)
    await publisher._publish()
    assert cluster.unhealthy is None

    for unhealthy, gpus in (([1], "1"), ([0, 2], "0,2"), ([], "")):
        state.set_unhealthy({agent_node.uuid(index): "lost" for index in unhealthy})
        await publisher._publish()
        assert cluster.unhealthy == {
            "metadata": {"name": "unhealthy-gpu-gpu-1"},
            "data": {"gpus": gpus},
        }
    publisher.put(cluster.watched_node)
    cluster.requests()
    await agent_node.settled(publisher._publish)
    assert cluster.requests() == []


async def test_the_next_agent_takes_back_what_the_last_one_told(cluster: Cluster) -> None:
    """A card was repaired while no agent ran."""
    cluster.unhealthy = {"data": {"gpus": "1"}}
    publisher = cluster.publisher(agent_node.facts())
    await publisher.recall()
    await publisher._publish()
    assert cluster.unhealthy == {"data": {"gpus": ""}}


async def test_without_a_list_of_before_none_is_made(cluster: Cluster) -> None:
    """A node that was always well has no ConfigMap."""
    publisher = cluster.publisher(agent_node.facts())
    await publisher.recall()
    await publisher._publish()
    assert cluster.unhealthy is None


async def test_what_failed_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the node says it; then all is quiet, until something changes."""
    monkeypatch.setattr(node_publication, "_AGAIN_S", 0.01)
    monkeypatch.setattr(node_publication, "_MOMENT_S", 0.001)
    cluster.refusals = [
        scripted_server.refusal(500, "InternalError"),
        scripted_server.refusal(503, "x"),
    ]
    state = agent_node.facts()
    publisher = cluster.publisher(state)
    async with api_clients.running(publisher.run()):
        await scripted_server.until(lambda: "capacity" in cluster.node["status"])
        assert cluster.requests() == [NODE, NODE, NODE, STATUS]
        await scripted_server.until(lambda: not publisher._due.is_set())
        publisher.put(cluster.watched_node)
        state.set_unhealthy({agent_node.uuid(0): "lost"})
        publisher.look()
        await scripted_server.until(lambda: cluster.unhealthy is not None)
    assert ("PATCH", "/nodes/gpu-1/status") not in cluster.requests()


async def test_the_labels_of_the_node_are_its_modes(cluster: Cluster) -> None:
    """Whatever the watch brings is known at once, and told to the part that serves resources."""
    state = agent_node.facts()
    publisher = cluster.publisher(state)
    before = cluster.changed
    publisher.put(agent_node.node_object(labels={"ack.node.gpu.schedule": "cgpu"}))
    assert state.node.traits == {"aliyun/cgpu"}
    assert cluster.changed == before + 1
    assert publisher.keys() == [agent_node.NODE]
    publisher.drop(agent_node.NODE)
    assert publisher.keys() == []
    await publisher._publish()
    assert cluster.requests() == []
