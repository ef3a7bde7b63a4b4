"""Clients that go away, and a server that ends: what was begun is brought to its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import aiohttp
import pytest

from partage.services.http import allowances
from tests.services.http import http_site


@pytest.mark.parametrize("how", ["close", "reset", "half"])
async def test_a_client_that_leaves_before_its_answer(how: str) -> None:
    """What it asked for goes on; somebody is told, once, with the path and how long it waited."""
    site = http_site.Site()
    async with http_site.served(site) as (_, port):
        client = socket.create_connection(("127.0.0.1", port))
        client.sendall(http_site.post("/later", b"bind"))
        await site.begun.wait()
        if how == "reset":
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if how == "half":
            client.shutdown(socket.SHUT_WR)
        else:
            client.close()
        await http_site.until(lambda: site.gone)
        assert site.ended == []
        site.go_on.set()
        await http_site.until(lambda: site.ended)
        assert site.ended == [b"bind"]
        if how == "half":
            assert b"later bind" in await asyncio.to_thread(client.recv, 4096)
            client.close()
    assert [gone.path for gone in site.gone] == ["/later"]
    assert 0 < site.gone[0].waited_s < 60


async def test_a_client_that_times_out() -> None:
    """The one that is meant: kube-scheduler, which gave up."""
    site = http_site.Site()
    async with http_site.served(site) as (_, port), aiohttp.ClientSession() as session:
        patience = aiohttp.ClientTimeout(total=0.05)
        with pytest.raises(TimeoutError):
            await session.post(f"http://127.0.0.1:{port}/later", data=b"x", timeout=patience)
        await http_site.until(lambda: site.gone)
        assert site.gone[0].waited_s >= 0.04


async def test_a_client_that_has_its_answer_is_not_missed() -> None:
    """Nobody is told of an ordinary end."""
    site = http_site.Site()
    site.go_on.set()
    async with http_site.asking(site) as raw:
        await raw.send(http_site.post("/later", b"x"))
        await raw.answer()
    assert site.gone == []


async def test_half_a_request_behind_another_does_not_hide_that_a_client_left() -> None:
    """Reading goes on while something is under way, and that half is never begun."""
    site = http_site.Site()
    async with http_site.served(site) as (server, port):
        async with http_site.connected(port) as raw:
            await raw.send(http_site.post("/later", b"a") + http_site.post("/echo", b"bcd")[:-1])
            await site.begun.wait()
            raw.writer.transport.abort()
        await http_site.until(lambda: site.gone)
        assert [gone.path for gone in site.gone] == ["/later"]
        site.go_on.set()
        await http_site.until(lambda: not server.connections)
    assert (site.bodies, site.ended) == ([], [b"a"])


async def test_a_body_that_is_cut_off() -> None:
    """Half a request is none."""
    site = http_site.Site()
    async with http_site.asking(site) as raw:
        await raw.send(http_site.post("/echo", b"x" * 100)[:-1])
        raw.writer.write_eof()
        assert await raw.rest() == b""
    assert site.bodies == []


async def test_at_the_end_what_was_asked_is_answered() -> None:
    """Idle clients are sent away at once, and nobody new is let in."""
    site = http_site.Site()
    async with (
        http_site.served(site) as (server, port),
        http_site.connected(port) as idle,
        http_site.connected(port) as busy,
    ):
        await busy.send(http_site.post("/later", b"x"))
        await site.begun.wait()
        closing = asyncio.create_task(server.close())
        assert await idle.rest() == b""
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection("127.0.0.1", port)
        assert not closing.done()
        site.go_on.set()
        status, headers, body = await busy.answer()
        assert (status, headers["connection"], body) == (200, "close", b"later x")
        await closing


async def test_at_the_end_a_bind_goes_on_without_its_client() -> None:
    """It may be written already, so its outcome has to be learned."""
    site = http_site.Site()
    async with http_site.served(site) as (server, port):
        async with http_site.connected(port) as raw:
            await raw.send(http_site.post("/later", b"x"))
            await site.begun.wait()
        await http_site.until(lambda: site.gone)
        closing = asyncio.create_task(server.close())
        with pytest.raises(OSError, match="Connect"):  # it no longer listens
            await asyncio.open_connection("127.0.0.1", port)
        assert not closing.done()
        site.go_on.set()
        await closing
    assert site.ended == [b"x"]


async def test_at_the_end_nobody_is_waited_for_longer_than_the_grace() -> None:
    """What takes longer is broken off."""
    site = http_site.Site()
    async with http_site.served(site, allowances.Limits(grace_s=0.05)) as (server, port):
        async with http_site.connected(port) as raw:
            await raw.send(http_site.post("/later", b"x"))
            await site.begun.wait()
            await server.close()
            with contextlib.suppress(ConnectionError):
                assert await raw.rest() == b""
        assert not server.connections
    assert site.ended == []
