"""How long kube-scheduler waits: what the settings say, unless it shows something else."""

from __future__ import annotations

import asyncio

import aiohttp

from partage.scheduler import patience, serving
from partage.services import listening
from partage.services.http import servers
from tests.scheduler import making, model_server, wiring


def _patience() -> patience.Patience:
    return patience.Patience(10.0, on_the_way_s=0.5, clock=lambda: 100.0)


def test_the_settings_count_until_it_shows_something_else() -> None:
    """A little is left for the way."""
    assert _patience().seconds == 9.5
    assert _patience().problem == ""


def test_two_departures_after_the_same_time_are_a_time_out() -> None:
    """From then on nothing waits longer, and what to do is said."""
    known = _patience()
    known.gave_up(5.01)
    assert known.seconds == 9.5
    known.gave_up(5.0)
    assert known.seconds == 4.5
    assert "after 5.0 s" in known.problem
    assert "httpTimeout: 10s" in known.problem


def test_what_it_showed_long_ago_does_not_count() -> None:
    """Its configuration may have been mended."""
    now = [100.0]
    known = patience.Patience(10.0, on_the_way_s=0.5, clock=lambda: now[0])
    known.gave_up(5.0)
    known.gave_up(5.0)
    assert known.problem
    now[0] += 601
    assert (known.problem, known.seconds) == ("", 9.5)


def test_departures_after_different_times_are_restarts() -> None:
    """So are those after a moment."""
    known = _patience()
    for waited_s in (0.2, 0.21, 3.0, 7.0, 1.5):
        known.gave_up(waited_s)
    assert known.seconds == 9.5


def test_a_time_out_as_it_should_be_is_no_problem() -> None:
    """The API server was slow, and that is another matter."""
    known = _patience()
    known.gave_up(10.0)
    known.gave_up(10.0)
    assert known.problem == ""


async def test_clients_that_leave_a_bind_are_noticed() -> None:
    """By the server, and by what it tells."""
    world = making.World()
    wired = wiring.Wired(world, model_server.Client(model_server.Server()))
    site = serving.application(wired.served())
    body = b'{"PodName":"p","PodNamespace":"default","PodUID":"u","Node":"n1"}'
    address = listening.Address("127.0.0.1", 0)
    async with servers.at(address, site, serving.LIMITS) as url:
        for _ in range(2):
            timeout = aiohttp.ClientTimeout(total=1.1)
            async with aiohttp.ClientSession(url, timeout=timeout) as client:
                try:
                    await client.post("/scheduler/bind", data=body)
                except TimeoutError:
                    await asyncio.sleep(0.05)
    assert "gives up after 1.1 s" in wired.patience.problem
