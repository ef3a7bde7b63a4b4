"""Requests that two readers could understand in two ways are refused, and end their connection."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.services.http import http_site

_NEXT = http_site.post("/echo", b"smuggled")
_CHUNKS = b"5\r\nhello\r\n0\r\n\r\n"


def _head(*lines: str) -> bytes:
    return "\r\n".join(("POST /echo HTTP/1.1", "Host: x", *lines, "", "")).encode()


REFUSED = {
    "two lengths": _head("Content-Length: 1", "Content-Length: 5") + b"hello",
    "twice the same length": _head("Content-Length: 5", "Content-Length: 5") + b"hello",
    "two lengths in one": _head("Content-Length: 5, 5") + b"hello",
    "length and chunks": _head("Content-Length: 5", "Transfer-Encoding: chunked") + _CHUNKS,
    "chunks and length": _head("Transfer-Encoding: chunked", "Content-Length: 5") + _CHUNKS,
    "length with a sign": _head("Content-Length: +5") + b"hello",
    "length below zero": _head("Content-Length: -5") + b"hello",
    "length in hexadecimal": _head("Content-Length: 0x5") + b"hello",
    "length out of all proportion": _head(f"Content-Length: {10**30}") + b"hello",
    "no length at all": _head("Content-Length:") + b"hello",
    "space before the colon": _head("Content-Length : 5") + b"hello",
    "chunks, twice": _head("Transfer-Encoding: chunked, chunked") + _CHUNKS,
    "chunks, not last": _head("Transfer-Encoding: chunked, gzip") + _CHUNKS,
    "not chunks": _head("Transfer-Encoding: identity") + b"hello",
    "chunks, hidden": _head("Transfer-Encoding: xchunked") + _CHUNKS,
    "chunks, on a folded line": _head("Transfer-Encoding:", " chunked") + _CHUNKS,
    "a chunk of no size": _head("Transfer-Encoding: chunked") + b"\r\nhello\r\n0\r\n\r\n",
    "a chunk of a negative size": _head("Transfer-Encoding: chunked") + b"-5\r\nhello\r\n0\r\n\r\n",
    "a chunk longer than it says": _head("Transfer-Encoding: chunked") + b"4\r\nhello\r\n0\r\n\r\n",
    "line ends without return": _head("Content-Length: 5").replace(b"\r\n", b"\n") + b"hello",
    "a return alone": b"POST /echo HTTP/1.1\r\nHost: x\rContent-Length: 5\r\n\r\nhello",
    "a zero in a header": _head("X: a\x00b", "Content-Length: 5") + b"hello",
    "a header without a colon": _head("X", "Content-Length: 5") + b"hello",
    "no version": b"POST /echo\r\nContent-Length: 5\r\n\r\nhello",
    "an old version": b"GET /fixed HTTP/0.9\r\n\r\n",
    "a version to come": b"GET /fixed HTTP/3.0\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": bytes.fromhex("160301020001000001fc0303"),
    "nothing of the kind": b"\x00\xff" * 200 + b"\r\n\r\n",
    "an upgrade with a body": _head("Connection: Upgrade", "Upgrade: h2c", "Content-Length: 5")
    + b"hello",
}


@pytest.mark.parametrize("request_", REFUSED.values(), ids=REFUSED.keys())
async def test_it_is_refused_and_nothing_after_it_is_read(request_: bytes) -> None:
    """Where its end lies is a matter of opinion, so the next one could be part of its body."""
    site = http_site.Site()
    async with http_site.asking(site) as raw:
        await raw.send(http_site.post("/echo", b"before") + request_ + _NEXT)
        raw.writer.write_eof()
        assert (await raw.answer())[2] == b"before"
        rest = await raw.rest()
    assert site.bodies == [b"before"], rest
    assert rest.count(b"Content-Type") <= 1
    assert rest[9:10] in (b"4", b"5", b""), rest


@hypothesis.settings(max_examples=150, deadline=None)
@hypothesis.given(
    garbage=st.binary(min_size=1, max_size=400)
    | st.text(st.sampled_from("GETPOS /echo:HTTP1.\r\n 0chunked"), max_size=200).map(str.encode)
)
async def test_garbage_never_breaks_the_server(garbage: bytes) -> None:
    """Whatever comes, who asks next on another connection is answered."""
    site = http_site.Site()
    async with http_site.served(site) as (_, port):
        async with http_site.connected(port) as raw:
            await raw.send(garbage)
            raw.writer.write_eof()
            await raw.rest()
        async with http_site.connected(port) as raw:
            await raw.send(http_site.get("/fixed"))
            assert (await raw.answer())[2] == b"fixed"
