"""An agent that is asked to end says so first, serves what is bound, and goes when all know."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable

import pytest

from partage.agent.cluster import presence
from partage.dialects import nodes
from partage.kube import api
from tests.agent import agent_node
from tests.kube import api_clients, scripted_server

NOW = dt.datetime(2026, 11, 18, 12, tzinfo=dt.UTC)
CORES = "aliyun.com/gpu-core.percentage"


class Agent:
    """What an agent knows of itself, and what happens to it while time passes."""

    def __init__(self, server: scripted_server.Server, client: api.Api) -> None:
        self.server = server
        self.time = api_clients.QuickTime()
        self.problems: list[str] = []
        self.coming: list[str] = []
        self.registered = [CORES]
        self.offered = {CORES}
        self.marked = False
        self._openings = asyncio.Semaphore(0)
        self.order: list[str] = []
        self.passing: Callable[[float], None] = lambda _now_s: None
        self.presence = presence.Presence(
            client,
            agent_node.NODE,
            presence.Callbacks(
                problems=lambda: self.problems,
                coming=self._coming,
                end=self._end,
                offers=self.offered.__contains__,
                marked=lambda: self.marked,
                now=lambda: NOW,
                clock=self.time.clock,
                sleep=self._sleep,
            ),
        )
        server.respond = self._answer

    async def opened(self) -> None:
        """The node has been opened once more."""
        async with asyncio.timeout(60):
            await self._openings.acquire()

    async def _coming(self) -> list[str]:
        return self.coming

    def _end(self) -> list[str]:
        self.order.append("ended")
        return self.registered

    async def _sleep(self, delay_s: float) -> None:
        await self.time.sleep(delay_s)
        self.passing(self.time.now_s - 1000)

    def _answer(self, request: scripted_server.Request) -> scripted_server.Step:
        assert (request.verb, request.path) == ("PATCH", "/api/v1/nodes/gpu-1")
        text = json.loads(request.body)["metadata"]["annotations"][nodes.AWAY]
        self.order.append("back" if text is None else text)
        if text is None:
            self._openings.release()
        return scripted_server.Answer()


@pytest.fixture
async def agent(server: scripted_server.Server, client: api.Api) -> Agent:
    """One that serves."""
    made = Agent(server, client)
    await made.presence.arrive()
    await made.opened()
    assert made.order == ["back"]
    made.order.clear()
    return made


async def test_it_says_so_first_and_takes_it_back_when_all_know(agent: Agent) -> None:
    """Pods that were bound before get their cards; the node's status says that there are none."""
    agent.coming = ["lab/late"]

    def passing(now_s: float) -> None:
        if now_s > 5:
            agent.coming = []
        if now_s > 9:
            agent.offered.clear()

    agent.passing = passing
    await agent.presence.leave()
    assert agent.order == ["2026-11-18T12:00:00+00:00", "ended", "back"]
    assert 11 < agent.time.now_s - 1000 < 12


async def test_it_does_not_wait_for_ever(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    """A pod has half a minute to end; a node that still offers cards stays closed."""
    agent.coming = ["lab/late"]
    await agent.presence.leave()
    assert agent.order == ["2026-11-18T12:00:00+00:00", "ended"]
    assert agent.time.now_s - 1000 < 25
    assert "has not admitted these pods, which fail now: lab/late" in caplog.text
    assert "stays closed until an agent comes" in caplog.text


async def test_resources_that_it_did_not_have_are_not_waited_for(agent: Agent) -> None:
    """Another plugin has them, and goes on."""
    agent.registered = []
    await agent.presence.leave()
    assert agent.order == ["2026-11-18T12:00:00+00:00", "ended", "back"]


async def test_one_that_never_served_goes_at_once(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Nothing was offered, so nothing can be lost."""
    agent = Agent(server, client)
    await agent.presence.leave()
    assert agent.order == []


async def test_without_the_api_server_it_goes_at_once(
    agent: Agent, server: scripted_server.Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Then nobody would read it, and nothing new can be bound."""
    server.respond = lambda _request: scripted_server.refusal(500, "InternalError")
    await agent.presence.leave()
    assert agent.order == []
    assert "the node does not say whether its agent is there" in caplog.text


async def test_the_mark_of_another_agent_is_taken_away_by_the_one_that_stays(
    agent: Agent,
) -> None:
    """Once the kubelet counts on it; one that leaves itself lets its own mark be."""
    staying = asyncio.create_task(agent.presence.run())
    await agent.opened()  # as each agent does when it comes
    agent.marked, agent.problems = True, ["x has to be registered again"]
    agent.passing = lambda now_s: agent.problems.clear() if now_s > 9 else None
    await agent.opened()
    assert agent.time.now_s - 1000 > 9
    agent.order.clear()
    await agent.presence.leave()
    assert agent.order == ["2026-11-18T12:00:00+00:00", "ended"]
    staying.cancel()


async def test_a_mark_that_was_left_is_taken_away_when_the_kubelet_knows(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Not before, and also if a resource cannot be registered at all."""
    agent = Agent(server, client)
    agent.problems = ["x is not registered yet"]
    agent.passing = lambda now_s: agent.problems.clear() if now_s > 3 else None
    await agent.presence.arrive()
    assert agent.order == ["back"]
    assert 3 < agent.time.now_s - 1000 < 4
    agent.problems, agent.passing = ["x is not registered"], lambda _now_s: None
    await agent.presence.arrive()
    assert agent.order == ["back", "back"]
