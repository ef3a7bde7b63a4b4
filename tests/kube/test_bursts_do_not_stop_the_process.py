"""While thousands of events come at once, others in the process still get their turn."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from partage.kube import api
from tests.kube import api_clients, scripted_server, things

MANY = 1000


async def most_between_turns(shelf: things.Shelf, *, of: int) -> int:
    """The largest number of things that a sink was told between two turns of another task."""
    most, before = 0, len(shelf.changes)
    while before < of:
        await asyncio.sleep(0)
        most, before = max(most, len(shelf.changes) - before), len(shelf.changes)
    return most


def burst(kind: str = "ADDED") -> bytes:
    """Many events in one chunk."""
    encoded = [msgspec.json.encode(things.event(kind, f"t{i}")) for i in range(MANY)]
    return b"\n".join(encoded) + b"\n"


async def test_a_burst_of_events(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """At most fifty events are taken in one go, and the rest can be seen waiting."""
    shelf = things.Shelf()
    server.script(scripted_server.Watch().send_bytes(burst()))
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: shelf.changes)
        assert 0 < made.waiting < MANY
        assert await most_between_turns(shelf, of=MANY) <= 50
        assert made.waiting == 0


async def test_slow_sinks_yield_sooner(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Two milliseconds are enough, however few events that is."""

    class Slow(things.Shelf):
        def put(self, item: things.Thing) -> None:
            super().put(item)
            time.now_s += 0.0011

    shelf = Slow()
    server.script(scripted_server.Watch().send_bytes(burst()))
    async with api_clients.reflecting(client, shelf, time):
        assert await most_between_turns(shelf, of=MANY) <= 2


async def test_a_large_page(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A page is taken in the same small steps."""
    shelf = things.Shelf()
    names = [f"t{i}" for i in range(MANY)]
    server.script(scripted_server.refusal(400, "BadRequest"), things.page(*names))
    async with api_clients.reflecting(client, shelf, time) as made:
        await scripted_server.until(lambda: shelf.changes)
        assert 0 < made.waiting < MANY
        assert await most_between_turns(shelf, of=MANY) <= 50


async def test_many_that_vanished(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """So is dropping what a list did not name."""
    shelf = things.Shelf(*(f"t{i}" for i in range(MANY)))
    server.script(scripted_server.Watch(things.end_of_list(1)))
    async with api_clients.reflecting(client, shelf, time) as made:
        assert await most_between_turns(shelf, of=MANY) <= 50
        await scripted_server.until(made.synced.is_set)


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_events_in_small_pieces(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, size: int
) -> None:
    """How the bytes are cut on their way makes no difference."""
    whole = burst()[: 40 * 200].rpartition(b"\n")[0] + b"\n"
    watch = scripted_server.Watch()
    for at in range(0, len(whole), size):
        watch.send_bytes(whole[at : at + size])
    server.script(watch)
    shelf = things.Shelf()
    async with api_clients.reflecting(client, shelf, time):
        await scripted_server.until(lambda: len(shelf.changes) == whole.count(b"\n"))

    assert shelf.changes == [f"+t{i}" for i in range(whole.count(b"\n"))]
