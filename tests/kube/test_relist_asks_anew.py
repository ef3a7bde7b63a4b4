"""`relist` gives a list that is no older than the call, whatever the reflector is at."""

from __future__ import annotations

import asyncio

from partage.kube import api, reflector
from tests.kube import making, scripted


async def test_a_watch_is_interrupted(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """`synced` is cleared at once and set when the new list is complete."""
    second = scripted.Watch()
    server.script(scripted.Watch(making.event("ADDED", "a"), making.end_of_list(1)), second)
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(made.synced.is_set)
        made.relist()
        assert not made.synced.is_set()
        await scripted.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(making.event("ADDED", "b", 2)).send(making.end_of_list(2))
        await scripted.until(made.synced.is_set)
        assert made.gaps == 1

    assert server.requests[1].query["sendInitialEvents"] == "true"
    assert shelf.told == ["+a", "+b", "-a"]
    assert time.slept == []


async def test_a_list_under_way_is_too_old(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """It was asked for before the call, so another one is begun."""
    first, second = scripted.Watch(making.event("ADDED", "a")), scripted.Watch()
    server.script(first, second)
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(lambda: made.seen == 1)
        made.relist()
        made.relist()
        first.send(making.end_of_list(1))
        await scripted.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(making.end_of_list(2))
        await scripted.until(made.synced.is_set)


async def test_a_list_that_completes_in_the_same_moment_is_too_old(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Even if all of it has been received when the call comes."""

    class Asking(making.Shelf):
        def drop(self, key: str) -> None:
            super().drop(key)
            made.relist()

    second = scripted.Watch()
    server.script(scripted.Watch(making.end_of_list(1)), second)
    async with making.reflecting(client, Asking("gone"), time) as made:
        await scripted.until(lambda: len(server.requests) == 2)
        assert not made.synced.is_set()
        second.send(making.end_of_list(2))
        await scripted.until(made.synced.is_set)


async def test_a_list_that_fails_is_asked_for_again(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """To go on with the old watch would leave the question unanswered."""
    server.script(
        scripted.Watch(making.end_of_list(1)),
        scripted.Watch(making.event("ADDED", "a")).crash(),
        scripted.Watch(making.end_of_list(2)),
    )
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)
        made.relist()
        await scripted.until(made.synced.is_set)

    assert ["sendInitialEvents" in asked.query for asked in server.requests] == [True] * 3


async def test_a_delay_is_cut_short(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Who becomes leader does not wait for the back-off of yesterday's failure."""
    delayed = asyncio.Event()

    async def for_ever(_: float) -> None:
        delayed.set()
        await asyncio.Event().wait()

    server.script(scripted.refusal(500, "InternalError"), scripted.Watch(making.end_of_list(2)))
    async with making.reflecting(client, making.Shelf(), time) as made:
        made._sleep = for_ever
        await scripted.until(delayed.is_set)
        made.relist()
        await scripted.until(made.synced.is_set)


async def test_it_may_be_called_when_nothing_runs(client: api.Api, server: scripted.Server) -> None:
    """Before the start and after the end it changes nothing but `synced`."""
    made = reflector.Reflector(
        client, making.PATH, making.Thing, making.Shelf(), key=lambda item: item.key
    )
    server.script(scripted.Watch(making.end_of_list(1)))
    made.relist()
    async with making.running(made.run()):
        await scripted.until(made.synced.is_set)
    made.relist()
    assert not made.synced.is_set()


async def test_cancelling_still_ends_it(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A cancellation is never taken for an interruption, even in the same moment."""
    server.script(scripted.Watch(making.end_of_list(1)))
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)
        made.relist()
    assert len(server.requests) == 1
