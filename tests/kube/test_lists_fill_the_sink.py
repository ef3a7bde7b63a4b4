"""A reflector begins with a consistent list: as a stream, or in pages where that is refused."""

from __future__ import annotations

import pytest

from partage.kube import api
from tests.kube import api_clients, scripted_server, things


async def test_a_streamed_list_is_asked_for_first(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """It is a watch with initial events, of no version in particular, hence of the newest."""
    server.script(scripted_server.Watch(things.end_of_list(1)))
    selector = {"fieldSelector": "spec.nodeName!="}
    async with api_clients.reflecting(client, things.Shelf(), time, query=selector) as made:
        await scripted_server.until(made.synced.is_set)

    assert server.requests[0].path == things.PATH
    assert server.requests[0].query == {
        "fieldSelector": "spec.nodeName!=",
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "240",
    }


async def test_synced_waits_for_the_mark(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Objects are put as they come, but only the mark says that there are no more."""
    shelf = things.Shelf()
    watch = scripted_server.Watch(things.event("ADDED", "a"), things.bookmark(5))
    server.script(watch)
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: shelf.changes == ["+a"])
        assert not made.synced.is_set()
        watch.send(things.end_of_list(9))
        await scripted_server.until(made.synced.is_set)
        assert (made.seen, made.gaps, made.waiting) == (1, 0, 0)


async def test_a_streamed_list_becomes_the_watch(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """What changes after the mark comes on the same stream, without another request."""
    shelf = things.Shelf()
    watch = scripted_server.Watch(things.event("ADDED", "a"), things.end_of_list(1))
    server.script(watch)
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)
        watch.send(things.event("MODIFIED", "a", 2, size=7)).send(things.event("ADDED", "b", 3))
        watch.send(things.event("DELETED", "a", 4))
        await scripted_server.until(lambda: made.seen == 4)

    assert shelf.changes == ["+a", "+a", "+b", "-a"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 422])
async def test_pages_where_streams_are_refused(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, code: int
) -> None:
    """The list then comes in pages, consistent too, and a watch follows from its version."""
    shelf = things.Shelf()
    server.script(
        scripted_server.refusal(code, "Invalid", "sendInitialEvents is forbidden"),
        things.page("a", "b", version=30, following="token"),
        things.page("c", version=30),
    )
    async with api_clients.reflecting(client, shelf, time, query={"labelSelector": "x"}) as made:
        await scripted_server.until(made.synced.is_set)
        await scripted_server.until(lambda: len(server.requests) == 4)

    assert shelf.changes == ["+a", "+b", "+c"]
    first, second, watch = (request.query for request in server.requests[1:])
    assert first == {"labelSelector": "x", "limit": "500"}
    assert second == {"labelSelector": "x", "limit": "500", "continue": "token"}
    assert watch["resourceVersion"] == "30"
    assert "sendInitialEvents" not in watch
    assert time.slept == []


async def test_a_refusal_of_streams_is_remembered(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """The next list is asked for in pages at once."""
    server.script(
        scripted_server.refusal(422, "Invalid"),
        things.page("a", version=3),
        scripted_server.Watch(things.failure(410, "Expired")),
        things.page("a", version=9),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(lambda: made.gaps == 1)

    assert ["sendInitialEvents" in request.query for request in server.requests[:4]] == [
        True,
        False,
        False,
        False,
    ]


async def test_other_refusals_do_not_change_the_way_of_listing(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Who may not list is told so, and asks again the same way."""
    server.script(
        scripted_server.refusal(403, "Forbidden"), scripted_server.Watch(things.end_of_list(1))
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)

    assert server.requests[0].query == server.requests[1].query
    assert len(time.slept) == 1


async def test_a_list_that_expires_between_pages_starts_over(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """The first page is asked for again, without the token."""
    shelf = things.Shelf()
    server.script(
        scripted_server.refusal(400, "BadRequest"),
        things.page("a", version=3, following="token"),
        scripted_server.refusal(410, "Expired"),
        things.page("b", version=8),
    )
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert "continue" not in server.requests[3].query
    assert shelf.sizes.keys() == {"b"}
    assert made.gaps == 0


async def test_a_streamed_list_that_breaks_is_no_place_to_resume(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Objects of a list come in no order, so half a list is listed again, not watched from."""
    half = scripted_server.Watch(
        things.event("ADDED", "a", 7), things.event("ADDED", "b", 5)
    ).crash()
    whole = scripted_server.Watch(things.event("ADDED", "a", 7), things.end_of_list(9))
    server.script(half, whole)
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert server.requests[1].query == server.requests[0].query
    assert shelf.sizes.keys() == {"a"}


async def test_a_server_that_ignores_the_mark_is_listed_in_pages(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A stream that ends in order and without the mark would never be a complete list."""
    server.script(
        scripted_server.Watch(things.event("ADDED", "a")).end(),
        things.page("a", version=4),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)

    assert server.requests[1].query == {"limit": "500"}


@pytest.mark.parametrize("items", [[], None])
async def test_empty_collections_sync_too(
    server: scripted_server.Server,
    client: api.Api,
    time: api_clients.QuickTime,
    items: list[object] | None,
) -> None:
    """No objects are an answer, also when written as null."""
    nothing = {"metadata": {"resourceVersion": "5"}, "items": items}
    server.script(scripted_server.refusal(400, "BadRequest"), scripted_server.Answer(nothing))
    shelf = things.Shelf("old")
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert shelf.changes == ["-old"]


async def test_a_list_without_version_is_asked_for_again_in_good_time(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Nothing can be watched from it; it must not be listed in a tight loop."""
    versionless = scripted_server.Answer({"metadata": {}, "items": []})
    server.script(scripted_server.refusal(400, "BadRequest"), versionless, versionless)
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(server.requests) == 4)

    assert time.slept == [0.25, 0.5]
