"""A labelled node serves only what its label says; a node without labels serves everything."""

from __future__ import annotations

import pytest

from partage.core import fleet, grants
from partage.core.demands import ComputeMode
from partage.core.policies import binpack, spread
from partage.dialects import contract, node_readings, nodes, pods, registry
from tests.dialects import dialect_pods

ALIYUN_MODE = "ack.node.gpu.schedule"
T9K_MODE = "sched.tensorstack.dev/node-alloc-mode"
QGPU_POLICY = "tke.cloud.tencent.com/qgpu-schedule-policy"

MEMORY = dialect_pods.single({"aliyun.com/gpu-mem": 2})
CORE = dialect_pods.single({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 30})
MANY = dialect_pods.single({"aliyun.com/gpu-mem": 2}, labels={"aliyun.com/gpu-count": "2"})
NVIDIA = dialect_pods.single({"nvidia.com/gpu": 1})
CARDS = dialect_pods.single({"tensorstack.dev/nvidia-gpu": 1})
PERCENT = dialect_pods.single({"tensorstack.dev/nvidia-gpu-percent": 30})
WHOLE_NODE = dialect_pods.single({"tensorstack.dev/nvidia-gpu-node": 1})

ALL_ALIYUN = {"default", "topology", "cgpu", "core_mem", "share", "mps"}
SERVED = {
    "aliyun memory": (MEMORY, ALIYUN_MODE, {"cgpu", "core_mem", "share", "mps"}, ALL_ALIYUN),
    "aliyun memory and core": (CORE, ALIYUN_MODE, {"core_mem"}, ALL_ALIYUN),
    "aliyun on several cards": (MANY, ALIYUN_MODE, {"cgpu", "share", "mps"}, ALL_ALIYUN),
    "nvidia cards": (NVIDIA, ALIYUN_MODE, {"default", "topology"}, ALL_ALIYUN),
    "t9k cards": (CARDS, T9K_MODE, {"xgn"}, {"xgn", "sgn"}),
    "t9k percent": (PERCENT, T9K_MODE, {"sgn"}, {"xgn", "sgn"}),
    "t9k node": (WHOLE_NODE, T9K_MODE, {"xgn"}, {"xgn", "sgn"}),
    "t9k cards, other prefix": (
        CARDS,
        "scheduler.tensorstack.dev/node-alloc-mode",
        {"xgn"},
        {"xgn", "sgn"},
    ),
}


def _fleet(*modes: str, label: str) -> fleet.Fleet:
    """A fleet with one node for each mode, named after it, and one without a label."""
    nodes = fleet.Fleet(binpack.Binpack(), spread.Spread())
    nodes.set_node(dialect_pods.node(16384, 16384, name="unlabelled"))
    for mode in modes:
        nodes.set_node(dialect_pods.node(16384, 16384, name=mode, labels={label: mode}))
    return nodes


@pytest.mark.parametrize(("pod", "label", "served", "modes"), SERVED.values(), ids=SERVED)
def test_a_labelled_node_is_held_to_its_mode(
    pod: pods.Pod, label: str, served: set[str], modes: set[str]
) -> None:
    """Of nodes in all modes, exactly those that serve the request, and the unlabelled, fit."""
    nodes = _fleet(*modes, label=label)
    assert set(nodes.best(dialect_pods.demand(pod), limit=0)) == served | {"unlabelled"}


@pytest.mark.parametrize(
    ("first", "second"), [(CORE, MEMORY), (MEMORY, CORE)], ids=["core first", "memory first"]
)
def test_memory_only_and_core_jobs_stay_apart_where_compute_is_isolated(
    first: pods.Pod, second: pods.Pod
) -> None:
    """On a core_mem node the two kinds do not meet; on an unlabelled node they may."""
    nodes = _fleet("core_mem", label=ALIYUN_MODE)
    for where in ("core_mem", "unlabelled"):
        owner = grants.Pod(f"uid-on-{where}")
        held = nodes.hold(owner, dialect_pods.demand(first), where, expires_at=1.0)
        assert isinstance(held, fleet.Hold)
    assert nodes.best(dialect_pods.demand(second), limit=0) == ["unlabelled"]
    assert set(nodes.best(dialect_pods.demand(first), limit=0)) == {"core_mem", "unlabelled"}


def test_seventeen_qgpu_tenants_do_not_share_a_card() -> None:
    """qGPU serves sixteen tenants on a card, however little they ask for."""
    amounts = {"tke.cloud.tencent.com/qgpu-core": 5, "tke.cloud.tencent.com/qgpu-memory": 1}
    nodes = fleet.Fleet(binpack.Binpack())
    nodes.set_node(dialect_pods.node(1024 * 100))
    demand = dialect_pods.demand(dialect_pods.single(amounts))
    held = [
        nodes.hold(grants.Pod(f"uid-{i}"), demand, dialect_pods.NODE, expires_at=1.0)
        for i in range(17)
    ]
    assert [isinstance(answer, fleet.Hold) for answer in held] == [True] * 16 + [False]


@pytest.mark.parametrize(
    ("labels", "policy"),
    [
        ({"ack.node.gpu.placement": "spread"}, "spread"),
        ({"ack.node.gpu.placement": "binpack"}, "binpack"),
        ({"ack.node.gpu.placement": "random"}, ""),
        ({}, ""),
    ],
    ids=["spread", "binpack", "unknown", "none"],
)
def test_a_label_names_the_policy_for_a_nodes_cards(labels: dict[str, str], policy: str) -> None:
    """Aliyun's placement label is the node's own policy among its cards."""
    assert node_readings.cards_by(labels) == policy


def test_labels_nobody_knows_have_no_traits() -> None:
    """Unknown labels, and unknown values of known labels, say nothing."""
    assert node_readings.traits({"gpu": "yes", ALIYUN_MODE: "turbo"}) == frozenset()


QGPU_MODES = {
    "best-effort": (ComputeMode.BEST_EFFORT, 0),
    "be": (ComputeMode.BEST_EFFORT, 0),
    "fixed-share": (ComputeMode.FIXED, 0),
    "fs": (ComputeMode.FIXED, 0),
    "burst-share": (ComputeMode.BURST, 100),
    "bs": (ComputeMode.BURST, 100),
    "unheard-of": (ComputeMode.BEST_EFFORT, 0),
}


@pytest.mark.parametrize(("policy", "mode"), QGPU_MODES.items(), ids=QGPU_MODES)
def test_the_nodes_label_decides_how_compute_is_held(
    policy: str, mode: tuple[ComputeMode, int]
) -> None:
    """Both spellings of qGPU's policies are read; a burst may use the whole card."""
    amounts = {"tke.cloud.tencent.com/qgpu-core": 30, "tke.cloud.tencent.com/qgpu-memory": 5}
    node = dialect_pods.node(16384, labels={QGPU_POLICY: policy})
    grant = dialect_pods.grant(dialect_pods.single(amounts), node, 0)
    (container,) = registry.settled(grant, node).containers
    assert (container.compute_mode, container.compute_ceiling_percent) == mode


def test_an_unlabelled_node_holds_compute_by_best_effort() -> None:
    """Without a label qGPU's default applies."""
    amounts = {"tke.cloud.tencent.com/qgpu-core": 30, "tke.cloud.tencent.com/qgpu-memory": 5}
    node = dialect_pods.node(16384)
    (container,) = registry.settled(
        dialect_pods.grant(dialect_pods.single(amounts), node, 0), node
    ).containers
    assert container.compute_mode is ComputeMode.BEST_EFFORT


def test_who_has_no_share_of_compute_is_not_held_to_none() -> None:
    """A fixed share of zero would stop a container that asked for memory only."""
    node = dialect_pods.node(16384, labels={QGPU_POLICY: "fs", ALIYUN_MODE: "core_mem"})
    (container,) = registry.settled(dialect_pods.grant(MEMORY, node, 0), node).containers
    assert container.compute_mode is ComputeMode.BEST_EFFORT


def test_a_mode_that_the_pod_decides_is_left_alone() -> None:
    """Where the request itself says how compute is held, no label changes it."""
    amounts = {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}
    pod = dialect_pods.single(amounts, annotations={"tencent.com/vcuda-core-limit": "50"})
    node = dialect_pods.node(16384, labels={QGPU_POLICY: "fs"})
    grant = dialect_pods.grant(pod, node, 0)
    assert registry.settled(grant, node) == grant


@pytest.mark.parametrize(
    ("pod", "labels", "enforced"),
    [
        (MEMORY, {}, True),
        (MEMORY, {ALIYUN_MODE: "cgpu"}, True),
        (MEMORY, {ALIYUN_MODE: "share"}, False),
        (MEMORY, {"cgpu.disable.isolation": "true"}, False),
        (PERCENT, {}, False),
        (PERCENT, {"partage.dev/memory": "enforced"}, True),
        (dialect_pods.single({"elasticgpu.io/gpu-memory": 5}), {ALIYUN_MODE: "share"}, True),
    ],
    ids=["plain", "cgpu", "share", "disabled", "t9k", "t9k opted in", "another family"],
)
def test_the_nodes_label_decides_whether_memory_is_enforced(
    pod: pods.Pod, labels: dict[str, str], enforced: bool
) -> None:
    """Aliyun's share mode and T9k only advise, unless the node opts in to more."""
    node = dialect_pods.node(16384, labels=labels)
    (container,) = registry.settled(dialect_pods.grant(pod, node, 0), node).containers
    assert container.memory_enforced is enforced


TAINT = nodes.Taint("sched.tensorstack.dev/xgn-mode", "true", "NoSchedule")
OTHER_T9K_MODE = "scheduler.tensorstack.dev/node-alloc-mode"


@pytest.mark.parametrize(
    ("labels", "taints"),
    [
        ({T9K_MODE: "xgn"}, (TAINT,)),
        ({OTHER_T9K_MODE: "xgn"}, (TAINT,)),
        ({T9K_MODE: "xgn", OTHER_T9K_MODE: "xgn"}, (TAINT,)),
        ({T9K_MODE: "xgn", "sched.tensorstack.dev/accelerator": "nvidia-gpu"}, (TAINT,)),
        ({T9K_MODE: "xgn", "sched.tensorstack.dev/accelerator": "amd-gpu"}, ()),
        ({T9K_MODE: "xgn", "scheduler.tensorstack.dev/accelerator": "huawei-npu"}, ()),
        ({T9K_MODE: "sgn"}, ()),
        ({T9K_MODE: ""}, ()),
        ({ALIYUN_MODE: "xgn"}, ()),
        ({}, ()),
    ],
)
def test_a_node_for_whole_cards_is_tainted(
    labels: dict[str, str], taints: tuple[nodes.Taint, ...]
) -> None:
    """By either spelling of the label, unless the node says that its cards are another vendor's."""
    assert registry.node_taints(labels) == taints


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({ALIYUN_MODE: "turbo"}, "'turbo' is not one of cgpu, core_mem"),
        ({T9K_MODE: "xgn", OTHER_T9K_MODE: "sgn"}, "contradict each other"),
        ({T9K_MODE: "xgn", OTHER_T9K_MODE: "xgn"}, ""),
        ({"gpushare": "false", "qgpu-device-enable": "disable"}, ""),
        ({"partage.dev/memory": "none", "cgpu.disable.isolation": "no"}, ""),
    ],
)
def test_labels_that_set_no_mode_are_a_problem(labels: dict[str, str], problem: str) -> None:
    """A slip would go unnoticed; that a switch is off is no slip."""
    reading = node_readings.read(nodes.Node(nodes.Metadata("n", labels=labels)))
    assert bool(reading.problems) == bool(problem)
    assert problem in "".join(reading.problems)


def test_a_node_whose_labels_contradict_each_other_serves_neither_mode() -> None:
    """What it offers to the kubelet, and what may be placed there, are the same nothing."""
    labels = {T9K_MODE: "xgn", OTHER_T9K_MODE: "sgn"}
    node = dialect_pods.node(16384, labels=labels)
    assert registry.offered(node, dialect_pods.SETTINGS, ["t9k"]) == {}
    for pod in (CARDS, PERCENT, WHOLE_NODE):
        assert set(dialect_pods.demand(pod).refused_by) & node.traits


@pytest.mark.parametrize("dialect", registry.DIALECTS, ids=lambda dialect: dialect.name)
def test_the_rows_of_a_family_are_consistent(dialect: contract.Dialect) -> None:
    """They withhold what the family has, and say what a trait does to those that have one."""
    for mode in dialect.modes:
        assert mode.labels
        assert mode.values
        assert mode.withheld <= dialect.resources.keys()
        if not mode.trait:
            assert not mode.withheld
            assert mode.taint is None
            assert mode.cards_by or mode.note


def test_what_a_mode_withholds_is_refused_and_not_offered() -> None:
    """The kubelet and the extender agree, for every mode and every resource of its family."""
    for dialect in registry.DIALECTS:
        for mode in dialect.modes:
            node = dialect_pods.node(16384, labels={mode.labels[0]: mode.values[0]})
            offered = registry.offered(node, dialect_pods.SETTINGS, [dialect.name])
            assert offered.keys().isdisjoint(mode.withheld)
            for resource in mode.withheld:
                assert mode.trait in dialect.refusing({resource})


def test_labels_of_groups_do_no_harm() -> None:
    """T9k's manifests name a group that does not exist here."""
    group = {"scheduler.tensorstack.dev/group-name": "gpu-usage"}
    for limits in ({"tensorstack.dev/nvidia-gpu": 2}, {"tensorstack.dev/nvidia-gpu-percent": 30}):
        named = dialect_pods.single(limits, labels=group)
        assert dialect_pods.demand(named) == dialect_pods.demand(dialect_pods.single(limits))
