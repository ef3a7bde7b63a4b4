"""What was deleted while nobody watched is found by comparing with the next list."""

from __future__ import annotations

from partage.kube import api
from tests.kube import making, scripted


async def test_what_a_list_does_not_name_is_dropped(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """The sink's own knowledge is compared, also that from before the first list."""
    shelf = making.Shelf("kept", "gone")
    server.script(scripted.Watch(making.event("ADDED", "kept"), making.end_of_list(1)))
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert shelf.told == ["+kept", "-gone"]


async def test_nothing_is_dropped_before_the_list_is_complete(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """An object may be the last one of the list."""
    shelf = making.Shelf("late", "gone")
    watch = scripted.Watch(making.event("ADDED", "early"))
    server.script(watch)
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: made.seen == 1)
        assert shelf.sizes.keys() == {"late", "gone", "early"}
        watch.send(making.event("ADDED", "late")).send(making.end_of_list(1))
        await scripted.until(made.synced.is_set)

    assert shelf.told == ["+early", "+late", "-gone"]


async def test_a_list_that_fails_drops_nothing(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Half a list says nothing about what is missing."""
    shelf = making.Shelf("late")
    server.script(scripted.Watch(making.event("ADDED", "early")).crash())
    async with making.reflecting(client, shelf, time):
        await scripted.until(lambda: len(server.requests) == 2)

    assert shelf.told == ["+early"]


async def test_what_came_in_after_the_question_stays(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A key that another way brought while the list was under way is younger than the list."""
    shelf = making.Shelf("gone")
    watch = scripted.Watch(making.event("ADDED", "a"))
    server.script(watch)
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: made.seen == 1)
        shelf.sizes["bound-by-us"] = 1
        watch.send(making.end_of_list(1))
        await scripted.until(made.synced.is_set)

    assert shelf.sizes.keys() == {"a", "bound-by-us"}


async def test_keys_are_taken_before_the_list_is_asked_for(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A key that comes in when the server has the request, and has not answered, stays too."""
    shelf = making.Shelf("gone")
    answer = scripted.Watch(making.end_of_list(1))

    def asked(_: scripted.Request) -> scripted.Step:
        shelf.sizes["bound-by-us"] = 1
        return answer

    server.respond = asked
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert shelf.told == ["-gone"]


async def test_a_gap_in_a_watch_is_closed(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """After the server has forgotten our version, deletions that we missed are made up for."""
    first = scripted.Watch(making.event("ADDED", "a"), making.event("ADDED", "b"))
    first.send(making.end_of_list(2)).send(making.failure(410, "Expired"))
    server.script(first, scripted.Watch(making.event("ADDED", "b", 9), making.end_of_list(9)))
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: made.gaps == 1)

    assert shelf.told == ["+a", "+b", "+b", "-a"]


async def test_what_is_deleted_while_listing_is_dropped_once(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A streamed list may bring deletions before its mark."""
    shelf = making.Shelf("a")
    server.script(
        scripted.Watch(
            making.event("ADDED", "a", 3), making.event("DELETED", "a", 4), making.end_of_list(4)
        )
    )
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)

    assert shelf.told == ["+a", "-a"]
