"""An object that does not decode is counted, logged and skipped; all others are taken."""

from __future__ import annotations

import pytest

from partage.kube import api
from tests.kube import api_clients, scripted_server, things

BAD = "no number"


async def test_in_a_watch(
    server: scripted_server.Server,
    client: api.Api,
    time: api_clients.QuickTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names it, and what the sink had of it stays."""
    watch = scripted_server.Watch(things.event("ADDED", "a", size=1), things.end_of_list(1))
    watch.send(things.event("MODIFIED", "a", 2, size=BAD)).send(things.event("ADDED", "b", 3))
    server.script(watch)
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: made.seen == 3)
        assert made.unreadable == 1

    assert shelf.sizes == {"a": 1, "b": 0}
    assert "a cannot be read and is skipped" in caplog.text
    assert "$.size" in caplog.text


@pytest.mark.parametrize("streamed", [True, False])
async def test_in_a_list(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, streamed: bool
) -> None:
    """It exists, so what the sink had of it is not dropped, while what is missing is."""
    if streamed:
        listed = things.event("ADDED", "odd", size=BAD), things.event("ADDED", "a")
        server.script(scripted_server.Watch(*listed, things.end_of_list(1)))
    else:
        items = [things.thing("odd", size=BAD), things.thing("a")]
        body = {"metadata": {"resourceVersion": "1"}, "items": items}
        server.script(scripted_server.refusal(400, "BadRequest"), scripted_server.Answer(body))
    shelf = things.Shelf("odd", "gone")
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)
        assert made.unreadable == 1

    assert shelf.changes == ["+a", "-gone"]


async def test_its_deletion_is_understood(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """By its name or its uid, whichever the sink knows."""
    watch = scripted_server.Watch(things.event("ADDED", "odd", size=1), things.end_of_list(1))
    watch.send(things.event("DELETED", "odd", 2, size=BAD))
    server.script(watch)
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: made.unreadable == 1)

    assert shelf.changes == ["+odd", "-odd"]


@pytest.mark.parametrize(
    "broken",
    [b"7", b"null", b'{"metadata":7}', b'{"metadata":{"name":"\xff"},"size":1}'],
    ids=["a number", "null", "no metadata", "broken text"],
)
async def test_whatever_it_is(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, broken: bytes
) -> None:
    """Even without a name it is skipped; without a version to resume from, a list follows."""
    watch = scripted_server.Watch(things.end_of_list(1))
    watch.send_bytes(b'{"type":"ADDED","object":' + broken + b"}\n").end()
    server.script(watch)
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(lambda: len(server.requests) == 2)
        assert made.unreadable == 1

    assert "sendInitialEvents" in server.requests[1].query
