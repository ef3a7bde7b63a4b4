"""What the extender and the agent have in common: an address, and an end."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from typing import NoReturn

import aiohttp
import pytest
from aiohttp import web

from partage.core import errors
from partage.services import lifetime, listener

ANY = listener.Address("127.0.0.1", 0)


def _application() -> web.Application:
    async def answer(_request: web.Request) -> web.Response:
        return web.Response(text="here")

    app = web.Application()
    app.router.add_get("/", answer)
    return app


async def test_the_url_that_is_told_is_answered() -> None:
    """Also where the port was left to the kernel."""
    async with (
        listener.at(ANY, _application()) as url,
        aiohttp.request("GET", url) as answer,
    ):
        assert await answer.text() == "here"


async def test_an_address_that_is_taken() -> None:
    """The error names it, and what to do."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            errors.InputError, match=f"cannot listen on 127.0.0.1 port {port}: .*in"
        ):
            async with listener.at(listener.Address("127.0.0.1", port), _application()):
                pass


async def test_what_fails_while_it_listens_is_not_blamed_on_the_address() -> None:
    """A full disk is a full disk."""
    with pytest.raises(OSError, match="No space left"):
        async with listener.at(ANY, _application()):
            raise OSError(28, "No space left on device")


async def test_what_comes_first_is_broken_off_by_a_signal() -> None:
    """As when the API server cannot be reached; and what fails in it is not lost."""
    stop = asyncio.Event()
    assert await lifetime.before(stop, asyncio.sleep(0))
    with pytest.raises(OSError, match="No space left"):
        await lifetime.before(stop, _failing())
    stop.set()
    assert not await lifetime.before(stop, asyncio.Event().wait())


async def _failing() -> None:
    raise OSError(28, "No space left on device")


async def test_a_signal_ends_the_work() -> None:
    """What goes before is done beside it, new work is refused, then the work is cancelled."""
    seen: list[str] = []

    async def work() -> NoReturn:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")
        raise AssertionError("nobody sets that event")

    stop = lifetime.on_signals()
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)

    async def leave() -> None:
        seen.append("leaving")

    await lifetime.until(stop, work(), leaving=leave, ending=lambda: seen.append("refusing"))
    assert seen == ["leaving", "refusing", "cancelled"]


async def test_what_goes_wrong_in_the_work_ends_it() -> None:
    """Nobody would notice a service that lives on without its work."""

    async def work() -> NoReturn:
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        await lifetime.until(asyncio.Event(), work())
