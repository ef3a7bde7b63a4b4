"""While thousands of events come at once, others in the process still get their turn."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from partage.kube import api
from tests.kube import making, scripted

MANY = 1000


async def most_between_turns(shelf: making.Shelf, *, of: int) -> int:
    """The largest number of things that a sink was told between two turns of another task."""
    most, before = 0, len(shelf.told)
    while before < of:
        await asyncio.sleep(0)
        most, before = max(most, len(shelf.told) - before), len(shelf.told)
    return most


def burst(kind: str = "ADDED") -> bytes:
    """Many events in one chunk."""
    encoded = [msgspec.json.encode(making.event(kind, f"t{i}")) for i in range(MANY)]
    return b"\n".join(encoded) + b"\n"


async def test_a_burst_of_events(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """At most fifty events are taken in one go, and the rest can be seen waiting."""
    shelf = making.Shelf()
    server.script(scripted.Watch().send_bytes(burst()))
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: shelf.told)
        assert 0 < made.waiting < MANY
        assert await most_between_turns(shelf, of=MANY) <= 50
        assert made.waiting == 0


async def test_slow_sinks_yield_sooner(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Two milliseconds are enough, however few events that is."""

    class Slow(making.Shelf):
        def put(self, item: making.Thing) -> None:
            super().put(item)
            time.now_s += 0.0011

    shelf = Slow()
    server.script(scripted.Watch().send_bytes(burst()))
    async with making.reflecting(client, shelf, time):
        assert await most_between_turns(shelf, of=MANY) <= 2


async def test_a_large_page(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A page is taken in the same small steps."""
    shelf = making.Shelf()
    names = [f"t{i}" for i in range(MANY)]
    server.script(scripted.refusal(400, "BadRequest"), making.page(*names))
    async with making.reflecting(client, shelf, time) as made:
        await scripted.until(lambda: shelf.told)
        assert 0 < made.waiting < MANY
        assert await most_between_turns(shelf, of=MANY) <= 50


async def test_many_that_vanished(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """So is dropping what a list did not name."""
    shelf = making.Shelf(*(f"t{i}" for i in range(MANY)))
    server.script(scripted.Watch(making.end_of_list(1)))
    async with making.reflecting(client, shelf, time) as made:
        assert await most_between_turns(shelf, of=MANY) <= 50
        await scripted.until(made.synced.is_set)


@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_events_in_small_pieces(
    server: scripted.Server, client: api.Api, time: making.QuickTime, size: int
) -> None:
    """How the bytes are cut on their way makes no difference."""
    whole = burst()[: 40 * 200].rpartition(b"\n")[0] + b"\n"
    watch = scripted.Watch()
    for at in range(0, len(whole), size):
        watch.send_bytes(whole[at : at + size])
    server.script(watch)
    shelf = making.Shelf()
    async with making.reflecting(client, shelf, time):
        await scripted.until(lambda: len(shelf.told) == whole.count(b"\n"))

    assert shelf.told == [f"+t{i}" for i in range(whole.count(b"\n"))]
