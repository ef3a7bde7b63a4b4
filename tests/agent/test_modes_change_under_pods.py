"""A node's label may change while pods run: they keep their memory, and people are told once."""

from __future__ import annotations

from pathlib import Path

import pytest

from partage.agent.cluster import mode_changes
from partage.agent.containers import container_fence
from partage.dialects import pods
from partage.fence.store import limits, roots, tenants
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY, WHOLE
from tests.agent.test_containers_are_started import P0, Bench

MODE = "ack.node.gpu.schedule"
T9K = "sched.tensorstack.dev/node-alloc-mode"
QGPU = "tke.cloud.tencent.com/qgpu-schedule-policy"
CORE, QGPU_MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
PERCENT = "tensorstack.dev/nvidia-gpu-percent"
MIB = 1 << 20


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


def held(root: roots.Root, pod: str) -> limits.CardLimits:
    """What holds a pod's only container on its only card."""
    [card] = tenants.read(root, f"uid-{pod}.main").limits.cards
    return card


@pytest.mark.parametrize("agent_restarts", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "quota_bytes"),
    [("cgpu", "share", 2048 * MIB), ("share", "cgpu", limits.NO_QUOTA)],
)
async def test_a_container_that_starts_again_is_held_as_it_was(
    bench: Bench,
    root: roots.Root,
    before: str,
    after: str,
    quota_bytes: int,
    *,
    agent_restarts: bool,
) -> None:
    """Whatever the mode is by then; its neighbours and its program count on it."""
    bench.state.set_labels({MODE: before})
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    await bench.start()
    bench.state.set_labels({MODE: after})
    if agent_restarts:
        bench.starter = bench.agent()
    await bench.starter.starting(MEMORY, P0)
    assert held(root, "train").memory_bytes == quota_bytes


async def test_a_pod_that_comes_after_the_change_is_held_by_the_new_mode(
    bench: Bench, root: roots.Root
) -> None:
    """Beside one of the mode before."""
    bench.add(agent_node.pod("old", {MEMORY: 2}))
    await bench.start()
    bench.state.set_labels({MODE: "share"})
    others = frozenset({"p1"})
    bench.add(agent_node.pod("new", {MEMORY: 2}), others)
    await bench.start(others)
    assert held(root, "old").memory_bytes == 2048 * MIB
    assert held(root, "new").memory_bytes == limits.NO_QUOTA


@pytest.mark.parametrize(
    ("limits_of_pod", "before", "after", "outdated"),
    [
        ({MEMORY: 2}, {}, {MODE: "cgpu"}, False),
        ({MEMORY: 2}, {}, {MODE: "share"}, True),
        ({MEMORY: 2}, {MODE: "cgpu"}, {MODE: "default"}, True),
        ({WHOLE: 1}, {MODE: "default"}, {MODE: "cgpu"}, True),
        ({WHOLE: 1}, {MODE: "default"}, {MODE: "topology"}, False),
        ({WHOLE: 1}, {T9K: "xgn"}, {T9K: "sgn"}, False),
        ({PERCENT: 30}, {T9K: "sgn"}, {T9K: "xgn"}, True),
        ({PERCENT: 30}, {T9K: "sgn"}, {}, False),
        ({PERCENT: 30}, {}, {"partage.dev/memory": "enforced"}, True),
        ({CORE: 30, QGPU_MEMORY: 2}, {QGPU: "fs"}, {QGPU: "bs"}, False),  # time follows the label
        ({CORE: 30, QGPU_MEMORY: 2}, {QGPU: "fs"}, {QGPU: "fixed-share"}, False),
    ],
)
async def test_pods_that_the_node_would_not_take_so_any_more_are_known(
    bench: Bench,
    limits_of_pod: dict[str, pods.Amount],
    before: dict[str, str],
    after: dict[str, str],
    *,
    outdated: bool,
) -> None:
    """By what they ask for, and by how they would be held; other families are not concerned."""
    resource = next(iter(limits_of_pod))
    bench.state.set_labels(before)
    bench.add(agent_node.pod("train", limits_of_pod), resource=resource)
    await bench.start(resource=resource)
    [pod] = bench.pods.by_uid.values()
    assert not bench.starter.outdated(pod)
    bench.state.set_labels(after)
    assert bench.starter.outdated(pod) is outdated


def test_a_pod_that_was_not_started_is_not_of_a_mode(bench: Bench) -> None:
    """It is bound, and has nothing yet that it could keep."""
    pod = agent_node.pod("train", {MEMORY: 2})
    bench.pods.add(pod)
    bench.state.set_labels({MODE: "default"})
    assert not bench.starter.outdated(pod)


class Told:
    """What people are told about a node with some pods of the mode before."""

    def __init__(self, *these: pods.Pod, outdated: bool = True) -> None:
        self.texts: list[str] = []
        self.changes = mode_changes.ModeChanges(
            agent_node.Pods(*these), outdated=lambda _pod: outdated, tell=self.texts.append
        )

    def look(self, *all_labels: dict[str, str]) -> list[str]:
        """The node has these labels, one after the other."""
        for labels in all_labels:
            self.changes.look(labels)
        return self.texts


ONE = agent_node.pod("one", {MEMORY: 1})
MANY = [agent_node.pod(f"pod-{number}", {MEMORY: 1}) for number in range(7)]


class TestWhatIsTold:
    """Once for each change, with what becomes of the pods."""

    def test_it_names_label_and_pods(self) -> None:
        """The value before and the value now."""
        [text] = Told(ONE).look({T9K: "xgn"}, {T9K: "sgn"})
        assert text == (
            f"label {T9K} is sgn, and was xgn; 1 pod of the mode before still runs (lab/one): "
            "it keeps its cards and its memory until the end"
        )

    def test_many_pods_are_counted(self) -> None:
        """An event has room for some names only."""
        [text] = Told(*MANY).look({}, {T9K: "xgn"})
        assert f"label {T9K} is xgn, and was not there; 7 pods of the mode before" in text
        assert "(lab/pod-0, lab/pod-1, lab/pod-2, lab/pod-3, lab/pod-4 and 2 more)" in text

    def test_a_change_is_told_once_and_each_change(self) -> None:
        """Nodes report every few seconds."""
        people = Told(ONE)
        people.look({T9K: "xgn"}, *[{T9K: "sgn", "other": str(i)} for i in range(5)])
        assert len(people.texts) == 1
        people.look({}, {T9K: "sgn"})
        assert len(people.texts) == 3
        assert f"label {T9K} is gone, and was sgn" in people.texts[1]

    def test_the_labels_at_the_start_are_no_change(self) -> None:
        """What was before is not known."""
        assert Told(ONE).look({T9K: "xgn"}, {T9K: "xgn"}) == []

    def test_where_no_pod_is_concerned_nothing_is_told(self) -> None:
        """None that runs; one that ended keeps nothing."""
        assert Told(ONE, outdated=False).look({}, {T9K: "xgn"}) == []
        assert Told(agent_node.ended(ONE)).look({}, {T9K: "xgn"}) == []
