"""What any client may do: keep a connection, send ahead, send in chunks, ask before sending."""

from __future__ import annotations

import asyncio
import http.client
import json
import shutil
import subprocess
from pathlib import Path

import aiohttp
import hypothesis
import pytest
from hypothesis import strategies as st

from partage.services.http import allowances
from tests.leaving_out import leave_out
from tests.services.http import http_site


async def test_many_requests_on_one_connection() -> None:
    """A client of the standard library asks again and again, and is answered each time."""

    def ask(port: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        for size in (0, 1, 3000, 100_000, 1_000_000, 7):
            connection.request("POST", "/echo", b"x" * size)
            answer = connection.getresponse()
            assert (answer.status, answer.read()) == (200, b"x" * size)
            assert answer.headers["Date"]
        own = connection.sock
        connection.request("GET", "/fixed")
        assert connection.getresponse().read() == b"fixed"
        assert connection.sock is own
        connection.close()

    async with http_site.served(http_site.Site()) as (_, port):
        await asyncio.to_thread(ask, port)


async def test_a_hundred_requests_sent_ahead() -> None:
    """All are answered, in their order, and others are answered meanwhile."""
    site = http_site.Site()
    bodies = [f"{number}".encode() for number in range(100)]
    async with http_site.served(site) as (_, port), http_site.connected(port) as raw:
        await raw.send(b"".join(http_site.post("/echo", body) for body in bodies))
        async with http_site.connected(port) as other:
            await other.send(http_site.get("/fixed"))
            assert (await other.answer())[2] == b"fixed"
        assert [(await raw.answer())[2] for _ in bodies] == bodies
    assert site.bodies == bodies


async def test_a_quick_request_waits_for_the_slow_one_before_it() -> None:
    """Order is what tells a client which answer is which."""
    site = http_site.Site()
    async with http_site.asking(site) as raw:
        await raw.send(http_site.post("/later", b"a") + http_site.post("/echo", b"b"))
        await raw.send(http_site.post("/later", b"c") + http_site.get("/fixed"))
        await site.begun.wait()
        assert site.bodies == []
        site.go_on.set()
        answers = [(await raw.answer())[2] for _ in range(4)]
        assert answers == [b"later a", b"b", b"later c", b"fixed"]


async def test_a_request_may_come_in_pieces_of_any_size() -> None:
    """Bytes come as the network likes."""
    site = http_site.Site()
    async with http_site.asking(site) as raw:
        for byte in http_site.post("/echo", b"body"):
            await raw.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await raw.answer())[2] == b"body"


@hypothesis.settings(max_examples=40, deadline=None)
@hypothesis.given(
    bodies=st.lists(st.binary(max_size=300), min_size=1, max_size=8),
    cuts=st.lists(st.integers(1, 200), min_size=1, max_size=20),
    chunked=st.booleans(),
)
def test_any_bodies_cut_anywhere(bodies: list[bytes], cuts: list[int], *, chunked: bool) -> None:
    """What arrives is what was sent, however it was cut and whichever way its length is told."""
    make = _in_chunks if chunked else lambda body: http_site.post("/echo", body)

    async def ask() -> list[bytes]:
        async with http_site.asking(http_site.Site()) as raw:
            stream, at = b"".join(map(make, bodies)), 0
            for cut in cuts:
                await raw.send(stream[at : at + cut])
                at += cut
                await asyncio.sleep(0)
            await raw.send(stream[at:])
            return [(await raw.answer())[2] for _ in bodies]

    assert asyncio.run(ask()) == bodies


def _in_chunks(body: bytes) -> bytes:
    pieces = [body[i : i + 7] for i in range(0, len(body), 7)]
    chunks = b"".join(b"%x;note=1\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    head = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + chunks + b"0\r\nTrailer: unread\r\n\r\n"


async def test_a_body_of_unknown_length() -> None:
    """A client that streams sends chunks."""

    async def pieces() -> object:
        for _ in range(3):
            yield b"piece"

    site = http_site.Site()
    async with http_site.served(site) as (_, port), aiohttp.ClientSession() as session:
        for _ in range(2):
            url = f"http://127.0.0.1:{port}/echo"
            async with session.post(url, data=pieces()) as answer:
                assert await answer.read() == b"piecepiecepiece"


async def test_a_client_that_asks_before_it_sends() -> None:
    """It is told to go on; or why not, and then its body never comes."""
    bounds = allowances.Limits(body_bytes=1000)
    site = http_site.Site()
    async with http_site.served(site, bounds) as (_, port):
        async with http_site.connected(port) as raw:
            head, _, body = http_site.post("/echo", b"body", "Expect: 100-continue").partition(
                b"\r\n\r\n"
            )
            await raw.send(head + b"\r\n\r\n")
            assert await raw.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await raw.send(body)
            assert (await raw.answer())[2] == b"body"
        for path, length, status in (("/echo", 1001, 200), ("/nowhere", 4, 404)):
            async with http_site.connected(port) as raw:
                head = http_site.post(path, b"x" * length, "Expect: 100-continue")
                await raw.send(head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n")
                answer = await raw.answer()
                assert answer[0] == status
                assert answer[1]["connection"] == "close"
                assert await raw.rest() == b""


async def test_paths_and_methods_that_are_not_served() -> None:
    """404, 405 with the methods that are, and HEAD wherever GET is."""
    async with http_site.asking(http_site.Site()) as raw:
        for method, path, status, allow in (
            ("GET", "/nowhere", 404, None),
            ("GET", "/fixed/", 404, None),
            ("GET", "/fixed?query=1", 200, None),
            ("GET", "http://x/fixed", 200, None),
            ("GET", "/echo", 405, "post"),
            ("DELETE", "/echo", 405, "post"),
            ("POST", "/fixed", 405, "get"),
            ("POST", "/said/a/b", 405, "get"),
            ("OPTIONS", "*", 404, None),
        ):
            await raw.send(http_site.get(path, method=method))
            answer = await raw.answer()
            assert (answer[0], answer[1].get("allow")) == (status, allow), path
        await raw.send(http_site.get("/fixed", method="HEAD") + http_site.get("/fixed"))
        head = await raw.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"Content-Length: 5\r\n" in head
        assert (await raw.answer())[2] == b"fixed"


async def test_places_in_a_path() -> None:
    """Each is one segment; what is escaped in it does not divide it."""
    async with http_site.asking(http_site.Site()) as raw:
        for path, said in (
            ("/said/a/b", ["a", "b"]),
            ("/said/%2e%2e/a%2Fb", ["..", "a/b"]),
            ("/said/%C3%A9/x?y=1", ["é", "x"]),
            ("/said/a/b/c", None),
            ("/said//b", None),
            ("/said/%ff/b", None),
        ):
            await raw.send(http_site.get(path))
            status, _, body = await raw.answer()
            assert (status == 200) == (said is not None), path
            assert said is None or json.loads(body) == said


@pytest.mark.parametrize(
    ("path", "method"), [("/broken", "sync"), ("/broken-later", "in a task")], ids=lambda name: name
)
async def test_a_handler_that_raises(path: str, method: str) -> None:
    """Its route says so in its own form, and the connection goes on."""
    async with http_site.asking(http_site.Site()) as raw:
        await raw.send(http_site.post(path, b"") + http_site.post("/echo", b"next"))
        status, _, body = await raw.answer()
        expected = {"Error": "internal error of Partage; see its log"}
        assert (status, json.loads(body)) == (200, expected)
        assert (await raw.answer())[2] == b"next"


async def test_the_last_request_of_a_connection() -> None:
    """A client that says so, or that speaks HTTP/1.0, is answered and the connection closed."""
    for request in (
        http_site.post("/echo", b"x", "Connection: close"),
        b"POST /echo HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
        b"POST /echo HTTP/1.0\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\nx",
    ):
        async with http_site.asking(http_site.Site()) as raw:
            await raw.send(request)
            status, headers, body = await raw.answer()
            assert (status, headers["connection"], body) == (200, "close", b"x")
            assert await raw.rest() == b""


async def test_curl(tmp_path: Path) -> None:
    """Small, large (which curl announces first), in chunks, HEAD, and an offer to upgrade."""
    if not shutil.which("curl"):
        leave_out("curl", "it is not installed")
    large = tmp_path / "large"
    large.write_bytes(b"x" * (3 << 20))

    def curl(*args: str) -> bytes:
        command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "20", *args]
        return subprocess.run(command, check=True, capture_output=True).stdout

    def ask(url: str) -> None:
        assert curl(f"{url}/echo", "--data", "abc") == b"abc"
        assert curl(f"{url}/echo", "--data-binary", f"@{large}") == large.read_bytes()
        in_chunks = ("-H", "Transfer-Encoding: chunked", "--data-binary", f"@{large}")
        assert curl(f"{url}/echo", *in_chunks) == large.read_bytes()
        assert b"Content-Length: 5" in curl("--head", f"{url}/fixed")
        assert curl("--http2", f"{url}/fixed") == b"fixed"
        assert curl(f"{url}/fixed", f"{url}/fixed") == b"fixedfixed"

    async with http_site.served(http_site.Site()) as (_, port):
        await asyncio.to_thread(ask, f"http://127.0.0.1:{port}")
