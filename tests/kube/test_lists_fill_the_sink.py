"""A reflector begins with a consistent list: as a stream, or in pages where that is refused."""

from __future__ import annotations

import pytest

from partage.kube import api
from tests.kube import making, scripted


async def test_a_streamed_list_is_asked_for_first(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """It is a watch with initial events, of no version in particular, hence of the newest."""
    server.script(scripted.Watch(making.end_of_list(1)))
    selector = {"fieldSelector": "spec.nodeName!="}
    async with making.reflecting(client, making.Shelf(), time, query=selector) as made:
        await scripted.until(made.synced.is_set)

    assert server.requests[0].path == making.PATH
    assert server.requests[0].query == {
        "fieldSelector": "spec.nodeName!=",
        "watch": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "240",
    }


async def test_synced_waits_for_the_mark(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Objects are put as they come, but only the mark says that there are no more."""
    shelf = making.Shelf()
    watch = scripted.Watch(making.event("ADDED", "a"), making.bookmark(5))
    server.script(watch)
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: shelf.told == ["+a"])
        assert not made.synced.is_set()
        watch.send(making.end_of_list(9))
        await scripted.until(made.synced.is_set)
        assert (made.seen, made.gaps, made.waiting) == (1, 0, 0)


async def test_a_streamed_list_becomes_the_watch(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """What changes after the mark comes on the same stream, without another request."""
    shelf = making.Shelf()
    watch = scripted.Watch(making.event("ADDED", "a"), making.end_of_list(1))
    server.script(watch)
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)
        watch.send(making.event("MODIFIED", "a", 2, size=7)).send(making.event("ADDED", "b", 3))
        watch.send(making.event("DELETED", "a", 4))
        await scripted.until(lambda: made.seen == 4)

    assert shelf.told == ["+a", "+a", "+b", "-a"]
    assert len(server.requests) == 1


@pytest.mark.parametrize("code", [400, 422])
async def test_pages_where_streams_are_refused(
    server: scripted.Server, client: api.Api, time: making.QuickTime, code: int
) -> None:
    """The list then comes in pages, consistent too, and a watch follows from its version."""
    shelf = making.Shelf()
    server.script(
        scripted.refusal(code, "Invalid", "sendInitialEvents is forbidden"),
        making.page("a", "b", version=30, following="token"),
        making.page("c", version=30),
    )
    async with making.reflecting(client, shelf, time, query={"labelSelector": "x"}) as made:
        await scripted.until(made.synced.is_set)
        await scripted.until(lambda: len(server.requests) == 4)

    assert shelf.told == ["+a", "+b", "+c"]
    first, second, watch = (asked.query for asked in server.requests[1:])
    assert first == {"labelSelector": "x", "limit": "500"}
    assert second == {"labelSelector": "x", "limit": "500", "continue": "token"}
    assert watch["resourceVersion"] == "30"
    assert "sendInitialEvents" not in watch
    assert time.slept == []


async def test_a_refusal_of_streams_is_remembered(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """The next list is asked for in pages at once."""
    server.script(
        scripted.refusal(422, "Invalid"),
        making.page("a", version=3),
        scripted.Watch(making.failure(410, "Expired")),
        making.page("a", version=9),
    )
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(lambda: made.gaps == 1)

    assert ["sendInitialEvents" in asked.query for asked in server.requests[:4]] == [
        True,
        False,
        False,
        False,
    ]


async def test_other_refusals_do_not_change_the_way_of_listing(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Who may not list is told so, and asks again the same way."""
    server.script(scripted.refusal(403, "Forbidden"), scripted.Watch(making.end_of_list(1)))
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)

    assert server.requests[0].query == server.requests[1].query
    assert len(time.slept) == 1


async def test_a_list_that_expires_between_pages_starts_over(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """The first page is asked for again, without the token."""
    shelf = making.Shelf()
    server.script(
        scripted.refusal(400, "BadRequest"),
        making.page("a", version=3, following="token"),
        scripted.refusal(410, "Expired"),
        making.page("b", version=8),
    )
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert "continue" not in server.requests[3].query
    assert shelf.sizes.keys() == {"b"}
    assert made.gaps == 0


async def test_a_streamed_list_that_breaks_is_no_place_to_resume(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Objects of a list come in no order, so half a list is listed again, not watched from."""
    half = scripted.Watch(making.event("ADDED", "a", 7), making.event("ADDED", "b", 5)).crash()
    whole = scripted.Watch(making.event("ADDED", "a", 7), making.end_of_list(9))
    server.script(half, whole)
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert server.requests[1].query == server.requests[0].query
    assert shelf.sizes.keys() == {"a"}


async def test_a_server_that_ignores_the_mark_is_listed_in_pages(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A stream that ends in order and without the mark would never be a complete list."""
    server.script(
        scripted.Watch(making.event("ADDED", "a")).end(),
        making.page("a", version=4),
    )
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)

    assert server.requests[1].query == {"limit": "500"}


@pytest.mark.parametrize("items", [[], None])
async def test_empty_collections_sync_too(
    server: scripted.Server, client: api.Api, time: making.QuickTime, items: list[object] | None
) -> None:
    """No objects are an answer, also when written as null."""
    nothing = {"metadata": {"resourceVersion": "5"}, "items": items}
    server.script(scripted.refusal(400, "BadRequest"), scripted.Answer(nothing))
    shelf = making.Shelf("old")
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert shelf.told == ["-old"]


async def test_a_list_without_version_is_asked_for_again_in_good_time(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Nothing can be watched from it; it must not be listed in a tight loop."""
    versionless = scripted.Answer({"metadata": {}, "items": []})
    server.script(scripted.refusal(400, "BadRequest"), versionless, versionless)
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(server.requests) == 4)

    assert time.slept == [0.25, 0.5]
