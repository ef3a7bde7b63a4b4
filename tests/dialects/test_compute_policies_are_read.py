"""What labels, annotations and variables say of compute; what makes no sense gives nobody more."""

from __future__ import annotations

import pytest

from partage.dialects import compute_policies, contract, node_readings, nodes, pods, registry
from partage.dialects.compute_policies import OfContainer, OfNode, Policy

WEIGHT, HIGH = "ALIYUN_COM_GPU_SCHD_WEIGHT", "ALIYUN_COM_GPU_HIGH_PRIO"
MEMORY = "aliyun.com/gpu-mem"


def pod(**annotations: str) -> pods.Pod:
    """A pod with annotations of our own."""
    written = {f"partage.dev/compute-{name}": text for name, text in annotations.items()}
    main = pods.Container("main", pods.Resources({MEMORY: 1}))
    return pods.Pod(pods.Metadata("train", annotations=written), pods.Spec((main,)))


def said(environment: dict[str, str], dialect: str = "aliyun", **annotations: str) -> OfContainer:
    """What is read of a container."""
    return registry.container_compute(pod(**annotations), environment, dialect)


@pytest.mark.parametrize("policy", Policy)
def test_a_label_sets_the_policy_of_a_node(policy: Policy) -> None:
    """Every policy has a row in the table of modes."""
    labels = {compute_policies.POLICY: str(policy)}
    assert compute_policies.of_node(labels).policy is policy
    assert [mode.policy for mode in node_readings.modes_of(labels)] == [policy]


def test_a_node_without_labels() -> None:
    """Each container is held as it asks."""
    assert compute_policies.of_node({}) == OfNode()


@pytest.mark.parametrize(
    ("label", "value", "node"),
    [
        ("partage.dev/compute-slots", "8", OfNode(slots=8)),
        ("partage.dev/compute-priority", "70", OfNode(priority_percent=70)),
    ],
)
def test_numbers_of_a_node(label: str, value: str, node: OfNode) -> None:
    """Beside the policy."""
    assert compute_policies.of_node({label: value}) == node


@pytest.mark.parametrize(
    ("label", "value", "slots", "priority"),
    [
        ("partage.dev/compute-slots", "0", 25, 0),
        ("partage.dev/compute-slots", "many", 25, 0),
        ("partage.dev/compute-priority", "100", 20, 0),
        ("partage.dev/compute-policy", "unfair", 20, 0),
    ],
)
def test_labels_that_make_no_sense_are_told(
    label: str, value: str, slots: int, priority: int
) -> None:
    """And give nobody more time."""
    node = compute_policies.of_node({label: value})
    assert (node.policy, node.slots, node.priority_percent) == (None, slots, priority)
    [problem] = node_readings.read(nodes.Node(nodes.Metadata("n", labels={label: value}))).problems
    assert label in problem
    assert value in problem


def test_the_weight_of_a_pod() -> None:
    """The annotation is for every dialect, and comes before cGPU's variable."""
    assert said({}, weight="3").weight == 3
    assert said({WEIGHT: "2"}).weight == 2
    assert said({WEIGHT: "2"}, weight="3").weight == 3
    assert said({WEIGHT: "2"}, dialect="qgpu").weight == 1


@pytest.mark.parametrize("text", ["0", "26", "-1", "two", "1.5", "", "9" * 5000])
def test_a_weight_that_makes_no_sense_is_one(text: str) -> None:
    """It is told, and stops nothing."""
    wrong = said({}, weight=text)
    assert wrong.weight == 1
    assert "compute-weight" in wrong.problems[0]
    assert registry.demand(pod(weight=text), contract.Settings()) is not None
    assert "compute-weight" in str(registry.warnings(pod(weight=text), contract.Settings())[0])


@pytest.mark.parametrize(("text", "high"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_high_priority(text: str, high: bool) -> None:
    """By cGPU's variable, in cGPU's pods alone."""
    assert said({HIGH: text}) == OfContainer(high_priority=high)
    assert said({HIGH: text}, dialect="gaia") == OfContainer()


def test_a_priority_that_makes_no_sense_is_none() -> None:
    """And is told."""
    wrong = said({HIGH: "very"})
    assert not wrong.high_priority
    assert HIGH in wrong.problems[0]


def test_a_pod_may_choose_to_be_held_tighter() -> None:
    """Nothing looser can even be written."""
    assert said({}, policy="fixed").policy is Policy.FIXED
    assert said({}, policy="burst").policy is Policy.BURST
    loose = said({}, policy="best-effort")
    assert loose.policy is None
    assert "write fixed or burst" in loose.problems[0]
