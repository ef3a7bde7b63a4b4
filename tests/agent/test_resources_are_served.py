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

from partage.agent import serving, world
from partage.dialects import base, native
from partage.kubelet import checkpoint, folders
from tests.agent import making
from tests.agent.making import CORE, GIB, MEMORY, OWN_CARDS, OWN_MEMORY, WHOLE
from tests.dialects import making as dialects
from tests.kubelet import fake_kubelet

MODE = "ack.node.gpu.schedule"
SICK = "Unhealthy"


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

    def __init__(self, path: Path, facts: world.World) -> None:
        self.path = path
        self.facts = facts
        self.pods = making.Pods()
        self.complaints: list[tuple[str, str]] = []
        self.kubelet = fake_kubelet.FakeKubelet(path)
        self.folder = folders.Folder(path)
        self.group = Group()
        self.served = serving.Served(
            facts,
            self.pods,
            Nothing(),
            self.folder,
            complain=lambda resource, why: self.complaints.append((resource, why)),
        )

    def refresh(self) -> None:
        """Something about the node changed."""
        self.served.refresh(self.group)

    async def amounts(self, wanted: Mapping[str, int]) -> None:
        """Wait until the kubelet counts just this much of each resource; nothing is sick."""
        await fake_kubelet.until(
            lambda: (
                {resource: len(units) for resource, units in self._lists().items()} == wanted
                and not any(SICK in units.values() for units in self._lists().values())
            )
        )

    async def sick(self, resource: str, wanted: set[str]) -> None:
        """Wait until these units of a resource are sick, and no others."""
        await fake_kubelet.until(
            lambda: {i for i, h in self._lists().get(resource, {}).items() if h == SICK} == wanted
        )

    def _lists(self) -> dict[str, dict[str, str]]:
        found = self.kubelet.endpoints.items()
        return {resource: endpoint.lists[-1] for resource, endpoint in found if endpoint.lists}


@pytest.fixture
def path() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@contextlib.asynccontextmanager
async def running(path: Path, facts: world.World) -> AsyncIterator[Node]:
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
    ("labels", "wanted"),
    [
        ({}, {MEMORY: 36, CORE: 200, WHOLE: 2}),
        ({MODE: "cgpu"}, {MEMORY: 36}),
        ({MODE: "core_mem"}, {MEMORY: 36, CORE: 200}),
        ({MODE: "default"}, {WHOLE: 2}),
    ],
    ids=["no mode", "cgpu", "core_mem", "default"],
)
async def test_resources_follow_from_the_modes(
    path: Path, labels: dict[str, str], wanted: dict[str, int]
) -> None:
    """In the family's units, each counted card by card."""
    facts = making.facts(16 * GIB + 1000, 20 * GIB, labels=labels, spoken=GPUSHARE)
    async with running(path, facts) as node:
        await node.amounts(wanted)
        assert facts.served == wanted.keys()
        await fake_kubelet.until(lambda: node.served.problems() == [])


async def test_only_what_is_spoken_is_offered(path: Path) -> None:
    """In the unit that the cluster counts in."""
    facts = making.facts(2048, spoken=["aliyun"], counting=base.Settings(memory_unit_mib=1))
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 2048, CORE: 100})


async def test_a_mode_that_changes_takes_units_away_and_brings_others(path: Path) -> None:
    """The kubelet forgets no resource: one that is no longer offered has no units."""
    facts = making.facts(16 * GIB, spoken=GPUSHARE, labels={MODE: "cgpu"})
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
    facts = making.facts(16 * GIB, spoken=["aliyun"])
    reads = Counted(checkpoint.read)
    monkeypatch.setattr(checkpoint, "read", reads)
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 16, CORE: 100})
        for _ in range(3):
            node.refresh()
        facts.set_sick({making.uuid(0): "lost"})
        node.refresh()
        await node.sick(MEMORY, {f"p{number}" for number in range(16)})
        assert len(node.kubelet.endpoints[MEMORY].lists) == 2
        assert len(node.kubelet.requests) == reads.calls == 2


async def test_whole_cards_are_left_to_another_plugin(path: Path) -> None:
    """NVIDIA's own is installed; all else is served."""
    making.checkpointed(path, registered={WHOLE: ["GPU-1", "GPU-2"]})
    async with running(path, making.facts(16 * GIB, spoken=GPUSHARE)) as node:
        await node.amounts({MEMORY: 16, CORE: 100})
        [(resource, why)] = node.complaints
        assert resource == WHOLE
        assert "is served by another plugin" in why
        node.facts.set_sick({making.uuid(0): "lost"})
        node.refresh()
        assert len(node.complaints) == 1
        assert WHOLE not in node.facts.served


@pytest.mark.parametrize("registered", [{WHOLE: ["p0", "p1"]}, {WHOLE: []}, {}])
async def test_whole_cards_that_were_ours_are_ours(
    path: Path, registered: dict[str, list[str]]
) -> None:
    """From an agent of before, from a plugin that was removed, or from nobody."""
    making.checkpointed(path, registered=registered)
    async with running(path, making.facts(16 * GIB, spoken=["nvidia"])) as node:
        await node.amounts({WHOLE: 1})
        assert node.complaints == []


async def test_too_many_units_are_told_and_the_others_served(path: Path) -> None:
    """The kubelet takes some 200,000 in one message: no node with 8 cards of 80 GiB by MiB."""
    facts = making.facts(
        *[80 * GIB] * 8, spoken=GPUSHARE, counting=base.Settings(memory_unit_mib=1)
    )
    async with running(path, facts) as node:
        await node.amounts({CORE: 800, WHOLE: 8})
        [(resource, why)] = node.complaints
        assert resource == MEMORY
        assert "the kubelet takes" in why
        assert "count in a larger unit" in why
        facts.set_sick({making.uuid(0): "lost"})
        node.refresh()
        assert len(node.complaints) == 1
        assert node.facts.served == {CORE, WHOLE}


async def test_a_list_that_grows_too_long_does_not_end_the_agent(path: Path) -> None:
    """A card came back that was lost when the agent started; the units of before stay."""
    facts = making.facts(
        *[80 * GIB] * 2, spoken=GPUSHARE, counting=base.Settings(memory_unit_mib=1)
    )
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 2 * 80 * GIB, CORE: 200, WHOLE: 2})
        facts.set_devices(making.device(index, 80 * GIB) for index in range(3))
        node.refresh()
        await node.amounts({MEMORY: 2 * 80 * GIB, CORE: 300, WHOLE: 3})
        [(resource, why)] = node.complaints
        assert resource == MEMORY
        assert "the kubelet takes" in why


async def test_the_units_of_a_sick_card_are_sick(path: Path) -> None:
    """As many as it has: first those of the pods on it, then free ones, never others."""
    facts = making.facts(4 * GIB, 8 * GIB, spoken=["aliyun"])
    where = facts.node
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 12, CORE: 200})
        node.pods.add(
            making.pod("first", {MEMORY: 2}, 0, where=where),
            making.pod("second", {MEMORY: 8}, 1, where=where),
        )
        making.checkpointed(
            path,
            ("first", "main", MEMORY, ["p10", "p11"]),
            ("second", "main", MEMORY, [f"p{number}" for number in range(8)]),
            ("unknown", "main", MEMORY, ["p9"]),
        )
        facts.set_sick({making.uuid(0): "lost"})
        node.refresh()
        await node.sick(MEMORY, {"p10", "p11", "p8", "p0"})  # one of the last is a lesser evil
        await node.sick(CORE, {f"p{number}" for number in range(100)})
        facts.set_sick({})
        node.refresh()
        await node.amounts({MEMORY: 12, CORE: 200})


async def test_only_the_container_on_the_sick_card_is_concerned(path: Path) -> None:
    """Another of its pod may be on a card that is well, and then there are free units for it."""
    facts = making.facts(4 * GIB, 8 * GIB, spoken=["partage"])
    limits: dialects.Limits = {OWN_CARDS: 1, OWN_MEMORY: 3}
    pod = making.pod("job", limits, where=facts.node, more=[making.container("b", limits)])
    record = json.loads(pod.metadata.annotations[native.GRANT])
    record["containers"][1]["shares"][0].update(uuid=making.uuid(1), index=1)
    async with running(path, facts) as node:
        await fake_kubelet.until(lambda: node.served.problems() == [])
        node.pods.add(dialects.bound(pod, {native.GRANT: json.dumps(record)}, making.NODE))
        making.checkpointed(
            path, ("job", "main", OWN_CARDS, ["p500"]), ("job", "b", OWN_CARDS, ["p0"])
        )
        facts.set_sick({making.uuid(0): "lost"})
        node.refresh()
        await node.sick(OWN_CARDS, {"p500"} | {f"p{number}" for number in range(1, 256)})


async def test_without_a_checkpoint_as_many_units_are_sick(path: Path) -> None:
    """Which ones is then of no matter: the kubelet has not given any away."""
    facts = making.facts(4 * GIB, 8 * GIB, spoken=["aliyun"])
    async with running(path, facts) as node:
        await node.amounts({MEMORY: 12, CORE: 200})
        facts.set_sick({making.uuid(1): "lost"})
        node.refresh()
        await node.sick(MEMORY, {f"p{number}" for number in range(8)})
