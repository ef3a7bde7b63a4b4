"""The agent's HTTP side, on a real socket: the report, the metrics, the probes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiohttp import test_utils

from partage.agent import reports, web
from partage.agent.metrics import current_names
from partage.core import errors
from tests.agent import node_reports


class Agent:
    """What an agent knows, to be changed by tests."""

    def __init__(self) -> None:
        container = node_reports.container(node_reports.share(compute_percent=30))
        self.made_report = node_reports.report(*node_reports.granted("train", container))
        self.problem: errors.PartageError | None = None
        self.waits = ""
        self.questions = 0

    def report(self) -> reports.Report:
        """At once."""
        self.questions += 1
        if self.problem is not None:
            raise self.problem
        return self.made_report

    async def slow_report(self) -> reports.Report:
        """After some waiting."""
        await asyncio.sleep(0.01)
        return self.report()


@pytest.fixture
def agent() -> Agent:
    """An agent that is ready."""
    return Agent()


@pytest.fixture(params=["report", "slow_report"])
async def client(
    agent: Agent, request: pytest.FixtureRequest
) -> AsyncIterator[test_utils.TestClient[Any, Any]]:
    """A client of it; reports may be made in a coroutine, or not."""
    parts = web.Parts(getattr(agent, request.param), lambda: agent.waits, current_names.Metrics())
    server = test_utils.TestServer(web.application(parts))
    async with test_utils.TestClient(server) as connected:
        yield connected


async def test_the_report_is_json(agent: Agent, client: test_utils.TestClient[Any, Any]) -> None:
    """It holds all that the agent knows."""
    answer = await client.get("/v1/report")

    assert (answer.status, answer.content_type) == (200, "application/json")
    assert msgspec.json.decode(await answer.read(), type=reports.Report) == agent.made_report


async def test_the_metrics_are_prometheus(client: test_utils.TestClient[Any, Any]) -> None:
    """In the text format, with its type."""
    answer = await client.get("/metrics")

    assert answer.headers["Content-Type"] == current_names.CONTENT_TYPE
    assert 'partage_container_memory_used_bytes{container="main"' in await answer.text()


async def test_it_is_ready_when_nothing_is_missing(
    agent: Agent, client: test_utils.TestClient[Any, Any]
) -> None:
    """Else it says what; it lives either way."""
    assert ((await client.get("/readyz")).status, (await client.get("/healthz")).status) == (
        *(200, 200),
    )
    agent.waits = "no kubelet"

    answer = await client.get("/readyz")

    assert (answer.status, await answer.text()) == (503, "no kubelet")
    assert (await client.get("/healthz")).status == 200


async def test_what_cannot_be_read_is_said(
    agent: Agent, client: test_utils.TestClient[Any, Any]
) -> None:
    """In one line; the next request is answered again."""
    agent.problem = errors.FenceError("the folder is gone", instead="start anew")
    answer = await client.get("/v1/report")
    assert (answer.status, await answer.text()) == (503, "the folder is gone; start anew")

    agent.problem = None
    assert (await client.get("/v1/report")).status == 200


async def test_nothing_can_be_changed(client: test_utils.TestClient[Any, Any]) -> None:
    """It may stand open, so it only tells."""
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await client.request(method, "/v1/report")).status == 405


async def test_however_many_ask_one_report_is_made(
    agent: Agent, client: test_utils.TestClient[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who reaches the port may ask; containers start on the same processor."""
    now_s = [0.0]
    monkeypatch.setattr(web, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    paths = ["/v1/report", "/metrics"] * 40
    answers = await asyncio.gather(*map(client.get, paths))
    assert {answer.status for answer in answers} == {200}
    assert agent.questions == 1
    now_s[0] += web._FRESH_S
    await client.get("/v1/report")
    await client.get("/metrics")
    assert agent.questions == 2
