"""The parser: bytes to requests, in order and within the limits. No I/O.

llhttp finds where a message ends, and refuses what can be understood in two ways: two lengths, a
length beside chunks, line ends where none belong. What it accepts is counted here, because a header
is kept until its end has come.

A request that is refused by its head is read to its end, without keeping any of it, and answered
then. One that is given up is answered at once, and it is the last on its connection.
"""

from __future__ import annotations

import time
from collections import deque

import httptools

from partage.services.http import allowances, messages, routes

_WASTE = 8  # bytes that a byte of a body in chunks may cost; a chunk of one byte costs six
_OF_THE_ROUTE = (408, 413)
_SPARE = 64 << 10  # and for what comes after the last chunk


class Message:
    """One request as it comes in."""

    __slots__ = (
        "began_s",
        "chunked",
        "close",
        "expects",
        "given_up",
        "head_bytes",
        "length",
        "match",
        "method",
        "parts",
        "permitted",
        "raw_bytes",
        "read_head",
        "refusal",
        "since_s",
        "size",
        "target",
    )

    def __init__(self) -> None:
        self.began_s = self.since_s = time.perf_counter()  # since_s: it is waited for since then
        self.method = self.target = b""
        self.head_bytes = self.raw_bytes = self.size = self.length = 0
        self.parts: list[bytes] = []
        self.match: routes.Match | None = None
        self.refusal: messages.Answer | None = None
        self.read_head = self.chunked = self.expects = self.permitted = False
        self.close = False  # whether the connection ends with it
        self.given_up = False  # whether the client may still be sending it

    def request(self) -> messages.Request:
        """What a handler gets; the pieces of the body are let go."""
        parts, self.parts = self.parts, []
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return messages.Request(body, self.match.arguments if self.match else (), self.began_s)

    def refuse(self, status: int, text: str) -> None:
        """Answer this in place of what was asked, and keep nothing.

        Of a body that is too large or too slow the route says so in its own form. What is wrong
        with the HTTP itself is said in HTTP's.
        """
        failed: messages.Failed = messages.failed
        if self.match is not None and status in _OF_THE_ROUTE:
            failed = self.match.route.failed
        self.refusal = failed(status, text)
        self.parts.clear()


class Reader:
    """The requests of one connection."""

    def __init__(self, site: routes.Routes, bounds: allowances.Limits, *, certified: bool) -> None:
        self._site = site
        self._bounds = bounds
        self._certified = certified
        self._parser = httptools.HttpRequestParser(self)
        self._ended = False  # nothing counts any more
        self.now: Message | None = None  # what is being read
        self.done: deque[Message] = deque()  # to be answered, in this order

    def feed(self, data: memoryview) -> None:
        """Take what came."""
        done = len(self.done)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ended = True  # what follows is not HTTP, and nothing else is supported
        except httptools.HttpParserError as error:
            self.give_up(400, f"this is not valid HTTP/1.1: {error}")
        if self.now is not None and len(self.done) == done:  # all of the data was its own
            self._count(self.now, len(data))

    def give_up(self, status: int, text: str) -> None:
        """Answer what is being read at once, as the last of all."""
        now, self.now = self.now or Message(), None
        if not self._ended:
            now.refuse(status, text)
            self._last(now)

    @property
    def needs_permit(self) -> bool:
        """Whether what is being read is large, and has no permit yet."""
        now, small = self.now, self._bounds.small_bytes
        if now is None or now.permitted or now.refusal is not None:
            return False
        return now.length > small or now.size > small

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        self.now = None if self._ended else Message()

    def on_url(self, piece: bytes) -> None:
        """The target, or a piece of it."""
        if self.now is not None:
            self.now.target += piece
            self.now.head_bytes += len(piece)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer after a body in chunks, which nobody needs."""
        now = self.now
        if now is None or now.read_head:
            return
        now.head_bytes += len(name) + len(value) + 4
        match name.lower():
            case b"content-length":
                now.length = int(value)
            case b"transfer-encoding":
                now.chunked = True
                if value.strip().lower() != b"chunked":
                    now.refuse(501, "the only transfer encoding that is supported is chunked")
            case b"expect":
                now.expects = value.strip().lower() == b"100-continue"

    def on_headers_complete(self) -> None:
        """All but the body is known."""
        now, parser = self.now, self._parser
        if now is None:
            return
        now.read_head = True
        now.method = parser.get_method()
        version = parser.get_http_version()
        now.close = version != "1.1" or not parser.should_keep_alive()
        if now.head_bytes > self._bounds.head_bytes:
            self._head_too_long()
        elif version not in ("1.1", "1.0"):
            self.give_up(505, "only HTTP/1.1 is supported")
        elif parser.should_upgrade() and (now.length or now.chunked):
            # Where its body ends is not known.
            self.give_up(501, "only HTTP/1.1 is supported; upgrades are not")
        else:
            self._decide(now)

    def on_body(self, piece: bytes) -> None:
        """The body, or a piece of it."""
        now = self.now
        if now is None:
            return
        now.size += len(piece)
        if now.refusal is None and now.match is not None and now.match.route.takes_body:
            now.parts.append(piece)
        if now.size > self._bounds.body_bytes:
            self._body_too_large()

    def on_message_complete(self) -> None:
        """A request is whole."""
        now, self.now = self.now, None
        if now is not None:
            self.done.append(now)
            self._ended = self._ended or now.close

    def _decide(self, now: Message) -> None:
        """Find the route; or what is answered, if there is none."""
        answer = self._site.find(now.method, now.target)
        closed = self._site.certified and not self._certified
        if closed and not (isinstance(answer, routes.Match) and answer.route.open):
            now.refuse(401, "a client certificate of the configured CA is required")
        elif isinstance(answer, routes.Match):
            now.match = answer
        elif now.refusal is None:
            now.refusal = answer
        if now.length > self._bounds.body_bytes:
            self._body_too_large()
        elif now.refusal is not None and now.expects:
            self.now = None  # its body is not requested, so it does not come
            self._last(now)

    def _last(self, now: Message) -> None:
        self._ended = now.close = now.given_up = True
        self.done.append(now)

    def _count(self, now: Message, more: int) -> None:
        """What the parser keeps of a head that does not end, or of what follows the chunks."""
        now.raw_bytes += more
        if not now.read_head and now.raw_bytes > self._bounds.head_bytes:
            self._head_too_long()
        elif now.chunked and now.raw_bytes > _WASTE * now.size + _SPARE:
            self.give_up(400, "the chunks carry more overhead than data")

    def _head_too_long(self) -> None:
        self.give_up(431, f"the request head is larger than {self._bounds.head_bytes} bytes")

    def _body_too_large(self) -> None:
        self.give_up(413, f"the request body is larger than {self._bounds.body_bytes} bytes")
