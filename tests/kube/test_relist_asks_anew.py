"""`relist` gives a list that is no older than the call, whatever the reflector is at."""

from __future__ import annotations

import asyncio

from partage.kube import api
from partage.kube.reflection import reflector
from tests.kube import api_clients, scripted_server, things


async def test_a_watch_is_interrupted(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """`synced` is cleared at once and set when the new list is complete."""
    second = scripted_server.Watch()
    server.script(scripted_server.Watch(things.event("ADDED", "a"), things.end_of_list(1)), second)
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(made.synced.is_set)
        made.relist()
        assert not made.synced.is_set()
        await scripted_server.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(things.event("ADDED", "b", 2)).send(things.end_of_list(2))
        await scripted_server.until(made.synced.is_set)
        assert made.gaps == 1

    assert server.requests[1].query["sendInitialEvents"] == "true"
    assert shelf.changes == ["+a", "+b", "-a"]
    assert time.slept == []


async def test_a_list_under_way_is_too_old(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """It was asked for before the call, so another one is begun."""
    first, second = scripted_server.Watch(things.event("ADDED", "a")), scripted_server.Watch()
    server.script(first, second)
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(lambda: made.seen == 1)
        made.relist()
        made.relist()
        first.send(things.end_of_list(1))
        await scripted_server.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(things.end_of_list(2))
        await scripted_server.until(made.synced.is_set)


async def test_a_list_that_completes_in_the_same_moment_is_too_old(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Even if all of it has been received when the call comes."""

    class Asking(things.Shelf):
        def drop(self, key: str) -> None:
            super().drop(key)
            made.relist()

    second = scripted_server.Watch()
    server.script(scripted_server.Watch(things.end_of_list(1)), second)
    async with api_clients.reflecting(client, Asking("gone"), time) as made:
        await scripted_server.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(things.end_of_list(2))
        await scripted_server.until(made.synced.is_set)


async def test_a_list_that_fails_is_asked_for_again(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """To go on with the old watch would leave the question unanswered."""
    server.script(
        scripted_server.Watch(things.end_of_list(1)),
        scripted_server.Watch(things.event("ADDED", "a")).crash(),
        scripted_server.Watch(things.end_of_list(2)),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)
        made.relist()
        await scripted_server.until(made.synced.is_set)

    assert ["sendInitialEvents" in request.query for request in server.requests] == [True] * 3


async def test_a_delay_is_cut_short(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Who becomes leader does not wait for the back-off of yesterday's failure."""
    delayed = asyncio.Event()

    async def for_ever(_: float) -> None:
        delayed.set()
        await asyncio.Event().wait()

    server.script(
        scripted_server.refusal(500, "InternalError"), scripted_server.Watch(things.end_of_list(2))
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        made._sleep = for_ever
        await scripted_server.until(delayed.is_set)
        made.relist()
        await scripted_server.until(made.synced.is_set)


async def test_it_may_be_called_when_nothing_runs(
    client: api.Api, server: scripted_server.Server
) -> None:
    """Before the start and after the end it changes nothing but `synced`."""
    made = reflector.Reflector(
        client, things.PATH, things.Thing, things.Shelf(), key=lambda item: item.key
    )
    server.script(scripted_server.Watch(things.end_of_list(1)))
    made.relist()
    async with api_clients.running(made.run()):
        await scripted_server.until(made.synced.is_set)
    made.relist()
    assert not made.synced.is_set()


async def test_cancelling_still_ends_it(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A cancellation is never taken for an interruption, even in the same moment."""
    server.script(scripted_server.Watch(things.end_of_list(1)))
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)
        made.relist()
    assert len(server.requests) == 1
