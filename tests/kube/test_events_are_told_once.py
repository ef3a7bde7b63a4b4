"""Events are short texts for people: told once, and nothing depends on them."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest

from partage.kube import api, events
from tests.kube import scripted_server

NOW = dt.datetime(2026, 3, 1, 12, 30, 59, 999_999, tzinfo=dt.UTC)
POD = events.About("Pod", "web", "uid-1", "lab")
NODE = events.About("Node", "gpu-1", "gpu-1")


@pytest.fixture
def writer(client: api.Api, server: scripted_server.Server) -> events.Events:
    """Events of an agent; the server takes them all."""
    server.respond = lambda _: scripted_server.Answer(status=201)
    return events.Events(client, "partage-agent", "gpu-1", now=lambda: NOW)


def bodies(server: scripted_server.Server) -> list[Any]:
    """What was written."""
    return [json.loads(request.body) for request in server.requests]


async def test_an_event_is_what_kubernetes_asks_for(
    writer: events.Events, server: scripted_server.Server
) -> None:
    """In the namespace of its object, with a name of its own."""
    await writer.tell(POD, "CardUnhealthy", "card 0 is unhealthy")

    [request] = server.requests
    assert (request.verb, request.path) == ("POST", "/api/v1/namespaces/lab/events")
    [event] = bodies(server)
    name = event["metadata"].pop("name")
    assert name.startswith("web.")
    assert event == {
        "metadata": {"namespace": "lab"},
        "involvedObject": {
            "kind": "Pod",
            "name": "web",
            "namespace": "lab",
            "uid": "uid-1",
            "apiVersion": "v1",
        },
        "reason": "CardUnhealthy",
        "message": "card 0 is unhealthy",
        "type": "Warning",
        "source": {"component": "partage-agent", "host": "gpu-1"},
        "firstTimestamp": "2026-03-01T12:30:59Z",
        "lastTimestamp": "2026-03-01T12:30:59Z",
        "count": 1,
    }


async def test_what_has_become_so_again_is_told_again(
    writer: events.Events, server: scripted_server.Server
) -> None:
    """In the same words: only who tells it can know."""
    for news in (False, True, False, True):
        await writer.tell(POD, "Lost", "its node is gone", news=news)
    assert len(server.requests) == 3


async def test_what_has_no_namespace_is_told_in_the_default_one(
    writer: events.Events, server: scripted_server.Server
) -> None:
    """There `kubectl describe node` looks."""
    await writer.tell(NODE, "CardRecovered", "well", kind=events.NORMAL)
    assert server.requests[0].path == "/api/v1/namespaces/default/events"
    [event] = bodies(server)
    assert event["metadata"]["namespace"] == "default"
    assert "namespace" not in event["involvedObject"]
    assert event["type"] == "Normal"


async def test_the_same_words_are_told_once(
    writer: events.Events, server: scripted_server.Server
) -> None:
    """To each object, for each reason; other words are news."""
    for _ in range(3):
        await writer.tell(POD, "A", "x")
        await writer.tell(NODE, "A", "x")
        await writer.tell(POD, "B", "x")
        await writer.tell(POD, "A", "y")
    assert len(server.requests) == 4
    names = [event["metadata"]["name"] for event in bodies(server)]
    assert len(set(names)) == 4


async def test_what_was_forgotten_may_be_told_again(
    writer: events.Events, server: scripted_server.Server
) -> None:
    """Of this object only."""
    for _ in range(2):
        await writer.tell(POD, "A", "x")
        await writer.tell(NODE, "A", "x")
        writer.forget(POD)
    kinds = [event["involvedObject"]["kind"] for event in bodies(server)]
    assert kinds == ["Pod", "Node", "Pod"]


async def test_long_words_are_cut(writer: events.Events, server: scripted_server.Server) -> None:
    """Kubernetes takes no more than 1024 characters, and refuses the event otherwise."""
    await writer.tell(POD, "A", "x" * 5000)
    assert bodies(server)[0]["message"] == "x" * 1024


@pytest.mark.parametrize(
    "step", [scripted_server.refusal(500, "InternalError"), scripted_server.Hangup()]
)
async def test_a_server_that_does_not_take_it_is_no_failure(
    writer: events.Events,
    server: scripted_server.Server,
    step: scripted_server.Step,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The words are in the log; and it was not told, so it may be told later."""
    steps = iter([step, scripted_server.Answer(status=201)])
    server.respond = lambda _: next(steps)
    await writer.tell(POD, "A", "these words")
    assert "the event A of Pod web could not be written" in caplog.text
    await writer.tell(POD, "A", "these words")
    assert len(server.requests) == 2


async def test_what_is_remembered_is_bounded(
    writer: events.Events, server: scripted_server.Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods come and go for years; the oldest words are forgotten first."""
    monkeypatch.setattr(events, "_REMEMBERED", 3)
    for number in range(10):
        await writer.tell(POD, "A", str(number))
    assert len(writer._written) == 3
    server.requests.clear()
    for number in (9, 8, 7, 6):
        await writer.tell(POD, "A", str(number))
    assert [event["message"] for event in bodies(server)] == ["6"]
