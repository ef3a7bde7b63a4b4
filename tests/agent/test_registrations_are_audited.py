"""Where it is doubtful whether the kubelet counts on this agent, it is asked; people are told."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import pytest

from partage.agent.resources import registration_audit
from partage.core import errors
from partage.kubelet import plugin_sockets, plugins
from partage.kubelet.device_lists import Unit
from tests.kubelet import conftest as kubelets
from tests.kubelet.fake_kubelet import until

MEMORY, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"

path, node = kubelets.path, kubelets.node


class Watched:
    """An agent's registrations of two resources, and what is told of them."""

    def __init__(self, node: kubelets.Node) -> None:
        self.node = node
        self.plugins = [node.plugin(name, [Unit("p0"), Unit("p1")]) for name in (MEMORY, CORE)]
        self.taken: list[str] = []
        self.back: list[str] = []
        self.questions = 0
        self.silent = False
        callbacks = registration_audit.Callbacks(self.ask, self.taken.append, self.back.append)
        self.auditor = registration_audit.Auditor(node.folder, lambda: self.plugins, callbacks)

    async def ask(self) -> Mapping[str, frozenset[str]]:
        """What the kubelet counts, if it says so."""
        self.questions += 1
        if self.silent:
            raise errors.PartageError("no answer")
        return await self.node.kubelet.counted()

    @property
    def registered(self) -> bool:
        """Whether all of them are."""
        return all(plugin.registered for plugin in self.plugins)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to wait long for the next look."""
    monkeypatch.setattr(registration_audit, "_PAUSES_S", (0.02,) * 10)
    monkeypatch.setattr(registration_audit, "_TAKEN_S", 0.05)
    monkeypatch.setattr(plugins, "_SETTLING_S", 0.0)


@pytest.fixture
async def watched(node: kubelets.Node) -> AsyncIterator[Watched]:
    """All registered, with the auditor at work."""
    made = Watched(node)
    await node.kubelet.start()
    async with node.running(*made.plugins):
        await until(lambda: made.registered)
        for plugin in made.plugins:
            await node.kubelet.endpoint(plugin.resource)  # it has the list, and counts by it
        auditing_task = asyncio.create_task(made.auditor.run())
        yield made
        assert not auditing_task.done()
        auditing_task.cancel()


@contextlib.contextmanager
def listening(path: Path) -> Iterator[None]:
    """A socket of somebody."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(8)
        yield
    path.unlink(missing_ok=True)


async def test_a_second_agent_is_told_once_for_all_resources(watched: Watched) -> None:
    """With what to do about it; and so is its end, after which both are registered anew."""
    other = kubelets.Node(watched.node.path)
    second = [other.plugin(plugin.resource, [Unit("p0"), Unit("p1")]) for plugin in watched.plugins]
    async with other.running(*second):
        await until(lambda: len(watched.taken) == 1)
        [text] = watched.taken
        assert text.startswith(f"another plugin has registered {CORE} and 1 more with the kubelet")
        assert "another agent of Partage, at partage-" in text
        assert text.endswith("Stop one of the two")
        assert not any(plugin.registered for plugin in watched.plugins)
        assert all(plugin.registered for plugin in second)
    await until(lambda: watched.registered)
    assert any("another plugin replaced this agent and then ended" in text for text in watched.back)
    assert len(watched.taken) == 1


async def test_sockets_of_other_resources_are_looked_at_and_forgotten(watched: Watched) -> None:
    """The kubelet is asked a few times, and counts on us: nothing is done or said."""
    requests = len(watched.node.kubelet.requests)
    with listening(watched.node.path / "rdma.sock"):
        await until(lambda: watched.questions >= 10)
        questions = watched.questions
        # The audit's own timer would ring before this one ends.
        await asyncio.sleep(2 * registration_audit._TAKEN_S)
        assert watched.questions == questions
    assert watched.registered
    assert (watched.taken, watched.back) == ([], [])
    assert len(watched.node.kubelet.requests) == requests


async def test_amounts_of_the_node_that_are_not_ours_are_a_doubt(watched: Watched) -> None:
    """As when a plugin replaced us that has no socket in the folder; the kubelet has the word."""
    watched.auditor.compare({MEMORY: "2", CORE: "2"})
    assert not watched.auditor._doubt.is_set()
    watched.node.kubelet.counts[MEMORY] = frozenset()
    watched.auditor.compare({MEMORY: "0", CORE: "2"})
    await until(lambda: len(watched.back) == 1)
    assert f"no longer has a plugin for {MEMORY}" in watched.back[0]
    await watched.node.kubelet.listed(MEMORY, {"p0": "Healthy", "p1": "Healthy"})


@pytest.mark.parametrize("amounts", [{}, {MEMORY: "many", CORE: "2"}])
async def test_a_status_that_is_late_or_odd_does_no_harm(
    watched: Watched, amounts: dict[str, str]
) -> None:
    """It is a reason to ask, and no more."""
    watched.auditor.compare(amounts)
    await until(lambda: watched.questions >= 3)
    assert watched.registered
    assert (watched.taken, watched.back) == ([], [])


async def test_a_kubelet_that_does_not_answer_tells_nothing(watched: Watched) -> None:
    """What was known stays."""
    watched.silent = True
    watched.node.kubelet.counts.clear()
    with listening(watched.node.path / "rdma.sock"):
        await until(lambda: watched.questions >= 5)
    assert watched.registered
    assert watched.back == []


async def test_who_holds_a_resource_is_watched_until_it_goes(watched: Watched) -> None:
    """Without a sign: the kubelet counts our units again, as newer ones do by themselves."""
    watched.node.kubelet.counts[MEMORY] = frozenset({"GPU-1"})
    watched.auditor.compare({MEMORY: "1", CORE: "2"})
    await until(lambda: len(watched.taken) == 1)
    assert MEMORY in watched.taken[0]
    assert "another agent" not in watched.taken[0]
    await until(lambda: watched.questions > 15)
    watched.node.kubelet.counts[MEMORY] = frozenset({"p0", "p1"})
    await until(lambda: watched.back == [f"this agent serves {MEMORY} for the kubelet again"])
    assert watched.registered


async def test_a_kubelet_that_stops_meanwhile_is_no_good_news(watched: Watched) -> None:
    """Only when it is back, and counts on us, is it told that all is well."""
    watched.node.kubelet.counts[MEMORY] = frozenset({"GPU-1"})
    watched.auditor.compare({MEMORY: "1", CORE: "2"})
    await until(lambda: len(watched.taken) == 1)
    watched.silent = True  # while it ends: a real one ends all at once, this one bit by bit
    await watched.node.kubelet.stop()
    await until(lambda: all("the kubelet stopped" in p.problem for p in watched.plugins))
    watched.silent = False
    questions = watched.questions
    await until(lambda: watched.questions > questions + 15)
    assert watched.back == []
    await watched.node.kubelet.start()
    await until(lambda: watched.back == [f"this agent serves {MEMORY} for the kubelet again"])
    assert len(watched.taken) == 1


async def test_two_agents_do_not_quarrel(watched: Watched) -> None:
    """However often the older one looks, it registers nothing while the younger one lives."""
    rival = plugin_sockets.new(watched.node.path, MEMORY)
    requests = len(watched.node.kubelet.requests)
    with listening(rival):
        await until(lambda: watched.questions > 20)
        assert len(watched.node.kubelet.requests) == requests
        assert [plugin.registered for plugin in watched.plugins] == [False, True]
    await until(lambda: watched.registered)
