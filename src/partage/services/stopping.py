"""Stopping: work that goes on until a signal, or until something goes wrong in it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine
from typing import NoReturn


def on_signals() -> asyncio.Event:
    """What is set when this process is told to end."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def until(
    stop: asyncio.Event,
    work: Coroutine[None, None, NoReturn],
    *,
    ending: Callable[[], None] = lambda: None,
) -> None:
    """Work until told to stop; what goes wrong inside ends it. ``ending`` comes first of all."""
    working = asyncio.create_task(work)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([working, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    ending()
    if working.done():
        await working
    working.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await working
