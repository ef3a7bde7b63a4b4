"""What was deleted while nobody watched is found by comparing with the next list."""

from __future__ import annotations

from partage.kube import api
from tests.kube import api_clients, scripted_server, things


async def test_what_a_list_does_not_name_is_dropped(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """The sink's own knowledge is compared, also that from before the first list."""
    shelf = things.Shelf("kept", "gone")
    server.script(scripted_server.Watch(things.event("ADDED", "kept"), things.end_of_list(1)))
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert shelf.changes == ["+kept", "-gone"]


async def test_nothing_is_dropped_before_the_list_is_complete(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """An object may be the last one of the list."""
    shelf = things.Shelf("late", "gone")
    watch = scripted_server.Watch(things.event("ADDED", "early"))
    server.script(watch)
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: made.seen == 1)
        assert shelf.sizes.keys() == {"late", "gone", "early"}
        watch.send(things.event("ADDED", "late")).send(things.end_of_list(1))
        await scripted_server.until(made.synced.is_set)

    assert shelf.changes == ["+early", "+late", "-gone"]


async def test_a_list_that_fails_drops_nothing(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Half a list says nothing about what is missing."""
    shelf = things.Shelf("late")
    server.script(scripted_server.Watch(things.event("ADDED", "early")).crash())
    async with api_clients.reflecting(client, shelf, time):
        await scripted_server.until(lambda: len(server.requests) == 2)

    assert shelf.changes == ["+early"]


async def test_what_came_in_after_the_question_stays(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A key that another way brought while the list was under way is younger than the list."""
    shelf = things.Shelf("gone")
    watch = scripted_server.Watch(things.event("ADDED", "a"))
    server.script(watch)
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: made.seen == 1)
        shelf.sizes["bound-by-us"] = 1
        watch.send(things.end_of_list(1))
        await scripted_server.until(made.synced.is_set)

    assert shelf.sizes.keys() == {"a", "bound-by-us"}


async def test_keys_are_taken_before_the_list_is_asked_for(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A key that comes in when the server has the request, and has not answered, stays too."""
    shelf = things.Shelf("gone")
    answer = scripted_server.Watch(things.end_of_list(1))

    def respond(_: scripted_server.Request) -> scripted_server.Step:
        shelf.sizes["bound-by-us"] = 1
        return answer

    server.respond = respond
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert shelf.changes == ["-gone"]


async def test_a_gap_in_a_watch_is_closed(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """After the server has forgotten our version, deletions that we missed are made up for."""
    first = scripted_server.Watch(things.event("ADDED", "a"), things.event("ADDED", "b"))
    first.send(things.end_of_list(2)).send(things.failure(410, "Expired"))
    server.script(
        first, scripted_server.Watch(things.event("ADDED", "b", 9), things.end_of_list(9))
    )
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: made.gaps == 1)

    assert shelf.changes == ["+a", "+b", "+b", "-a"]


async def test_what_is_deleted_while_listing_is_dropped_once(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A streamed list may bring deletions before its mark."""
    shelf = things.Shelf("a")
    server.script(
        scripted_server.Watch(
            things.event("ADDED", "a", 3), things.event("DELETED", "a", 4), things.end_of_list(4)
        )
    )
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)

    assert shelf.changes == ["+a", "-a"]
