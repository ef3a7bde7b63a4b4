"""The kubelet is offered what the node has, in the words that are spoken there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from partage.agent import node_state
from partage.agent.resources import resource_plugins
from partage.dialects import contract, cordons, grant_record
from partage.kubelet import checkpoint, plugin_folder
from tests.agent import agent_node
from tests.agent.agent_node import CORE, GIB, MEMORY, OWN_CARDS, OWN_MEMORY, WHOLE
from tests.dialects import dialect_pods
from tests.kubelet import fake_kubelet

MODE = "ack.node.gpu.schedule"
UNHEALTHY = "Unhealthy"
T9K = "tensorstack.dev/nvidia-gpu"


class Nothing:
    """A handler that is never called here."""

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """Not asked."""
        raise AssertionError

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """Not asked."""
        raise AssertionError


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[[Path], checkpoint.Checkpoint]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, path: Path) -> checkpoint.Checkpoint:
        """Count, and call."""
        self.calls += 1
        return self.function(path)


class Group(asyncio.TaskGroup):
    """A group whose tasks can be ended."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """Remember it by its name."""
        task: asyncio.Task[Any] = super().create_task(coro, **more)
        self.tasks[task.get_name()] = task
        return task


class Node:
    """A kubelet, and the agent's plugins beside it."""

    def __init__(self, path: Path, facts: node_state.NodeState) -> None:
        self.path = path
        self.facts = facts
        self.pods = agent_node.Pods()
        self.complaints: list[tuple[str, str]] = []
        self.kubelet = fake_kubelet.FakeKubelet(path)
        self.folder = plugin_folder.Folder(path)
        self.group = Group()
        self.served = resource_plugins.ResourcePlugins(
            facts,
            self.pods,
            Nothing(),
            self.folder,
            complain=lambda resource, why: self.complaints.append((resource, why)),
        )

    def refresh(self) -> None:
        """Something about the node changed."""
        self.served.refresh(self.group)

    async def amounts(self, expected: Mapping[str, int]) -> None:
        """Wait until the kubelet counts just this much of each resource; nothing is unhealthy."""
        await fake_kubelet.until(
            lambda: (
                {resource: len(units) for resource, units in self._lists().items()} == expected
                and not any(UNHEALTHY in units.values() for units in self._lists().values())
            )
        )

    async def unhealthy(self, resource: str, expected: set[str]) -> None:
        """Wait until these units of a resource are unhealthy, and no others."""
        await fake_kubelet.until(
            lambda: (
                {i for i, h in self._lists().get(resource, {}).items() if h == UNHEALTHY}
                == expected
            )
        )

    def _lists(self) -> dict[str, dict[str, str]]:
        endpoints = self.kubelet.endpoints.items()
        return {resource: endpoint.lists[-1] for resource, endpoint in endpoints if endpoint.lists}


@pytest.fixture
def path() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def running(path: Path, facts: node_state.NodeState) -> AsyncIterator[Node]:
    """A node whose agent has just offered what it has."""
    node = Node(path, facts)
    await node.kubelet.start()
    try:
        async with node.group:
            node.group.create_task(node.folder.watch())
            try:
                node.refresh()
                yield node
            finally:
                for task in node.group.tasks.values():
                    task.cancel()
    finally:
        await node.kubelet.stop()


GPUSHARE = ("aliyun", "nvidia")


@pytest.mark.parametrize(
    ("labels", "amounts"),
    [
        ({}, {MEMORY: 36, CORE: 200, WHOLE: 2}),
        ({MODE: "cgpu"}, {MEMORY: 36}),
        ({MODE: "core_mem"}, {MEMORY: 36, CORE: 200}),
        ({MODE: "default"}, {WHOLE: 2}),
    ],
    ids=["no mode", "cgpu", "core_mem", "default"],
)
async def test_resources_follow_from_the_modes(
    path: Path, labels: dict[str, str], amounts: dict[str, int]
) -> None:
    """In the family's units, each counted card by card."""
    facts = agent_node.facts(16 * GIB + 1000, 20 * GIB, labels=labels, spoken=GPUSHARE)
    async with running(path, facts) as node:
        await node.amounts(amounts)
        assert facts.served == amounts.keys()
        await fake_kubelet.until(lambda: node.served.problems() == [])


async def test_only_what_is_spoken_is_offered(path: Path) -> None:
    """In the unit that the cluster counts in."""
    facts = agent_node.facts(2048, spoken=["aliyun"], counting=contract.Settings(memory_unit_mib=1))
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 2048, CORE: 100})


async def test_a_mode_that_changes_takes_units_away_and_brings_others(path: Path) -> None:
    """The kubelet forgets no resource: one that is no longer offered has no units."""
    facts = agent_node.facts(16 * GIB, spoken=GPUSHARE, labels={MODE: "cgpu"})
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 16})
        facts.set_labels({MODE: "default"})
        node.refresh()
        await node.amounts({MEMORY: 0, WHOLE: 1})
        facts.set_labels({MODE: "cgpu"})
        node.refresh()
        await node.amounts({MEMORY: 16, WHOLE: 0})


async def test_nothing_is_told_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes change every few seconds, lists can be long, and so is the kubelet's record."""
    facts = agent_node.facts(16 * GIB, spoken=["aliyun"])
    reads = Counted(checkpoint.read)
    monkeypatch.setattr(checkpoint, "read", reads)
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 16, CORE: 100})
        for _ in range(3):
            node.refresh()
        facts.set_unhealthy({agent_node.uuid(0): "lost"})
        node.refresh()
        await node.unhealthy(MEMORY, {f"p{number}" for number in range(16)})
        assert len(node.kubelet.endpoints[MEMORY].lists) == 2
        assert len(node.kubelet.requests) == reads.calls == 2


async def test_whole_cards_are_left_to_another_plugin(path: Path) -> None:
    """NVIDIA's own is installed; all else is served."""
    agent_node.checkpointed(path, registered={WHOLE: ["GPU-1", "GPU-2"]})
    async with running(path, agent_node.facts(16 * GIB, spoken=GPUSHARE)) as node:
        await node.amounts({MEMORY: 16, CORE: 100})
        [(resource, why)] = node.complaints
        assert resource == WHOLE
        assert "is served by another plugin" in why
        node.facts.set_unhealthy({agent_node.uuid(0): "lost"})
        node.refresh()
        assert len(node.complaints) == 1
        assert WHOLE not in node.facts.served


@pytest.mark.parametrize("registered", [{WHOLE: ["p0", "p1"]}, {WHOLE: []}, {}])
async def test_whole_cards_that_were_ours_are_ours(
    path: Path, registered: dict[str, list[str]]
) -> None:
    """From an agent of before, from a plugin that was removed, or from nobody."""
    agent_node.checkpointed(path, registered=registered)
    async with running(path, agent_node.facts(16 * GIB, spoken=["nvidia"])) as node:
        await node.amounts({WHOLE: 1})
        assert node.complaints == []


async def test_too_many_units_are_told_and_the_others_served(path: Path) -> None:
    """The kubelet takes some 200,000 in one message: no node with 8 cards of 80 GiB by MiB."""
    facts = agent_node.facts(
        *[80 * GIB] * 8, spoken=GPUSHARE, counting=contract.Settings(memory_unit_mib=1)
    )
    async with running(path, facts) as node:
        await node.amounts({CORE: 800, WHOLE: 8})
        [(resource, why)] = node.complaints
        assert resource == MEMORY
        assert "the kubelet accepts" in why
        assert "count in a larger unit" in why
        facts.set_unhealthy({agent_node.uuid(0): "lost"})
        node.refresh()
        assert len(node.complaints) == 1
        assert node.facts.served == {CORE, WHOLE}


async def test_a_list_that_grows_too_long_does_not_end_the_agent(path: Path) -> None:
    """A card came back that was lost when the agent started; the units of before stay."""
    facts = agent_node.facts(
        *[80 * GIB] * 2, spoken=GPUSHARE, counting=contract.Settings(memory_unit_mib=1)
    )
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 2 * 80 * GIB, CORE: 200, WHOLE: 2})
        facts.set_devices(agent_node.device(index, 80 * GIB) for index in range(3))
        node.refresh()
        await node.amounts({MEMORY: 2 * 80 * GIB, CORE: 300, WHOLE: 3})
        [(resource, why)] = node.complaints
        assert resource == MEMORY
        assert "the kubelet accepts" in why


async def test_the_units_of_an_unhealthy_card_are_unhealthy(path: Path) -> None:
    """As many as it has: first those of the pods on it, then free ones, never others."""
    facts = agent_node.facts(4 * GIB, 8 * GIB, spoken=["aliyun"])
    where = facts.node
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 12, CORE: 200})
        node.pods.add(
            agent_node.pod("first", {MEMORY: 2}, 0, where=where),
            agent_node.pod("second", {MEMORY: 8}, 1, where=where),
        )
        agent_node.checkpointed(
            path,
            ("first", "main", MEMORY, ["p10", "p11"]),
            ("second", "main", MEMORY, [f"p{number}" for number in range(8)]),
            ("unknown", "main", MEMORY, ["p9"]),
        )
        facts.set_unhealthy({agent_node.uuid(0): "lost"})
        node.refresh()
        await node.unhealthy(MEMORY, {"p10", "p11", "p8", "p0"})  # one of the last is a lesser evil
        await node.unhealthy(CORE, {f"p{number}" for number in range(100)})
        facts.set_unhealthy({})
        node.refresh()
        await node.amounts({MEMORY: 12, CORE: 200})


async def test_only_the_container_on_the_unhealthy_card_is_concerned(path: Path) -> None:
    """Another of its pod may be on a card that is well, and then there are free units for it."""
    facts = agent_node.facts(4 * GIB, 8 * GIB, spoken=["partage"])
    limits: dialect_pods.Limits = {OWN_CARDS: 1, OWN_MEMORY: 3}
    pod = agent_node.pod("job", limits, where=facts.node, more=[agent_node.container("b", limits)])
    record = json.loads(pod.metadata.annotations[grant_record.GRANT])
    record["containers"][1]["shares"][0].update(uuid=agent_node.uuid(1), index=1)
    async with running(path, facts) as node:
        await fake_kubelet.until(lambda: node.served.problems() == [])
        node.pods.add(
            dialect_pods.bound(pod, {grant_record.GRANT: json.dumps(record)}, agent_node.NODE)
        )
        agent_node.checkpointed(
            path, ("job", "main", OWN_CARDS, ["p500"]), ("job", "b", OWN_CARDS, ["p0"])
        )
        facts.set_unhealthy({agent_node.uuid(0): "lost"})
        node.refresh()
        await node.unhealthy(OWN_CARDS, {"p500"} | {f"p{number}" for number in range(1, 256)})


async def test_without_a_checkpoint_as_many_units_are_unhealthy(path: Path) -> None:
    """Which ones is then of no matter: the kubelet has not given any away."""
    facts = agent_node.facts(4 * GIB, 8 * GIB, spoken=["aliyun"])
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 12, CORE: 200})
        facts.set_unhealthy({agent_node.uuid(1): "lost"})
        node.refresh()
        await node.unhealthy(MEMORY, {f"p{number}" for number in range(8)})


async def test_a_resource_that_counts_no_cards_is_offered_while_one_is_open(path: Path) -> None:
    """A node has as much of it with one card as with two."""
    facts = agent_node.facts(
        spoken=["t9k"], labels={"sched.tensorstack.dev/node-alloc-mode": "xgn"}
    )
    async with running(path, facts) as node:
        await node.amounts({T9K: 2, f"{T9K}-node": 1})
        facts.set_annotations({cordons.CORDONED: '{"version":1,"cards":{"1":""}}'})
        node.refresh()
        await node.unhealthy(T9K, {"p0"})
        await node.unhealthy(f"{T9K}-node", set())
        facts.set_annotations({cordons.CORDONED: '{"version":1,"cards":{"0":"","1":""}}'})
        node.refresh()
        await node.unhealthy(f"{T9K}-node", {"p0"})


async def test_what_is_free_of_a_cordoned_card_is_not_offered(path: Path) -> None:
    """Units that nobody has, so that nobody is disturbed; more of them when a pod leaves."""
    facts = agent_node.facts(4 * GIB, 8 * GIB, spoken=["aliyun"])
    cordon = {cordons.CORDONED: '{"version":1,"cards":{"1":""}}'}
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 12, CORE: 200})
        node.pods.add(agent_node.pod("a", {MEMORY: 5}, 1, where=facts.node))
        node.pods.add(agent_node.pod("b", {MEMORY: 2}, 0, where=facts.node))
        agent_node.checkpointed(
            path,
            ("a", "main", MEMORY, [f"p{i}" for i in range(5)]),
            ("b", "main", MEMORY, ["p5", "p6"]),
        )
        facts.set_annotations(cordon)
        node.refresh()
        await node.unhealthy(MEMORY, {"p7", "p8", "p9"})  # three of eight are free
        del node.pods.by_uid["uid-a"]
        agent_node.checkpointed(path, ("b", "main", MEMORY, ["p5", "p6"]))
        node.refresh()
        await node.unhealthy(MEMORY, {f"p{i}" for i in (0, 1, 2, 3, 4, 7, 8, 9)})
        facts.set_annotations({})
        node.refresh()
        await node.amounts({MEMORY: 12, CORE: 200})
