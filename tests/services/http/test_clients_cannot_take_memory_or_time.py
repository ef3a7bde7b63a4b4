"""What a client can take from the server is bounded, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket

import pytest

from partage.services.http import allowances
from tests.services.http import http_site

SOON = allowances.Limits(
    head_s=0.05, body_s=0.05, idle_s=0.05, write_s=0.1, linger_s=0.2, tick_s=0.01, grace_s=0.2
)


async def test_a_head_without_end_is_refused() -> None:
    """Many headers, one long header, a long path: nothing of it is kept for long."""
    for endless in (
        b"".join(b"X-%d: y\r\n" % number for number in range(10_000)),
        b"X: " + b"y" * 100_000,
        b"",
    ):
        line = b"GET /fixed HTTP/1.1\r\n" if endless else b"GET /" + b"y" * 100_000
        async with http_site.asking(http_site.Site()) as raw:
            with contextlib.suppress(ConnectionError):
                await raw.send(line + endless)
            answer = await raw.answer()
            assert answer[0] == 431
            assert b"larger than 16384 bytes" in answer[2]


async def test_a_whole_head_that_is_too_long() -> None:
    """Also if it came at once, with its end."""
    async with http_site.asking(http_site.Site()) as raw:
        await raw.send(http_site.get("/fixed", "X: " + "y" * 20_000))
        assert (await raw.answer())[0] == 431


async def test_a_head_that_comes_too_slowly() -> None:
    """One byte now and then keeps nobody's connection."""
    async with http_site.asking(http_site.Site(), SOON) as raw:
        await raw.send(b"POST /ec")
        answer = await raw.answer()
        assert answer[0] == 408
        assert b"the head did not come within 0.05 s" in answer[2]
        assert await raw.rest() == b""


async def test_a_body_that_comes_too_slowly() -> None:
    """The verb's own kind of answer says so."""
    site = http_site.Site()
    async with http_site.asking(site, SOON) as raw:
        await raw.send(http_site.post("/echo", b"x" * 100)[:-1])
        status, headers, body = await raw.answer()
        assert (status, headers["connection"]) == (200, "close")
        assert json.loads(body) == {"Error": "the body did not come within 0.05 s"}
        assert await raw.rest() == b""
    assert site.bodies == []


async def test_a_connection_that_is_not_used() -> None:
    """It is closed without a word."""
    async with http_site.asking(http_site.Site(), SOON) as raw:
        await raw.send(http_site.get("/fixed"))
        assert (await raw.answer())[2] == b"fixed"
        assert await raw.rest() == b""


async def test_a_body_that_is_too_large() -> None:
    """A client that sends all of it before reading gets the answer all the same."""

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/echo", b" " * (8 << 20))
        answer = connection.getresponse()
        expected = {"Error": "the request body is larger than 1000000 bytes"}
        assert (answer.status, json.loads(answer.read())) == (200, expected)
        connection.close()

    site = http_site.Site()
    async with http_site.served(site, allowances.Limits(body_bytes=1_000_000)) as (_, port):
        await asyncio.to_thread(ask, port)
    assert site.bodies == []


async def test_chunks_without_end() -> None:
    """Nobody says beforehand how much it will be; what is over the limit is not kept."""
    head = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with http_site.asking(http_site.Site(), allowances.Limits(body_bytes=1000)) as raw:
        await raw.send(head + b"100\r\n" + b"x" * 256 + b"\r\n")
        for _ in range(10):
            await raw.send(b"100\r\n" + b"x" * 256 + b"\r\n")
        answer = await raw.answer()
        assert json.loads(answer[2]) == {"Error": "the request body is larger than 1000 bytes"}


async def test_trailers_without_end() -> None:
    """What follows the chunks is kept by the parser until it ends, so it has to end."""
    head = b"POST /echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: "
    async with http_site.asking(http_site.Site()) as raw:
        await raw.send(head)
        with contextlib.suppress(ConnectionError):
            for _ in range(40):
                await raw.send(b"y" * 10_000)
        answer = await raw.answer()
        assert answer[0] == 400
        assert json.loads(answer[2]) == {"error": "the chunks carry more overhead than data"}


async def test_few_large_bodies_are_in_memory_at_once() -> None:
    """The others wait, unread, and small ones do not wait for them."""
    bounds = allowances.Limits(small_bytes=1000, large_bodies=1, tick_s=0.01)
    large = http_site.post("/echo", b"x" * 600_000)
    site = http_site.Site()
    async with (
        http_site.served(site, bounds) as (_, port),
        http_site.connected(port) as first,
        http_site.connected(port) as second,
        http_site.connected(port) as small,
    ):
        await first.send(large[:300_000])
        await small.send(http_site.post("/echo", b"small"))
        assert (await small.answer())[2] == b"small"
        sending = asyncio.create_task(second.send(large))
        await small.send(http_site.post("/echo", b"small"))
        assert (await small.answer())[2] == b"small"
        assert b"x" * 600_000 not in site.bodies
        await first.send(large[300_000:])
        assert len((await first.answer())[2]) == 600_000
        assert len((await second.answer())[2]) == 600_000
        await sending


@pytest.mark.parametrize("leaves", [True, False], ids=["a client that leaves", "a slow client"])
async def test_a_seat_is_given_back(*, leaves: bool) -> None:
    """By a client that holds it and goes, or takes too long; the next one gets it."""
    bounds = allowances.Limits(small_bytes=1000, large_bodies=1, body_s=0.1, tick_s=0.01)
    large = http_site.post("/echo", b"x" * 5000)
    site = http_site.Site()
    async with http_site.served(site, bounds) as (_, port), http_site.connected(port) as second:
        async with http_site.connected(port) as first:
            await first.send(large[:4000])
            await first.send(b"x")
            await asyncio.sleep(0.02)
            await second.send(large[:4000])
            if not leaves:
                assert b"did not come" in (await first.answer())[2]
        await second.send(large[4000:])
        assert (await second.answer())[2] == b"x" * 5000
    assert site.bodies == [b"x" * 5000]


async def test_a_client_that_does_not_read() -> None:
    """It is asked nothing more, so its answers do not pile up, and it is thrown out."""
    site = http_site.Site()
    bounds = allowances.Limits(write_s=0.1, tick_s=0.01)
    async with http_site.served(site, bounds) as (server, port):
        with socket.create_connection(("127.0.0.1", port)) as unread:
            unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            unread.sendall(http_site.get("/large") * 50 + http_site.post("/echo", b"never"))
            async with http_site.connected(port) as other:
                await other.send(http_site.get("/fixed"))
                assert (await other.answer())[2] == b"fixed"
            await http_site.until(lambda: not server.connections)
    assert site.bodies == []


async def test_a_client_that_reads_slowly_gets_everything() -> None:
    """Having to wait for it is no reason to lose anything."""
    async with http_site.asking(http_site.Site()) as raw:
        await raw.send(http_site.get("/large") * 3 + http_site.get("/fixed"))
        for _ in range(3):
            assert len((await raw.answer())[2]) == 4 << 20
            await asyncio.sleep(0.01)
        assert (await raw.answer())[2] == b"fixed"


async def test_more_connections_than_there_may_be() -> None:
    """The client that was silent longest has to go; if all are busy, the last to come."""
    site = http_site.Site()
    bounds = allowances.Limits(connections=2, tick_s=0.01)
    async with (
        http_site.served(site, bounds) as (server, port),
        http_site.connected(port) as silent,
        http_site.connected(port) as busy,
    ):
        await busy.send(http_site.post("/later", b"a"))
        await site.begun.wait()
        async with http_site.connected(port) as new:
            await new.send(http_site.post("/later", b"b"))
            assert await silent.rest() == b""
            async with http_site.connected(port) as last:
                assert await last.rest() == b""
            assert len(server.connections) == 2
            site.go_on.set()
            assert (await busy.answer())[2] == b"later a"
            assert (await new.answer())[2] == b"later b"
