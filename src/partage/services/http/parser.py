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
        "found",
        "given_up",
        "head_bytes",
        "length",
        "method",
        "parts",
        "raw_bytes",
        "read_head",
        "refusal",
        "seated",
        "since_s",
        "size",
        "target",
    )

    def __init__(self) -> None:
        self.began_s = self.since_s = time.perf_counter()  # since_s: it is waited for since then
        self.method = self.target = b""
        self.head_bytes = self.raw_bytes = self.size = self.length = 0
        self.parts: list[bytes] = []
        self.found: routes.Found | None = None
        self.refusal: messages.Answer | None = None
        self.read_head = self.chunked = self.expects = self.seated = False
        self.close = False  # whether the connection ends with it
        self.given_up = False  # whether the client may still be sending it

    def request(self) -> messages.Request:
        """What a handler gets; the pieces of the body are let go."""
        parts, self.parts = self.parts, []
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return messages.Request(body, self.found.arguments if self.found else (), self.began_s)

    def refuse(self, status: int, text: str) -> None:
        """Answer this in place of what was asked, and keep nothing.

        Of a body that is too large or too slow the route says so in its own form. What is wrong
        with the HTTP itself is said in HTTP's.
        """
        failed: messages.Failed = messages.failed
        if self.found is not None and status in _OF_THE_ROUTE:
            failed = self.found.route.failed
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
            self._ended = True  # what follows is no HTTP, and nobody here speaks anything else
        except httptools.HttpParserError as error:
            self.give_up(400, f"this is not HTTP/1.1 as it should be: {error}")
        if self.now is not None and len(self.done) == done:  # all of the data was its own
            self._count(self.now, len(data))

    def give_up(self, status: int, text: str) -> None:
        """Answer what is being read at once, as the last of all."""
        now, self.now = self.now or Message(), None
        if not self._ended:
            now.refuse(status, text)
            self._last(now)

    @property
    def needs_seat(self) -> bool:
        """Whether what is being read is large, and has no seat yet."""
        now, small = self.now, self._bounds.small_bytes
        if now is None or now.seated or now.refusal is not None:
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
                    now.refuse(501, "no transfer encoding but chunked is understood")
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
            self.give_up(505, "HTTP/1.1 is spoken here")
        elif parser.should_upgrade() and (now.length or now.chunked):
            self.give_up(501, "HTTP/1.1 is spoken here, and nothing else")  # its body is not told
        else:
            self._decide(now)

    def on_body(self, piece: bytes) -> None:
        """The body, or a piece of it."""
        now = self.now
        if now is None:
            return
        now.size += len(piece)
        if now.refusal is None and now.found is not None and now.found.route.takes_body:
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
        """Who answers; or what is answered, if nobody does."""
        found = self._site.find(now.method, now.target)
        closed = self._site.certified and not self._certified
        if closed and not (isinstance(found, routes.Found) and found.route.open):
            now.refuse(401, "show a certificate of the client CA")
        elif isinstance(found, routes.Found):
            now.found = found
        elif now.refusal is None:
            now.refusal = found
        if now.length > self._bounds.body_bytes:
            self._body_too_large()
        elif now.refusal is not None and now.expects:
            self.now = None  # nobody asks for its body, so it does not come
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
            self.give_up(400, "there is more around the chunks than in them")

    def _head_too_long(self) -> None:
        self.give_up(431, f"the head has more than {self._bounds.head_bytes} bytes")

    def _body_too_large(self) -> None:
        self.give_up(413, f"the body has more than {self._bounds.body_bytes} bytes")
