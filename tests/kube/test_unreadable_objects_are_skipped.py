"""An object that does not decode is counted, logged and skipped; all others are taken."""

from __future__ import annotations

import pytest

from partage.kube import api
from tests.kube import making, scripted

BAD = "no number"


async def test_in_a_watch(
    server: scripted.Server,
    client: api.Api,
    time: making.QuickTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log names it, and what the sink had of it stays."""
    watch = scripted.Watch(making.event("ADDED", "a", size=1), making.end_of_list(1))
    watch.send(making.event("MODIFIED", "a", 2, size=BAD)).send(making.event("ADDED", "b", 3))
    server.script(watch)
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: made.seen == 3)
        assert made.unreadable == 1

    assert shelf.sizes == {"a": 1, "b": 0}
    assert "a cannot be read and is skipped" in caplog.text
    assert "$.size" in caplog.text


@pytest.mark.parametrize("streamed", [True, False])
async def test_in_a_list(
    server: scripted.Server, client: api.Api, time: making.QuickTime, streamed: bool
) -> None:
    """It exists, so what the sink had of it is not dropped, while what is missing is."""
    if streamed:
        listed = making.event("ADDED", "odd", size=BAD), making.event("ADDED", "a")
        server.script(scripted.Watch(*listed, making.end_of_list(1)))
    else:
        items = [making.thing("odd", size=BAD), making.thing("a")]
        body = {"metadata": {"resourceVersion": "1"}, "items": items}
        server.script(scripted.refusal(400, "BadRequest"), scripted.Answer(body))
    shelf = making.Shelf("odd", "gone")
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)
        assert made.unreadable == 1

    assert shelf.told == ["+a", "-gone"]


async def test_its_deletion_is_understood(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """By its name or its uid, whichever the sink knows."""
    watch = scripted.Watch(making.event("ADDED", "odd", size=1), making.end_of_list(1))
    watch.send(making.event("DELETED", "odd", 2, size=BAD))
    server.script(watch)
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: made.unreadable == 1)

    assert shelf.told == ["+odd", "-odd"]


@pytest.mark.parametrize(
    "broken",
    [b"7", b"null", b'{"metadata":7}', b'{"metadata":{"name":"\xff"},"size":1}'],
    ids=["a number", "null", "no metadata", "broken text"],
)
async def test_whatever_it_is(
    server: scripted.Server, client: api.Api, time: making.QuickTime, broken: bytes
) -> None:
    """Even without a name it is skipped; without a version to resume from, a list follows."""
    watch = scripted.Watch(making.end_of_list(1))
    watch.send_bytes(b'{"type":"ADDED","object":' + broken + b"}\n").end()
    server.script(watch)
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(lambda: len(server.requests) == 2)
        assert made.unreadable == 1

    assert "sendInitialEvents" in server.requests[1].query
