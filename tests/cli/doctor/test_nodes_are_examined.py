"""Nodes with cards are examined: whether something serves them, and not two things at once."""

from __future__ import annotations

import datetime as dt

import pytest

from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings
from tests.cli.doctor import sound_cluster as sound

NOTE, PROBLEM = findings.Status.NOTE, findings.Status.PROBLEM


class TestWhoServesANode:
    """By the agent's pod, or by what the node itself says."""

    def test_an_agent_that_is_not_ready(self) -> None:
        """The node is named."""
        unready = sound.replace(sound.AGENT, ready=False)
        finding = sound.only(sound.with_pods(replicas=(*sound.PODS.replicas[:-1], unready)))
        assert (finding.object, finding.status) == ("node g1", PROBLEM)
        assert "not ready" in finding.text

    def test_an_agent_that_should_be_there(self) -> None:
        """The DaemonSet selects the node, and no pod is there."""
        finding = sound.only(sound.without_agent())
        assert (finding.object, finding.status) == ("node g1", PROBLEM)
        assert "none is" in finding.text

    def test_an_agent_that_is_gone(self) -> None:
        """Its annotation is left, and the kubelet offers nothing any more."""
        facts = sound.replace(sound.without_agent(selected=False, served=False), scheduler=())
        finding = sound.only(facts)
        assert finding.status is PROBLEM
        assert "is gone" in finding.text

    def test_an_agent_outside_of_pods(self) -> None:
        """What it publishes is offered, so it runs."""
        assert sound.told(sound.without_agent(selected=False)) == []

    def test_another_systems_node(self) -> None:
        """It is left to that system, and noted."""
        facts = sound.without_agent(selected=False, published=False)
        finding = sound.only(facts)
        assert finding.status is NOTE
        assert "another system's plugin" in finding.text

    def test_a_card_that_nothing_serves(self) -> None:
        """Feature discovery tells of it; how to serve it is said."""
        facts = sound.without_agent(
            selected=False, published=False, served=False, indexes=frozenset()
        )
        finding = sound.only(sound.replace(facts, scheduler=()))
        assert (finding.object, finding.status) == ("node g1", NOTE)
        assert "partage.dev/agent=enabled" in finding.remedy

    def test_a_node_that_is_down(self) -> None:
        """Its agent cannot be judged."""
        finding = sound.only(sound.without_agent(ready=False))
        assert (finding.object, finding.status) == ("node g1", NOTE)

    def test_many_nodes_are_one_finding(self) -> None:
        """A handful of names for people, and all of them for programs."""
        nodes = tuple(sound.replace(sound.NODE, name=f"g{i:03}") for i in range(317))
        facts = sound.replace(
            sound.without_agent(), nodes=cluster_facts.Nodes(nodes, 5000), gpu_objects=None
        )
        finding = sound.only(facts)
        assert finding.object == "317 nodes"
        assert finding.text.endswith("none is: g000, g001, g002, g003, g004 and 312 more")
        assert finding.objects == tuple(node.name for node in nodes)


def test_what_an_agent_wrote_and_nobody_can_read() -> None:
    """As an agent of a later version may."""
    finding = sound.only(sound.with_node(problem="its version is 2"))
    assert (finding.object, finding.status) == ("node g1", PROBLEM)


def test_a_fence_that_holds_nobody() -> None:
    """The node's label tells it."""
    finding = sound.only(sound.with_node(fence="advisory"))
    assert (finding.object, finding.status) == ("node g1", NOTE)


def test_a_runtime_without_cdi() -> None:
    """The node is named, and the pods by which it is known."""
    finding = sound.only(sound.with_pods(without_cdi={"g1": ("lab/train",)}))
    assert (finding.object, finding.status) == ("node g1", PROBLEM)
    assert "lab/train" in finding.text


class TestTwoPlugins:
    """Other systems' plugins beside the agent."""

    def test_on_the_same_node(self) -> None:
        """Node, pod, plugin and resource are named."""
        finding = sound.only(sound.with_pods(rivals=(_rival("g1"),)))
        assert finding.status is PROBLEM
        assert finding.object == "node g1 (hami/x)"
        assert "HAMi's device plugin" in finding.text
        assert "nvidia.com/gpu" in finding.text

    def test_on_another_node(self) -> None:
        """That is as it should be."""
        assert sound.told(sound.with_pods(rivals=(_rival("n7"),))) == []

    @pytest.mark.parametrize(("taken", "status"), [(True, PROBLEM), (False, NOTE)])
    def test_what_an_agent_says_itself(self, taken: bool, status: findings.Status) -> None:
        """In the agent's own words."""
        complaint = cluster_facts.Complaint("g1", "nvidia.com/gpu is served by another", taken)
        finding = sound.only(sound.replace(sound.SOUND, complaints=(complaint,)))
        assert (finding.object, finding.status) == ("node g1", status)
        assert complaint.text in finding.text

    def test_what_an_agent_before_this_one_said(self) -> None:
        """Events stay for an hour, and the agent was made anew since."""
        minute = dt.timedelta(minutes=1)
        complaint = cluster_facts.Complaint("g1", "taken", True, sound.NOW - minute)
        young = sound.replace(sound.AGENT, created=sound.NOW)
        facts = sound.with_pods(replicas=(*sound.PODS.replicas[:-1], young))
        assert sound.told(sound.replace(facts, complaints=(complaint,))) == []


def _rival(node: str) -> cluster_facts.RivalPod:
    return cluster_facts.RivalPod(
        "HAMi's device plugin", frozenset({"nvidia.com/gpu"}), "hami/x", node
    )
