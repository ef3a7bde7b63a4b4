"""How long kube-scheduler waits: what the settings say, unless it shows something else."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest

from partage.scheduler import http_server
from partage.scheduler.binds import scheduler_timeout
from partage.services import listener
from partage.services.http import servers
from tests.kube import scripted_server
from tests.scheduler import extender_parts, model_server, small_cluster


def _timeout() -> scheduler_timeout.SchedulerTimeout:
    return scheduler_timeout.SchedulerTimeout(10.0, on_the_way_s=0.5, clock=lambda: 100.0)


def test_the_settings_count_until_it_shows_something_else() -> None:
    """A little is left for the way."""
    assert _timeout().seconds == 9.5
    assert _timeout().problem == ""


def test_two_departures_after_the_same_time_are_a_time_out() -> None:
    """From then on nothing waits longer, and what to do is said."""
    timeout = _timeout()
    timeout.gave_up(5.01)
    assert timeout.seconds == 9.5
    timeout.gave_up(5.0)
    assert timeout.seconds == 4.5
    assert "after 5.0 s" in timeout.problem
    assert "httpTimeout: 10s" in timeout.problem


def test_what_it_showed_long_ago_does_not_count() -> None:
    """Its configuration may have been mended."""
    now = [100.0]
    timeout = scheduler_timeout.SchedulerTimeout(10.0, on_the_way_s=0.5, clock=lambda: now[0])
    timeout.gave_up(5.0)
    timeout.gave_up(5.0)
    assert timeout.problem
    now[0] += 601
    assert (timeout.problem, timeout.seconds) == ("", 9.5)


def test_departures_after_different_times_are_restarts() -> None:
    """So are those after a moment."""
    timeout = _timeout()
    for waited_s in (0.2, 0.21, 3.0, 7.0, 1.5):
        timeout.gave_up(waited_s)
    assert timeout.seconds == 9.5


def test_a_time_out_as_it_should_be_is_no_problem() -> None:
    """The API server was slow, and that is another matter."""
    timeout = _timeout()
    timeout.gave_up(10.0)
    timeout.gave_up(10.0)
    assert timeout.problem == ""


async def test_clients_that_leave_a_bind_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the server, and by what it tells."""
    monkeypatch.setattr(scheduler_timeout, "_SHORTEST_S", 0.1)
    monkeypatch.setattr(scheduler_timeout, "_LIKE", 0.9)  # a busy machine makes two times differ
    cluster = small_cluster.Cluster()
    wired = extender_parts.Wired(cluster, model_server.Client(model_server.Server()))
    site = http_server.application(wired.served())
    body = b'{"PodName":"p","PodNamespace":"default","PodUID":"u","Node":"n1"}'
    address = listener.Address("127.0.0.1", 0)
    limits = msgspec.structs.replace(http_server.LIMITS, grace_s=0.0)  # the binds never end
    async with servers.at(address, site, limits) as url:
        for _ in range(2):
            timeout = aiohttp.ClientTimeout(total=0.2)
            async with aiohttp.ClientSession(url, timeout=timeout) as client:
                with pytest.raises(TimeoutError):
                    await client.post("/scheduler/bind", data=body)
        await scripted_server.until(lambda: wired.scheduler_timeout.problem)
    assert "gives up after 0." in wired.scheduler_timeout.problem
