"""Messages: what is asked, what is answered, and an answer as bytes."""

from __future__ import annotations

import email.utils
import functools
import http
from collections.abc import Awaitable, Callable

import msgspec

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Request(msgspec.Struct, frozen=True):
    """One request, complete."""

    body: bytes
    arguments: tuple[str, ...]  # the values of the parameters of its route
    began_s: float  # when its first byte came, by time.perf_counter


class Answer(msgspec.Struct, frozen=True):
    """What goes back."""

    body: bytes
    status: int = 200
    content_type: str = JSON
    allow: str = ""  # the methods that would have been answered


Handler = Callable[[Request], Answer | Awaitable[Answer]]
Failed = Callable[[int, str], Answer]


def failed(status: int, text: str) -> Answer:
    """The answer to a request that failed."""
    return Answer(msgspec.json.encode({"error": text}), status)


def encode(answer: Answer, *, date: bytes, close: bool, bare: bool) -> bytes:
    """An answer as bytes; ``close``: the last on its connection, ``bare``: without its body."""
    head = _head(answer.status, answer.content_type, answer.allow)
    last = b"\r\nConnection: close\r\n\r\n" if close else b"\r\n\r\n"
    body = b"" if bare else answer.body
    return b"%bContent-Length: %d\r\nDate: %b%b%b" % (head, len(answer.body), date, last, body)


def date(now_s: float) -> bytes:
    """A moment as HTTP writes it."""
    return email.utils.formatdate(now_s, usegmt=True).encode()


@functools.lru_cache(maxsize=64)
def _head(status: int, content_type: str, allow: str) -> bytes:
    words = http.HTTPStatus(status).phrase
    allowed = f"Allow: {allow}\r\n" if allow else ""
    return f"HTTP/1.1 {status} {words}\r\nContent-Type: {content_type}\r\n{allowed}".encode()
