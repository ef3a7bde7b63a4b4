"""Limits of time are written as tenants come and go and as words change; nothing is remembered."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from partage.agent.containers import card_time, container_fence, time_limits
from partage.agent.pods import node_pods
from partage.core import demands, errors
from partage.dialects import pods
from partage.fence.store import limits, roots, tenants
from partage.fence.store.limits import Mode
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY
from tests.agent.test_containers_are_started import Bench

POLICY, SLOTS = "partage.dev/compute-policy", "partage.dev/compute-slots"
WEIGHT = "partage.dev/compute-weight"
QGPU = "tke.cloud.tencent.com/qgpu-schedule-policy"
CORE, QGPU_MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
CARDS, OWN_MEMORY = "partage.dev/cards", "partage.dev/memory-mib"


class Node:
    """A node with containers, and the part of an agent that limits their time."""

    def __init__(self, bench: Bench, root: roots.Root) -> None:
        self.bench = bench
        self.root = root
        self.classes: dict[str, card_time.ClassRule] = {}
        self.texts: list[tuple[str, str]] = []
        self.limits = self.agent()

    def agent(self) -> time_limits.TimeLimits:
        """One that has just been started."""
        return time_limits.TimeLimits(
            self.root,
            self.bench.state,
            self.bench.pods,
            self.bench.starter.started,
            enforced=self.bench.starter.enforced,
            classes=self.classes,
            tell=lambda pod, text: self.texts.append((pod.metadata.name, text)),
        )

    async def start(
        self, name: str, amounts: Mapping[str, pods.Amount] | None = None, **annotations: str
    ) -> None:
        """A pod on the first card, and its container."""
        asking = dict(amounts or {MEMORY: 1})
        ids = frozenset({f"p{len(self.bench.held)}"})
        resource = next(iter(asking))
        written = {f"partage.dev/{w.replace('_', '-')}": text for w, text in annotations.items()}
        pod = agent_node.pod(name, asking, annotations=written)
        self.bench.add(pod, ids, resource=resource)
        await self.bench.start(ids, resource=resource)
        await self.limits.start(f"uid-{name}.main")

    def change(self, name: str, **annotations: str) -> None:
        """The pod has these annotations beside what it had."""
        pod = self.bench.pods.by_uid[f"uid-{name}"]
        written = {f"partage.dev/compute-{word}": text for word, text in annotations.items()}
        meta = msgspec.structs.replace(
            pod.metadata, annotations={**pod.metadata.annotations, **written}
        )
        self.bench.pods.add(msgspec.structs.replace(pod, metadata=meta))

    def time(self, name: str) -> limits.Time:
        """How a pod's only container is limited on its only card."""
        [card] = tenants.read(self.root, f"uid-{name}.main").limits.cards
        return card.time

    def shares(self, *names: str) -> list[int]:
        """Of the card, in millionths, by containers that are held to them."""
        times = [self.time(name) for name in names]
        assert all(time.mode is Mode.FIXED for time in times)
        return [time.share_millionths for time in times]


@pytest.fixture
def node(tmp_path: Path, fences: container_fence.Fences, root: roots.Root) -> Node:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Node(Bench(tmp_path, fences), root)


async def test_tenants_come_and_go(node: Node) -> None:
    """Each time everybody's part is another one."""
    node.bench.state.set_labels({POLICY: "equal"})
    await node.start("one")
    assert node.shares("one") == [1_000_000]
    await node.start("two")
    assert node.shares("one", "two") == [500_000, 500_000]
    node.bench.pods.by_uid.pop("uid-two")
    node.bench.sweeper().release("uid-two")
    await node.limits.divide()
    assert node.shares("one") == [1_000_000]


async def test_a_pod_that_ended_has_no_part(node: Node) -> None:
    """Also before what it left behind is removed."""
    node.bench.state.set_labels({POLICY: "equal"})
    await node.start("one")
    await node.start("two")
    node.bench.pods.add(agent_node.ended(node.bench.pods.by_uid["uid-two"]))
    await node.limits.divide()
    assert node.shares("one") == [1_000_000]


async def test_a_pod_that_was_deleted_by_force_has_its_part_while_it_runs(node: Node) -> None:
    """What it was started with is known."""
    node.bench.state.set_labels({POLICY: "equal"})
    await node.start("one")
    await node.start("two")
    node.bench.pods.by_uid.pop("uid-two")
    await node.limits.divide()
    assert node.shares("one", "two") == [500_000, 500_000]


@pytest.mark.parametrize("agent_restarts", [False, True])
async def test_the_label_changes_under_pods(node: Node, *, agent_restarts: bool) -> None:
    """Nothing is kept that a killed agent would lose."""
    await node.start("one")
    await node.start("two")
    assert node.time("one") == limits.Time()
    node.bench.state.set_labels({POLICY: "slots", SLOTS: "4"})
    if agent_restarts:
        node.bench.starter = node.bench.agent()
        node.limits = node.agent()
    await node.limits.divide()
    assert node.shares("one", "two") == [250_000, 250_000]
    node.bench.state.set_labels({})
    await node.limits.divide()
    assert node.time("one") == limits.Time()


async def test_qgpus_label_changes_under_pods(node: Node) -> None:
    """The share stays; how it is held follows the label."""
    node.bench.state.set_labels({QGPU: "fs"})
    await node.start("one", {CORE: 30, QGPU_MEMORY: 2})
    assert node.shares("one") == [300_000]
    node.bench.state.set_labels({QGPU: "bs"})
    await node.limits.divide()
    assert node.time("one") == limits.Time(
        mode=Mode.BURST, share_millionths=300_000, ceiling_millionths=1_000_000
    )
    node.bench.state.set_labels({QGPU: "be"})
    await node.limits.divide()
    assert node.time("one").mode is Mode.BEST_EFFORT


async def test_a_weight_changes_under_pods(node: Node) -> None:
    """And one of no sense is 1, which is told once."""
    node.bench.state.set_labels({POLICY: "weighted"})
    await node.start("one", compute_weight="2")
    await node.start("two")
    assert node.shares("one", "two") == [666_666, 333_333]
    node.change("one", weight="4")
    await node.limits.divide()
    assert node.shares("one", "two") == [800_000, 200_000]
    node.change("one", weight="many")
    await node.limits.divide()
    await node.limits.divide()
    assert node.shares("one", "two") == [500_000, 500_000]
    [(name, text)] = node.texts
    assert (name, WEIGHT in text) == ("one", True)


async def test_offline_yields_to_the_seat_of_online(node: Node) -> None:
    """As long as that one is there."""
    own = {CARDS: 1, OWN_MEMORY: 1000}
    await node.start("batch", own, qos="offline")
    await node.start("serving", own, qos="online")
    [seat] = tenants.read(node.root, "uid-serving.main").seats
    assert node.time("batch").yields_to == {seat}
    node.bench.pods.by_uid.pop("uid-serving")
    node.bench.sweeper().release("uid-serving")
    await node.limits.divide()
    assert node.time("batch") == limits.Time()


async def test_the_class_of_a_pod(node: Node) -> None:
    """The administrator may say that all pods of a PriorityClass are offline."""
    node.classes["batch"] = card_time.ClassRule(qos=demands.Qos.OFFLINE)
    await node.start("train")
    await node.start("serving", {CARDS: 1, OWN_MEMORY: 1000}, qos="online")
    assert not node.time("train").yields_to
    pod = node.bench.pods.by_uid["uid-train"]
    spec = msgspec.structs.asdict(pod.spec) | {"priority_class_name": "batch"}
    containers = tuple(
        node_pods.Container(**msgspec.structs.asdict(container))
        for container in pod.spec.containers
    )
    spec |= {"containers": containers, "init_containers": ()}
    node.bench.pods.add(node_pods.Pod(pod.metadata, node_pods.Spec(**spec), node_pods.Status()))
    await node.limits.divide()
    assert node.time("train").yields_to


async def test_memory_and_pauses_are_not_touched(node: Node) -> None:
    """Others set them."""
    await node.start("one")
    tenants.change(node.root, "uid-one.main", limits.Change(paused=True, memory_bytes=1 << 20))
    node.bench.state.set_labels({POLICY: "equal"})
    await node.limits.divide()
    [card] = tenants.read(node.root, "uid-one.main").limits.cards
    assert (card.paused, card.memory_bytes, card.mode) == (True, 1 << 20, Mode.FIXED)


async def test_only_what_differs_is_written(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods change all the time, and most changes do not concern time."""
    node.bench.state.set_labels({POLICY: "equal"})
    await node.start("one")
    await node.start("two")
    names: list[str] = []
    monkeypatch.setattr(tenants, "set_time", lambda _root, name, _times: names.append(name))
    await node.limits.divide()
    assert names == []
    node.bench.state.set_labels({POLICY: "slots"})
    await node.limits.divide()
    assert sorted(names) == ["uid-one.main", "uid-two.main"]


async def test_a_container_whose_time_cannot_be_limited_does_not_start(node: Node) -> None:
    """A neighbour's damage does not hold others up."""
    await node.start("one")
    path = tenants.read(node.root, "uid-one.main").limits_path
    path.write_bytes(b"nonsense")
    node.bench.state.set_labels({POLICY: "equal"})
    await node.start("two")
    assert node.shares("two") == [500_000]
    with pytest.raises(errors.FenceError, match="cannot be limited"):
        await node.limits.start("uid-one.main")


@pytest.mark.parametrize(
    ("role", "restarts", "code", "finished"),
    [
        ("init", "Always", 0, True),
        ("init", "Always", 1, False),
        ("app", "Always", 0, False),
        ("app", "OnFailure", 0, True),
        ("app", "OnFailure", 1, False),
        ("app", "Never", 1, True),
        ("sidecar", "Never", 0, False),
        ("app", "Never", None, False),
    ],
)
def test_containers_that_ended_for_good(
    role: str, restarts: str, code: int | None, *, finished: bool
) -> None:
    """One that is started again keeps its part meanwhile."""
    terminated = None if code is None else {"exitCode": code}
    status = node_pods.ContainerStatus(name="it", state=pods.State(terminated=terminated))
    again = "Always" if role == "sidecar" else ""
    container = node_pods.Container("it", restart_policy=again)
    apps, init = ((container,), ()) if role == "app" else ((), (container,))
    pod = node_pods.Pod(
        spec=node_pods.Spec(restart_policy=restarts, containers=apps, init_containers=init),
        status=node_pods.Status(container_statuses=(status,)),
    )
    assert time_limits.finished(pod, "it") is finished
