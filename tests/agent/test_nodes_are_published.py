"""What the cluster is told of a node's cards: all of it, and nothing while all is well."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.agent import publishing, settings, world
from partage.dialects import base, nodes, registry
from partage.kube import api
from tests.agent import making
from tests.kube import making as kube
from tests.kube import scripted

COUNT, MEMORY, PRODUCT = "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.product"
SICK = "/configmaps/unhealthy-gpu-gpu-1"


def labelled(model: str) -> str | None:
    """The label of a node whose first card has this model."""
    there = making.facts()
    there.set_devices([making.device(0, model=model)])
    return publishing.described(there.node, discovery=False).labels.get(PRODUCT)


class TestDescribing:
    """What is said of cards, as values."""

    def test_the_annotation_has_every_card(self) -> None:
        """The scheduler reads back what the agent knows, the sick ones too."""
        there = making.facts(16384, 24576)
        there.set_sick({making.uuid(1): "lost"})
        wanted = publishing.described(there.node, discovery=False)
        meta = nodes.Metadata(making.NODE, annotations=wanted.annotations)
        assert registry.found(nodes.Node(meta)).node.cards == there.node.cards

    def test_labels_are_those_of_feature_discovery(self) -> None:
        """So that manifests which select nodes by them go on working."""
        wanted = publishing.described(making.facts(16384, 24576).node, discovery=False)
        assert wanted.labels == {COUNT: "2", MEMORY: "16384", PRODUCT: "Tesla-T4"}

    def test_labels_are_left_to_feature_discovery_where_it_runs(self) -> None:
        """The annotation is ours all the same."""
        wanted = publishing.described(making.facts().node, discovery=True)
        assert wanted.labels == {}
        assert wanted.annotations.keys() == {nodes.CARDS}

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

    def __init__(self, server: scripted.Server, client: api.Api) -> None:
        self.server = server
        self.client = client
        self.node: dict[str, Any] = {"metadata": {"name": making.NODE}, "status": {}}
        self.sick: dict[str, Any] | None = None
        self.refusals: list[scripted.Answer] = []
        self.changed = 0
        server.respond = self._answer

    def publisher(self, facts: world.World, *, accelerator: bool = False) -> publishing.Publisher:
        """The part of an agent that publishes; it knows the node as it is now."""
        made = publishing.Publisher(
            self.client,
            making.NODE,
            facts,
            fence="hook",
            accelerator=accelerator,
            changed=self._changed,
        )
        made.put(self.told)
        return made

    @property
    def told(self) -> nodes.Node:
        """The node as a watch would tell it."""
        return msgspec.convert(self.node, nodes.Node)

    def requests(self) -> list[tuple[str, str]]:
        """What was asked since the last time."""
        found = [(asked.verb, asked.path.rpartition("/v1")[2]) for asked in self.server.requests]
        self.server.requests.clear()
        return found

    def _changed(self, _node: nodes.Node) -> None:
        self.changed += 1

    def _answer(self, asked: scripted.Request) -> scripted.Step:
        if self.refusals:
            return self.refusals.pop(0)
        if asked.path.endswith("/configmaps") and asked.verb == "POST":
            self.sick = json.loads(asked.body)
        elif asked.path.endswith(SICK):
            if self.sick is None:
                return scripted.refusal(404, "NotFound")
            if asked.verb == "PATCH":
                merge(self.sick, json.loads(asked.body))
            return scripted.Answer(self.sick)
        else:
            merge(self.node, json.loads(asked.body))
        return scripted.Answer()


def merge(there: dict[str, Any], change: dict[str, Any]) -> None:
    """A merge patch."""
    for name, value in change.items():
        if isinstance(value, dict):
            merge(there.setdefault(name, {}), value)
        elif value is None:
            there.pop(name, None)
        else:
            there[name] = value


@pytest.fixture
def cluster(server: scripted.Server, client: api.Api) -> Cluster:
    """A cluster whose node says nothing yet."""
    return Cluster(server, client)


NODE, STATUS = ("PATCH", "/nodes/gpu-1"), ("PATCH", "/nodes/gpu-1/status")


async def test_a_new_node_is_told_everything(cluster: Cluster) -> None:
    """Cards, labels, the fence, and gpushare's number of cards in its status."""
    there = making.facts()
    await cluster.publisher(there)._publish()

    assert cluster.requests() == [NODE, STATUS]
    assert cluster.node["metadata"]["annotations"] == {nodes.CARDS: nodes.encode(there.node.cards)}
    assert cluster.node["metadata"]["labels"] == {
        COUNT: "2",
        MEMORY: "16384",
        PRODUCT: "Tesla-T4",
        "partage.dev/fence": "hook",
        "partage.dev/memory-unit": "GiB",
    }
    memory_mib = sum(card.memory_mib for card in there.node.cards)
    amounts = {"aliyun.com/gpu-count": "2", "partage.dev/memory-mib": str(memory_mib)}
    assert cluster.node["status"] == {"capacity": amounts, "allocatable": amounts}


async def test_nothing_is_written_while_all_is_well(cluster: Cluster) -> None:
    """Every change of a node makes kube-scheduler look at its waiting pods again."""
    publisher = cluster.publisher(making.facts())
    await publisher._publish()
    publisher.put(cluster.told)
    cluster.requests()
    await making.settled(publisher._publish)
    await cluster.publisher(making.facts())._publish()  # nor by the next agent
    assert cluster.requests() == []


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"metadata": {"annotations": {nodes.CARDS: "{}"}}}, [NODE]),
        ({"metadata": {"labels": {"partage.dev/fence": "driver"}}}, [NODE]),
        ({"status": {"capacity": {"aliyun.com/gpu-count": "9"}}}, [STATUS]),
    ],
    ids=["annotation", "label", "capacity"],
)
async def test_what_somebody_edited_is_put_right(
    cluster: Cluster, change: dict[str, Any], wanted: list[tuple[str, str]]
) -> None:
    """That alone; labels and annotations of others are left as they are."""
    merge(cluster.node, {"metadata": {"labels": {"zone": "a"}, "annotations": {"x": "y"}}})
    publisher = cluster.publisher(making.facts())
    await publisher._publish()
    right = json.dumps(cluster.node)
    merge(cluster.node, change)
    publisher.put(cluster.told)
    cluster.requests()
    await publisher._publish()
    assert cluster.requests() == wanted
    assert json.dumps(cluster.node) == right


async def test_the_unit_of_memory_is_said_where_memory_is_offered_in_units(
    cluster: Cluster,
) -> None:
    """It is taken away where it means nothing any more: other agents look for it."""
    counting = base.Settings(memory_unit_mib=1)
    await cluster.publisher(making.facts(counting=counting))._publish()
    assert cluster.node["metadata"]["labels"]["partage.dev/memory-unit"] == "MiB"
    await cluster.publisher(making.facts(spoken=["nvidia"]))._publish()
    assert "partage.dev/memory-unit" not in cluster.node["metadata"]["labels"]


async def test_discovery_keeps_its_labels(cluster: Cluster) -> None:
    """Where NVIDIA's own runs, what it says of models stays."""
    labels = {"nvidia.com/gfd.timestamp": "1", PRODUCT: "Theirs"}
    merge(cluster.node, {"metadata": {"labels": labels}})
    await cluster.publisher(making.facts())._publish()
    own = {"partage.dev/fence": "hook", "partage.dev/memory-unit": "GiB"}
    assert cluster.node["metadata"]["labels"] == labels | own


@pytest.mark.parametrize(
    ("spoken", "accelerator", "label", "count"),
    [
        (settings.USUAL, True, "nvidia-gpu", "2"),
        (settings.USUAL, False, None, "2"),
        (("t9k",), True, "nvidia-gpu", None),
    ],
)
async def test_families_get_what_they_ask_for(
    cluster: Cluster, spoken: Iterable[str], accelerator: bool, label: str | None, count: str | None
) -> None:
    """T9k's label if it was asked for, gpushare's number if gpushare is spoken."""
    there = making.facts(spoken=spoken)
    await cluster.publisher(there, accelerator=accelerator)._publish()
    labels = cluster.node["metadata"]["labels"]
    assert labels.get("sched.tensorstack.dev/accelerator") == label
    assert cluster.node["status"].get("capacity", {}).get("aliyun.com/gpu-count") == count


async def test_a_node_whose_cards_are_not_known_is_left_alone(cluster: Cluster) -> None:
    """Before the driver answered nothing is known, and nothing must be taken back."""
    empty = world.World(making.NODE, making.facts().settings, settings.USUAL)
    await cluster.publisher(empty)._publish()
    assert cluster.requests() == []


async def test_sick_cards_are_listed_for_those_who_read_only_that(cluster: Cluster) -> None:
    """A ConfigMap is made for the first, changed with the next, and emptied in the end."""
    there = making.facts(16384, 16384, 16384)
    publisher = cluster.publisher(there)
    await publisher._publish()
    assert cluster.sick is None

    for sick, wanted in (([1], "1"), ([0, 2], "0,2"), ([], "")):
        there.set_sick({making.uuid(index): "lost" for index in sick})
        await publisher._publish()
        assert cluster.sick == {
            "metadata": {"name": "unhealthy-gpu-gpu-1"},
            "data": {"gpus": wanted},
        }
    publisher.put(cluster.told)
    cluster.requests()
    await making.settled(publisher._publish)
    assert cluster.requests() == []


async def test_the_next_agent_takes_back_what_the_last_one_told(cluster: Cluster) -> None:
    """A card was repaired while no agent ran."""
    cluster.sick = {"data": {"gpus": "1"}}
    publisher = cluster.publisher(making.facts())
    await publisher.recall()
    await publisher._publish()
    assert cluster.sick == {"data": {"gpus": ""}}


async def test_without_a_list_of_before_none_is_made(cluster: Cluster) -> None:
    """A node that was always well has no ConfigMap."""
    publisher = cluster.publisher(making.facts())
    await publisher.recall()
    await publisher._publish()
    assert cluster.sick is None


async def test_what_failed_is_tried_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the node says it; then all is quiet, until something changes."""
    monkeypatch.setattr(publishing, "_AGAIN_S", 0.01)
    monkeypatch.setattr(publishing, "_MOMENT_S", 0.001)
    cluster.refusals = [scripted.refusal(500, "InternalError"), scripted.refusal(503, "x")]
    there = making.facts()
    publisher = cluster.publisher(there)
    async with kube.running(publisher.run()):
        await scripted.until(lambda: "capacity" in cluster.node["status"])
        assert cluster.requests() == [NODE, NODE, NODE, STATUS]
        await scripted.until(lambda: not publisher._due.is_set())
        publisher.put(cluster.told)
        there.set_sick({making.uuid(0): "lost"})
        publisher.look()
        await scripted.until(lambda: cluster.sick is not None)
    assert ("PATCH", "/nodes/gpu-1/status") not in cluster.requests()


async def test_the_labels_of_the_node_are_its_modes(cluster: Cluster) -> None:
    """Whatever the watch brings is known at once, and told to whoever serves resources."""
    there = making.facts()
    publisher = cluster.publisher(there)
    before = cluster.changed
    publisher.put(making.node_object(labels={"ack.node.gpu.schedule": "cgpu"}))
    assert there.node.traits == {"aliyun/cgpu"}
    assert cluster.changed == before + 1
    assert publisher.keys() == [making.NODE]
    publisher.drop(making.NODE)
    assert publisher.keys() == []
    await publisher._publish()
    assert cluster.requests() == []
