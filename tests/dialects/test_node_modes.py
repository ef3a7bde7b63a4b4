"""A labelled node serves only what its label says; a node without labels serves everything."""

from __future__ import annotations

import pytest

from partage.core import fleet, grants
from partage.core.demands import ComputeMode
from partage.core.policies import binpack, spread
from partage.dialects import pods, registry
from tests.dialects import making

ALIYUN_MODE = "ack.node.gpu.schedule"
T9K_MODE = "sched.tensorstack.dev/node-alloc-mode"
QGPU_POLICY = "tke.cloud.tencent.com/qgpu-schedule-policy"

MEMORY = making.single({"aliyun.com/gpu-mem": 2})
CORE = making.single({"aliyun.com/gpu-mem": 2, "aliyun.com/gpu-core.percentage": 30})
MANY = making.single({"aliyun.com/gpu-mem": 2}, labels={"aliyun.com/gpu-count": "2"})
NVIDIA = making.single({"nvidia.com/gpu": 1})
CARDS = making.single({"tensorstack.dev/nvidia-gpu": 1})
PERCENT = making.single({"tensorstack.dev/nvidia-gpu-percent": 30})
WHOLE_NODE = making.single({"tensorstack.dev/nvidia-gpu-node": 1})

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
    nodes.set_node(making.node(16384, 16384, name="unlabelled"))
    for mode in modes:
        nodes.set_node(making.node(16384, 16384, name=mode, labels={label: mode}))
    return nodes


@pytest.mark.parametrize(("pod", "label", "served", "modes"), SERVED.values(), ids=SERVED)
def test_a_labelled_node_is_held_to_its_mode(
    pod: pods.Pod, label: str, served: set[str], modes: set[str]
) -> None:
    """Of nodes in all modes, exactly those that serve the request, and the unlabelled, fit."""
    nodes = _fleet(*modes, label=label)
    assert set(nodes.best(making.demand(pod), limit=0)) == served | {"unlabelled"}


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
        held = nodes.hold(owner, making.demand(first), where, expires_at=1.0)
        assert isinstance(held, fleet.Hold)
    assert nodes.best(making.demand(second), limit=0) == ["unlabelled"]
    assert set(nodes.best(making.demand(first), limit=0)) == {"core_mem", "unlabelled"}


def test_seventeen_qgpu_tenants_do_not_share_a_card() -> None:
    """qGPU serves sixteen tenants on a card, however little they ask for."""
    amounts = {"tke.cloud.tencent.com/qgpu-core": 5, "tke.cloud.tencent.com/qgpu-memory": 1}
    nodes = fleet.Fleet(binpack.Binpack())
    nodes.set_node(making.node(1024 * 100))
    asked = making.demand(making.single(amounts))
    held = [
        nodes.hold(grants.Pod(f"uid-{i}"), asked, making.NODE, expires_at=1.0) for i in range(17)
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
    assert registry.cards_by(labels) == policy


def test_labels_nobody_knows_have_no_traits() -> None:
    """Unknown labels, and unknown values of known labels, say nothing."""
    assert registry.node_traits({"gpu": "yes", ALIYUN_MODE: "turbo"}) == frozenset()


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
    node = making.node(16384, labels={QGPU_POLICY: policy})
    grant = making.grant(making.single(amounts), node, 0)
    (container,) = registry.settled(grant, node).containers
    assert (container.compute_mode, container.compute_ceiling_percent) == mode


def test_an_unlabelled_node_holds_compute_by_best_effort() -> None:
    """Without a label qGPU's default applies."""
    amounts = {"tke.cloud.tencent.com/qgpu-core": 30, "tke.cloud.tencent.com/qgpu-memory": 5}
    node = making.node(16384)
    (container,) = registry.settled(making.grant(making.single(amounts), node, 0), node).containers
    assert container.compute_mode is ComputeMode.BEST_EFFORT


def test_who_has_no_share_of_compute_is_not_held_to_none() -> None:
    """A fixed share of zero would stop a container that asked for memory only."""
    node = making.node(16384, labels={QGPU_POLICY: "fs", ALIYUN_MODE: "core_mem"})
    (container,) = registry.settled(making.grant(MEMORY, node, 0), node).containers
    assert container.compute_mode is ComputeMode.BEST_EFFORT


def test_a_mode_that_the_pod_decides_is_left_alone() -> None:
    """Where the request itself says how compute is held, no label changes it."""
    amounts = {"tencent.com/vcuda-core": 20, "tencent.com/vcuda-memory": 4}
    pod = making.single(amounts, annotations={"tencent.com/vcuda-core-limit": "50"})
    node = making.node(16384, labels={QGPU_POLICY: "fs"})
    grant = making.grant(pod, node, 0)
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
        (making.single({"elasticgpu.io/gpu-memory": 5}), {ALIYUN_MODE: "share"}, True),
    ],
    ids=["plain", "cgpu", "share", "disabled", "t9k", "t9k opted in", "another family"],
)
def test_the_nodes_label_decides_whether_memory_is_enforced(
    pod: pods.Pod, labels: dict[str, str], enforced: bool
) -> None:
    """Aliyun's share mode and T9k only advise, unless the node opts in to more."""
    node = making.node(16384, labels=labels)
    (container,) = registry.settled(making.grant(pod, node, 0), node).containers
    assert container.memory_enforced is enforced
