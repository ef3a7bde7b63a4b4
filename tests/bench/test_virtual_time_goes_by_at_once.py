"""Virtual time: rates are watched for hours in no time, and everything happens when it should."""

from __future__ import annotations

import asyncio
import time

from bench.measurement import virtual_time

HOUR_S = 3600.0


def test_who_waits_wakes_up_when_they_wanted() -> None:
    """In the order of their times, whoever began first; an hour takes no second."""
    woken: list[tuple[str, float]] = []

    async def wait(name: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        woken.append((name, asyncio.get_running_loop().time()))

    async def all_of_them() -> float:
        await asyncio.gather(wait("late", HOUR_S), wait("soon", 0.5), wait("now", 0))
        return asyncio.get_running_loop().time()

    began_s = time.monotonic()
    assert virtual_time.run(all_of_them()) == HOUR_S
    assert time.monotonic() - began_s < HOUR_S / 60
    assert woken == [("now", 0.0), ("soon", 0.5), ("late", HOUR_S)]


def test_work_takes_no_time_on_this_clock() -> None:
    """However slow the machine is, so that what is counted does not depend on it."""

    async def work() -> float:
        for _ in range(1000):
            await asyncio.sleep(0)
        return asyncio.get_running_loop().time()

    assert virtual_time.run(work()) == 0.0
