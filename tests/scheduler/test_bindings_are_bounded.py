"""The window: few Bindings at once, in order, as many as the API server answers in good time."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states, send_window
from tests.scheduler import extender_parts, model_server, small_cluster


class Clock:
    """A time that tests move."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """The time now."""
        return self.now


async def _answered(window: send_window.Window, clock: Clock, took_s: float, **how: Any) -> None:
    """One Binding, from its sending to its answer."""
    await window.enter(clock.now + 100)
    sent_at = clock.now
    clock.now += took_s
    window.leave(sent_at, **{"overloaded": False, **how})


async def test_it_grows_by_one_for_each_round_of_quick_answers() -> None:
    """Up to the setting, and no further."""
    clock = Clock()
    window = send_window.Window(most=12, clock=clock)
    sizes = []
    for _ in range(200):
        places = [asyncio.create_task(window.enter(1e9)) for _ in range(window.size)]
        await asyncio.gather(*places)
        sent_at = clock.now
        clock.now += 0.01
        for _ in places:
            window.leave(sent_at, overloaded=False)
        sizes.append(window.size)
    assert sizes[-1] == 12
    assert all(after - before in (0, 1) for before, after in itertools.pairwise(sizes))


@pytest.mark.parametrize(
    ("took_s", "overloaded"), [(send_window.SLOW_S + 0.1, False), (0.01, True)], ids=["slow", "503"]
)
async def test_it_is_halved_by_slow_answers_and_by_refusals(
    took_s: float, overloaded: bool
) -> None:
    """Down to two, below which nothing would be learned."""
    clock = Clock()
    window = send_window.Window(most=32, clock=clock)
    sizes = [window.size]
    for _ in range(6):
        await _answered(window, clock, took_s, overloaded=overloaded)
        sizes.append(window.size)
    assert sizes[1] == sizes[0] // 2
    assert sizes[-1] == send_window.LEAST


async def test_answers_of_the_past_do_not_halve_it_again() -> None:
    """Eight that were sent together and came late are one sign, not eight."""
    clock = Clock()
    window = send_window.Window(most=32, clock=clock)
    for _ in range(8):
        await window.enter(1e9)
    sent_at = clock.now
    clock.now += 2
    for _ in range(8):
        window.leave(sent_at, overloaded=False)
    assert window.size == 4


async def test_a_window_that_is_not_used_does_not_grow() -> None:
    """One Binding now and then says nothing about thirty at once."""
    clock = Clock()
    window = send_window.Window(most=32, clock=clock)
    before = window.size
    for _ in range(100):
        await _answered(window, clock, 0.01)
    assert window.size == before


async def test_whoever_waits_gets_a_place_in_order() -> None:
    """First come, first served."""
    clock = Clock()
    window = send_window.Window(most=2, clock=clock)
    order: list[int] = []

    async def bind(number: int) -> None:
        await window.enter(clock.now + 50)
        order.append(number)
        await asyncio.sleep(0)
        window.leave(clock.now, overloaded=False)

    await asyncio.gather(*map(bind, range(20)))
    assert order == list(range(20))
    assert (window.in_flight, window.waiting) == (0, 0)


async def test_whoever_cannot_be_sent_in_time_hears_so_at_once() -> None:
    """Not when the time is over: kube-scheduler would not hear it any more."""
    clock = Clock()
    window = send_window.Window(most=2, clock=clock)
    for _ in range(50):
        await _answered(window, clock, 0.4)
    for _ in range(2):
        await window.enter(1e9)
    waiting = [asyncio.create_task(window.enter(clock.now + 100)) for _ in range(20)]
    await asyncio.sleep(0)
    with pytest.raises(send_window.TooLate) as late:
        await window.enter(clock.now + 1)
    assert late.value.ahead == 20
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert window.waiting == 0


async def test_who_gives_up_while_waiting_leaves_no_place_taken() -> None:
    """Not even in the moment in which it was given one."""
    clock = Clock()
    window = send_window.Window(most=2, clock=clock)
    for _ in range(2):
        await window.enter(1e9)
    waiting = [asyncio.create_task(window.enter(1e9)) for _ in range(3)]
    await asyncio.sleep(0)
    window.leave(clock.now, overloaded=False)  # the first of them has a place now
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    await asyncio.wait_for(waiting[1], 30)
    window.leave(clock.now, overloaded=False)
    await asyncio.wait_for(waiting[2], 30)
    for _ in range(2):
        window.leave(clock.now, overloaded=False)
    assert window.in_flight == 0


async def test_a_pause_that_the_server_asks_for_twice_in_a_row_is_kept_by_all() -> None:
    """Retry-After is an answer, too."""
    clock = Clock()
    window = send_window.Window(most=4, clock=clock)
    for _ in range(2):
        await _answered(window, clock, 0.01, overloaded=True, pause_s=0.05)
    entered = asyncio.create_task(window.enter(clock.now + 100))
    await asyncio.sleep(0.01)
    assert not entered.done()
    clock.now += 0.06
    await asyncio.wait_for(entered, 30)


async def test_one_that_is_turned_away_among_others_stops_nobody_else() -> None:
    """One in ten with a pause of a second would let one through in a second."""
    clock = Clock()
    window = send_window.Window(most=4, clock=clock)
    for _ in range(5):
        await _answered(window, clock, 0.01, overloaded=True, pause_s=60.0)
        await _answered(window, clock, 0.01)
    await window.enter(clock.now)


async def test_one_that_was_turned_away_is_first_among_those_that_wait() -> None:
    """It has waited before, and kube-scheduler does not wait longer for it."""
    clock = Clock()
    window = send_window.Window(most=2, clock=clock)
    for _ in range(2):
        await window.enter(1e9)
    others = [asyncio.create_task(window.enter(1e9)) for _ in range(3)]
    await asyncio.sleep(0)
    again = asyncio.create_task(window.enter(1e9, first=True))
    await asyncio.sleep(0)
    window.leave(clock.now, overloaded=False)
    await asyncio.wait_for(again, 30)
    assert not any(task.done() for task in others)
    for task in others:
        task.cancel()


async def test_a_pause_of_an_hour_is_not_kept() -> None:
    """Nothing would be sent that could show that the server is back."""
    clock = Clock()
    window = send_window.Window(most=4, clock=clock)
    for _ in range(2):
        await _answered(window, clock, 0.01, overloaded=True, pause_s=float("inf"))
    with pytest.raises(send_window.TooLate, match="asked for a pause"):
        await window.enter(clock.now + 1)
    clock.now += send_window.MOST_PAUSE_S
    await window.enter(clock.now + 1)


async def test_nothing_is_sent_after_its_deadline() -> None:
    """kube-scheduler has given it up, and its CPU may be promised to another pod."""
    clock = Clock()
    window = send_window.Window(most=4, clock=clock)
    with pytest.raises(send_window.TooLate):
        await window.enter(clock.now - 0.1)


async def test_only_as_many_bindings_are_under_way_as_there_are_places() -> None:
    """All others wait inside, and their holds with them."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1", count=8, units_per_card=80))
    server = model_server.Server()
    wired = extender_parts.Wired(cluster, model_server.Client(server), most=2)
    bodies = []
    for i in range(10):
        server.add(f"p{i}", f"uid-{i}", 2)
        pod = server.pods[f"p{i}"]
        limits = {small_cluster.MEMORY: 2}
        body = small_cluster.wire_pod(
            f"p{i}", limits, uid=f"uid-{i}", resourceVersion=pod.metadata.resource_version
        )
        answer = wired.filter.filter(small_cluster.args(body, ["n1"]))
        if not isinstance(answer, bytes):
            await answer
        bodies.append(_bind(f"p{i}", f"uid-{i}"))
    tasks = [asyncio.create_task(wired.binder.bind(body)) for body in bodies]
    most = 0
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0)
        waiting = [call for call in server.calls if not call.answer.done()]
        most = max(most, len(waiting))
        if waiting:
            server.apply(waiting[0])
            waiting[0].answer.set_result(waiting[0].outcome)
    assert most == 2
    assert all(pod.spec.node_name == "n1" for pod in server.pods.values())
    assert [call.name for call in server.calls] == [f"p{i}" for i in range(10)]
    assert wired.binder.sent == 10


async def test_a_bind_that_is_too_late_keeps_its_hold_and_says_what_is_the_matter() -> None:
    """kube-scheduler tries again, and the cards are still there."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    server = model_server.Server()
    wired = extender_parts.Wired(cluster, model_server.Client(server), most=2)
    for _ in range(2):
        wired.window.leave(cluster.clock.now, overloaded=True, pause_s=60.0)
    wired.window.in_flight = 0
    server.add("p", "uid-p", 3)
    body = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}, resourceVersion="101")
    answer = wired.filter.filter(small_cluster.args(body, ["n1"]))
    if not isinstance(answer, bytes):
        await answer
    said = await wired.binder.bind(_bind("p", "uid-p"), timeout_s=send_window.MOST_PAUSE_S)
    assert b"the API server is busy" in said
    assert b"stay reserved" in said
    assert isinstance(cluster.binds.of("uid-p"), bind_states.Held)
    assert server.calls == []
    assert wired.binder.late == 1


@pytest.mark.parametrize(("pause_s", "bound"), [(1.0, True), (7.0, False)])
async def test_a_binding_that_is_turned_away_is_sent_again_if_there_is_time(
    pause_s: float, bound: bool
) -> None:
    """kube-scheduler listens for ten seconds, and hears of it only if that is too short."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        cluster.clock.now += seconds

    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    server = model_server.Server()
    wired = extender_parts.Wired(cluster, model_server.Client(server), sleep=sleep)
    server.add("p", "uid-p", 3)
    body = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}, resourceVersion="101")
    answer = wired.filter.filter(small_cluster.args(body, ["n1"]))
    if not isinstance(answer, bytes):
        await answer
    task = asyncio.create_task(wired.binder.bind(_bind("p", "uid-p")))
    while not task.done():
        await asyncio.sleep(0)
        for number, call in enumerate(server.calls):
            if call.answer.done():
                continue
            if number == 0:
                turned_away = kube_errors.TooManyRequests(
                    429, "TooManyRequests", "later", retry_after_s=pause_s
                )
                call.answer.set_exception(turned_away)
            else:
                server.apply(call)
                call.answer.set_result(call.outcome)
    said = await task
    if bound:
        assert (said, slept) == (b'{"Error":""}', [pause_s])
        assert server.pods["p"].spec.node_name == "n1"
    else:
        assert b"the API server is busy (it asked for a pause of 7.0 s)" in said
        assert isinstance(cluster.binds.of("uid-p"), bind_states.Held)
        assert (slept, wired.binder.late) == ([], 1)


async def test_a_server_that_is_overloaded_makes_the_window_smaller() -> None:
    """By 429, 503, 504 and by no answer at all."""
    for error in (
        kube_errors.TooManyRequests(429, "TooManyRequests", "later"),
        kube_errors.ServerError(503, "ServiceUnavailable", "later"),
        kube_errors.ServerError(504, "Timeout", "later"),
        kube_errors.Unreachable("no answer in time", sent=True),
    ):
        cluster = small_cluster.Cluster()
        cluster.mirror.nodes.put(small_cluster.node("n1"))
        server = model_server.Server()
        wired = extender_parts.Wired(cluster, model_server.Client(server))
        server.add("p", "uid-p", 3)
        before = wired.window.size
        task = asyncio.create_task(wired.binder.bind(_bind("p", "uid-p")))
        for outcome in (server.pods["p"], error):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            call = server.calls[-1]
            if isinstance(outcome, Exception):
                call.answer.set_exception(outcome)
            else:
                call.answer.set_result(outcome)
        await task
        assert wired.window.size == before // 2


def _bind(name: str, uid: str) -> bytes:
    args = f'{{"PodName":"{name}","PodNamespace":"default","PodUID":"{uid}","Node":"n1"}}'
    return args.encode()
