"""A family that nobody knows yet needs a class and an entry in the registry, and nothing else.

Everything that speaks to users, kubelets or the API server follows: requests, what an agent offers
and publishes, records, the environment, and the unit that a cluster counts in.
"""

from __future__ import annotations

import contextlib
import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from partage.agent import node_state, settings
from partage.agent.cluster import node_publication
from partage.agent.containers import compatibility
from partage.cli.commands import agent as agent_command
from partage.core import cards, demands, errors, grants
from partage.dialects import (
    bound_pods,
    contract,
    grant_record,
    memory_units,
    modes,
    node_readings,
    nodes,
    pods,
    records,
    registry,
    rules,
    templates,
)
from partage.local.requests import foreign_requests
from tests.agent import agent_node
from tests.agent import test_resources_are_served as serving
from tests.dialects import dialect_pods

MEMORY = "acme.example/memory"
CARDS = "acme.example/cards"  # a resource without effect, and the record of a grant
WHOLE = "acme.example/whole"  # served by a plugin of Acme's own, too
TIER = "acme.example/tier"  # a label of pods
MODE = "acme.example/mode"  # a label of nodes
READY = "acme.example/ready"  # a label that agents write
BURST = "acme.example/burst"  # an annotation of pods
SCHEDULER = "acme-scheduler"
QUIET = "acme/quiet"
TAINT = nodes.Taint("acme.example/quiet", "yes", "NoSchedule")
GIB = 1024


class Acme(contract.Dialect):
    """All that there is to say about the family."""

    name = "acme"
    resources: ClassVar = {MEMORY: rules.units("the unit of the cluster"), WHOLE: rules.CARDS}
    inert_resources = frozenset({CARDS})
    unit_resource = MEMORY
    vendor_resources = frozenset({WHOLE})
    annotation_prefixes = ("acme.example/",)
    record_annotations = frozenset({CARDS})
    pod_labels = frozenset({TIER})
    modes = (
        modes.Mode(
            labels=(MODE,),
            values=("quiet",),
            trait=QUIET,
            withheld=frozenset({MEMORY}),
            taint=TAINT,
        ),
    )
    scheduler_name = SCHEDULER

    def demand(self, request: contract.Request) -> demands.PodDemand:
        """Memory, of nodes that are not quiet; the label and the annotation say the quality."""
        ceiling = rules.annotation_number(request.pod, BURST, rules.PERCENT) or 0
        online = request.pod.metadata.labels.get(TIER) == "gold"
        unit_mib = request.settings.memory_unit_mib
        return demands.PodDemand(
            containers=contract.containers(
                request,
                lambda asking: demands.Demand(
                    memory_mib=unit_mib * asking.get(MEMORY), compute_ceiling_percent=ceiling
                ),
            ),
            qos=demands.Qos.ONLINE if online else demands.Qos.NORMAL,
            dialect=self.name,
            refused_by=self.refusing({MEMORY}),
        )

    def warnings(self, request: contract.Request) -> tuple[contract.Caution, ...]:
        """Whose scheduler it should be."""
        expected = request.pod.spec.scheduler_name == SCHEDULER
        caution = contract.Caution(problem="it has another scheduler", instead=f"name {SCHEDULER}")
        return () if expected else (caution,)

    def marks(self, bound: contract.Bound) -> contract.Marks:
        """The cards of its only container."""
        return contract.Marks({CARDS: records.indexes(bound.grant.containers[0])})

    def granted(self, request: contract.Request, node: cards.Node) -> grants.Grant | None:
        """What Acme's own scheduler wrote."""
        demand = self.demand(request)
        return records.listed(request, node, demand, {c.name: CARDS for c in demand.containers})

    def environment(self, start: contract.Start) -> dict[str, str]:
        """The cards under another name."""
        return {"ACME_CARDS": records.indexes(start.container)}

    def offered(self, node: cards.Node, settings: contract.Settings) -> dict[str, int]:
        """Memory in the cluster's unit; and whole cards, if nobody else offers them."""
        return {
            MEMORY: contract.units(node, settings.memory_unit_mib),
            WHOLE: len(node.cards),
        }

    def reported(self, node: cards.Node) -> dict[str, int]:
        """A number of cards."""
        return {CARDS: len(node.cards)}

    def node_labels(self, described: contract.Described) -> dict[str, str]:
        """Where the family is served."""
        return {READY: "yes"} if described.served else {}

    def unit_mib(self, node: nodes.Node) -> int | None:
        """By the amount of one card."""
        return nodes.unit_mib(node.amount(MEMORY)) if node.offers(MEMORY) else None

    def advertised(self, node: nodes.Node) -> tuple[cards.Card, ...]:
        """One card."""
        return nodes.counted(1, node.amount(MEMORY) * GIB)


@pytest.fixture(autouse=True)
def _entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one entry."""
    monkeypatch.setattr(registry, "DIALECTS", (*registry.DIALECTS, Acme()))


def bound(pod: pods.Pod, node: cards.Node, *indexes: int) -> tuple[grants.Grant, pods.Pod]:
    """The pod with its grant and all that is written on it."""
    grant = dialect_pods.grant(pod, node, *indexes)
    return grant, dialect_pods.bound(pod, dialect_pods.marks(grant, pod, node).annotations)


class TestPods:
    """Requests, records and the environment."""

    def test_a_request_becomes_a_demand(self) -> None:
        """By its resource, an annotation and a label."""
        demand = dialect_pods.demand(
            dialect_pods.single({MEMORY: 2}, annotations={BURST: "50"}, labels={TIER: "gold"})
        )
        assert (demand.dialect, demand.qos) == ("acme", demands.Qos.ONLINE)
        [container] = demand.containers
        assert container.demand.memory_mib == 2 * GIB
        assert container.demand.compute_ceiling_percent == 50

    def test_the_common_rules_hold(self) -> None:
        """Amounts have a range, and a pod speaks one dialect."""
        assert dialect_pods.refusal(dialect_pods.single({MEMORY: "4Gi"})).field.endswith(
            f"limits[{MEMORY}]"
        )
        mixed = dialect_pods.refusal(dialect_pods.single({MEMORY: 1, "aliyun.com/gpu-mem": 1}))
        assert "in another dialect" in mixed.problem
        assert registry.knows([MEMORY, "aliyun.com/gpu-mem"])
        assert bound_pods.asks(dialect_pods.single({MEMORY: 1}))

    def test_what_the_family_reads_is_kept_and_told_apart(self) -> None:
        """Annotations that nobody reads are dropped; pods that differ are not mixed up."""
        pod = dialect_pods.single({MEMORY: 2}, annotations={BURST: "50", "other.example/x": "1"})
        assert registry.trimmed(pod).metadata.annotations == {BURST: "50"}
        remembered = templates.Templates()
        for burst, tier in itertools.product(("50", "60"), ("gold", "tin")):
            pod = dialect_pods.single({MEMORY: 2}, annotations={BURST: burst}, labels={TIER: tier})
            assert remembered.reading(pod, dialect_pods.SETTINGS) == templates.read(
                pod, dialect_pods.SETTINGS
            )

    def test_pods_that_differ_by_their_records_are_read_once(self) -> None:
        """The value of a record says nothing of what a pod asks for."""
        remembered = templates.Templates()
        first, second = (dialect_pods.single({MEMORY: 2}, annotations={CARDS: i}) for i in "01")
        assert remembered.reading(first, dialect_pods.SETTINGS) is remembered.reading(
            second, dialect_pods.SETTINGS
        )

    def test_a_grant_is_written_and_read(self) -> None:
        """The common record and the family's own say the same; either alone is enough."""
        node = dialect_pods.node(16 * GIB, 16 * GIB)
        grant, pod = bound(dialect_pods.single({MEMORY: 2}), node, 1)
        assert pod.metadata.annotations.keys() == {grant_record.GRANT, CARDS}
        assert bound_pods.granted(pod, node, dialect_pods.SETTINGS) == grant
        theirs = dialect_pods.bound(dialect_pods.single({MEMORY: 2}), {CARDS: "1"})
        assert bound_pods.granted(theirs, node, dialect_pods.SETTINGS) == grant

    def test_containers_have_its_environment(self) -> None:
        """By the dialect of the grant."""
        node = dialect_pods.node(16 * GIB, 16 * GIB)
        grant, _ = bound(dialect_pods.single({MEMORY: 2}), node, 1)
        environment = registry.environment(grant, grant.containers[0], node, dialect_pods.SETTINGS)
        assert environment == {"ACME_CARDS": "1"}


class TestNodes:
    """What an agent offers to the kubelet and publishes, and what a node tells without one."""

    def test_agents_serve_it_unless_told_otherwise(self) -> None:
        """It can be chosen by its name."""
        assert "acme" in settings.Settings(node="n").dialects
        flags = agent_command.agent.make_context("agent", ["--node", "n", "--dialects", "acme"])
        assert settings.chosen(flags.params).dialects == ("acme",)

    def test_the_object_of_the_node_speaks_it(self) -> None:
        """Labels, amounts, the unit; the label goes where the family is not served."""
        served = described(agent_node.facts(16 * GIB, spoken=["acme"]))
        assert served.labels[READY] == "yes"
        assert served.labels["partage.dev/memory-unit"] == "GiB"
        assert served.capacity == {CARDS: "1"}
        assert READY not in described(agent_node.facts(spoken=["t9k"])).labels

    def test_labels_of_nodes_have_its_meaning(self) -> None:
        """For agents and for the extender."""
        state = agent_node.facts(labels={MODE: "quiet"})
        assert state.node.traits == {QUIET}
        node = nodes.Node(nodes.Metadata("n", labels={MODE: "quiet"}))
        assert node_readings.read(node).node.traits == {QUIET}

    def test_modes_of_nodes_withhold_and_taint(self) -> None:
        """What is not offered is refused, and who asks for what is offered tolerates the taint."""
        node = dialect_pods.node(16 * GIB, labels={MODE: "quiet"})
        assert registry.offered(node, dialect_pods.SETTINGS, ["acme"]).keys() == {WHOLE}
        assert dialect_pods.demand(dialect_pods.single({MEMORY: 1})).refused_by == (QUIET,)
        assert registry.node_taints({MODE: "quiet"}) == (TAINT,)
        assert registry.tolerated(dialect_pods.single({WHOLE: 1})) == (TAINT,)
        assert registry.tolerated(dialect_pods.single({MEMORY: 1})) == ()

    @pytest.mark.parametrize("others", [(), ("theirs-0", "theirs-1")], ids=["alone", "beside"])
    async def test_the_kubelet_counts_by_its_names(self, others: tuple[str, ...]) -> None:
        """A resource of Acme's own plugin is left to that one, where it is installed."""
        amounts = {MEMORY: 32, WHOLE: 2}
        with folder() as path:
            if others:
                agent_node.checkpointed(path, registered={WHOLE: others})
                del amounts[WHOLE]
            async with serving.running(path, agent_node.facts(spoken=["acme"])) as node:
                await node.amounts(amounts)
                assert [resource for resource, _ in node.complaints] == [WHOLE] * bool(others)

    def test_cards_are_known_without_an_agent(self) -> None:
        """By what the family's plugin reports."""
        node = nodes.Node(nodes.Metadata("n"), nodes.Status(capacity={MEMORY: 16}))
        [card] = node_readings.read(node).node.cards
        assert card.memory_mib == 16 * GIB


class TestUnits:
    """Names that do not say what they count."""

    def test_nodes_vote_for_the_unit(self) -> None:
        """The extender asks the family what a node's numbers mean."""
        unit = memory_units.Unit(contract.Settings())
        amounts = {MEMORY: 16384}
        node = nodes.Node(nodes.Metadata("n"), nodes.Status(amounts, amounts))
        assert unit.vote("n", node)
        assert unit.settings.memory_unit_mib == 1

    def test_a_node_in_another_unit_is_named_with_the_resource(self) -> None:
        """As its users write it."""
        unit = memory_units.Unit(contract.Settings(), fixed=True)
        amounts = {MEMORY: 16384}
        unit.vote("n", nodes.Node(nodes.Metadata("n"), nodes.Status(amounts, amounts)))
        assert f"counts {MEMORY} in MiB" in unit.complaint("n")

    def test_agents_compare_units_where_it_is_served(self) -> None:
        """And only there."""
        assert registry.unit_resources(["acme", "t9k"]) == (MEMORY,)
        assert registry.unit_resources(["t9k"]) == ()

    def test_a_pod_keeps_the_unit_it_was_placed_in(self) -> None:
        """Whatever the agent counts in today."""
        node = dialect_pods.node(16 * GIB)
        _, pod = bound(dialect_pods.single({MEMORY: 2}), node, 0)
        in_mib = contract.Settings(memory_unit_mib=1)
        assert compatibility.counted_as(pod, node, in_mib, None) == contract.Settings()


class TestOneMachine:
    """``partage run --limits``."""

    def test_limits_can_be_written_in_it(self) -> None:
        """With the scheduler that its pods would have, so that nobody is warned of another."""
        demand = foreign_requests.demand([f"{MEMORY}=2,{CARDS}=1"])
        assert (demand.dialect, demand.containers[0].demand.memory_mib) == ("acme", 2 * GIB)
        assert foreign_requests.warnings([f"{MEMORY}=2"]) == ()

    def test_a_slip_is_told_with_the_nearest_name(self) -> None:
        """Of all families that there are."""
        with pytest.raises(errors.InputError, match=f"nearest name is {MEMORY}"):
            foreign_requests.demand(["acme.example/memori=2"])


def described(state: node_state.NodeState) -> node_publication.Description:
    """What the object of a node should say."""
    return node_publication.described(state, {}, fence="hook")


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as path:
        yield Path(path)


def test_a_family_that_is_not_entered_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is the entry that does all of it."""
    monkeypatch.setattr(registry, "DIALECTS", registry.DIALECTS[:-1])
    assert registry.demand(dialect_pods.single({MEMORY: 2}), dialect_pods.SETTINGS) is None
    assert "acme" not in settings.Settings(node="n").dialects
    assert READY not in described(agent_node.facts()).labels
