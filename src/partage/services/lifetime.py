"""The lifetime of a service: it works until a signal, or until something in it fails."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import NoReturn

_stops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Event] = (
    weakref.WeakKeyDictionary()
)


def on_signals() -> asyncio.Event:
    """An event that is set when this process gets a signal to end; all its services share it."""
    loop = asyncio.get_running_loop()
    if loop not in _stops:
        _stops[loop] = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, _stops[loop].set)
    return _stops[loop]


async def before(stop: asyncio.Event, preparing: Coroutine[None, None, object]) -> bool:
    """Whether what has to come first was done before ``stop`` was set; else it is broken off."""
    doing = asyncio.create_task(preparing)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if doing.done():
        await doing
        return True
    doing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await doing
    return False


async def until(
    stop: asyncio.Event,
    work: Coroutine[None, None, NoReturn],
    *,
    leaving: Callable[[], Awaitable[None]] | None = None,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Work until ``stop`` is set, or until the work fails; ``ending`` is called first.

    What has to be done in between, while the work goes on, is ``leaving``.
    """
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(_stopped(stop, leaving))
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    ending()
    if working.done():
        await working
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working


async def _stopped(stop: asyncio.Event, leaving: Callable[[], Awaitable[None]] | None) -> None:
    await stop.wait()
    if leaving is not None:
        await leaving()
