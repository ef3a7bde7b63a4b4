"""Connections: one client, its requests in order, its answers, and its end.

Requests are answered one after another. What answers at once is called in the step in which its
request came; what takes its time is a task, which goes on if the client leaves. While something is
under way reading goes on, so that a client that leaves is noticed, but only up to the next whole
request. A client that does not read its answers is not read either.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable
from typing import Protocol, cast

from partage.services.http import allowances, messages, parser, routes

log = logging.getLogger(__name__)

_FAILED = "internal error of Partage; see its log"
_HEAD = b"HEAD"


class Server(Protocol):
    """What a connection needs of its server: :class:`.servers.Server` is one."""

    site: routes.Routes
    bounds: allowances.Limits
    permits: allowances.Permits
    buffer: memoryview  # what is received is read out of it before anything else happens
    date: bytes
    ending: bool

    def arrived(self, connection: Connection) -> None:
        """A client has connected."""

    def left(self, connection: Connection) -> None:
        """A client has disconnected."""

    def start(self, coming: Awaitable[messages.Answer]) -> asyncio.Task[messages.Answer]:
        """Go on with an answer that takes its time."""


class Connection(asyncio.BufferedProtocol):
    """One client."""

    _transport: asyncio.Transport
    _reader: parser.Reader

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._open = False
        self._running: parser.Message | None = None
        self._untold = False  # its client may leave, and that was not told yet
        self._permitted = self._queueing = False
        self._reading = True
        self._full = False  # the client does not read
        self._deaf = False  # the client sends no more
        self._leaving = False  # the last answer is written
        self._turn: asyncio.Handle | None = None
        self.deadline_s = math.inf  # by time.perf_counter

    # -------------------------------------------------------------- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        self._open = True
        certified = bool(transport.get_extra_info("peercert"))
        server = self._server
        self._reader = parser.Reader(server.site, server.bounds, certified=certified)
        self._wait()
        server.arrived(self)

    def connection_lost(self, error: Exception | None) -> None:
        """The client has disconnected; what is under way goes on without it."""
        self._open = False
        self._reader.done.clear()
        self._give_up_permit()
        self._server.left(self)
        self._tell()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to put what comes."""
        return self._server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        if not self._leaving:
            self._reader.feed(self._server.buffer[:nbytes])
            self._go_on()

    def eof_received(self) -> bool:
        """The client sends no more; a client that gives up looks like this, too.

        It may still listen, so what it has asked is answered. With TLS it cannot.
        """
        self._deaf = True
        self._tell()
        busy = self._running is not None or bool(self._reader.done)
        return busy and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._full = True
        self._wait()

    def resume_writing(self) -> None:
        """It reads again."""
        self._full = False
        self._go_on()

    # ------------------------------------------------------------------ what the server calls

    @property
    def idle(self) -> bool:
        """Whether nothing is asked, nor being asked."""
        reader = self._reader
        return self._running is None and reader.now is None and not reader.done

    def expire(self, now_s: float) -> None:
        """End what has lasted too long."""
        if now_s < self.deadline_s:
            return
        now, bounds = self._reader.now, self._server.bounds
        if now is None or self._leaving or self._full:
            self._transport.abort()
        else:
            what, limit_s = ("body", bounds.body_s) if now.read_head else ("head", bounds.head_s)
            self._reader.give_up(408, f"the {what} did not come within {limit_s:g} s")
            self._go_on()

    def end(self) -> None:
        """Leave, as soon as what was asked is answered."""
        if self.idle:
            self._transport.close()

    def abort(self) -> None:
        """Leave at once."""
        self._transport.abort()

    def permit(self) -> None:
        """The large body that is being read may be read on."""
        self._queueing, self._permitted = False, True
        if self._reader.now is not None:
            self._reader.now.permitted = True
            self._reader.now.since_s = time.perf_counter()
        self._go_on()

    # ------------------------------------------------------------------------------ the work

    def _go_on(self) -> None:
        """Answer the next request if it is its turn, and see what to do until the next comes."""
        if self._turn is None and self._free() and self._reader.done:
            self._begin(self._reader.done.popleft())
            if self._reader.done and self._free():
                self._turn = self._loop.call_soon(self._next)  # after everybody else's
        if not self._leaving:
            if self._reader.now is not None:
                self._welcome(self._reader.now)
            self._wait()

    def _next(self) -> None:
        self._turn = None
        self._go_on()

    def _free(self) -> bool:
        """Whether another request can be answered."""
        if self._running is not None or self._full or self._leaving or not self._open:
            return False
        return not self._transport.is_closing()

    def _begin(self, message: parser.Message) -> None:
        answer = message.refusal or _called(message)
        if isinstance(answer, messages.Answer):
            self._reply(message, answer)
            return
        self._running, self._untold = message, True
        self._server.start(_outcome(message, answer)).add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[messages.Answer]) -> None:
        message, self._running = self._running, None
        if message is None or not self._open:
            return
        if task.cancelled():
            self._transport.abort()
            return
        self._reply(message, task.result())
        self._go_on()

    def _reply(self, message: parser.Message, answer: messages.Answer) -> None:
        if message.permitted or message.given_up:
            self._give_up_permit()
        last = message.close or self._server.ending or (self._deaf and not self._reader.done)
        bare = message.method == _HEAD
        self._transport.write(
            messages.encode(answer, date=self._server.date, close=last, bare=bare)
        )
        if last:
            self._leave(lingering=message.given_up)

    def _leave(self, *, lingering: bool) -> None:
        """Close; a client that is still sending gets time to stop and to read its answer."""
        bounds = self._server.bounds
        self._leaving = True
        self._reader.done.clear()
        self._set_reading(reading=True)
        self.deadline_s = time.perf_counter() + (bounds.linger_s if lingering else bounds.write_s)
        if not lingering:
            self._transport.close()
        elif self._transport.can_write_eof():
            self._transport.write_eof()

    def _welcome(self, now: parser.Message) -> None:
        """Get a permit for a large body, and ask for one that waits to be asked for."""
        if self._reader.needs_permit and not self._queueing and self._running is None:
            if self._server.permits.take(self):
                self._permitted = now.permitted = True
            else:
                self._queueing = True
        if now.expects and not self._queueing and self._running is None and not self._reader.done:
            now.expects = False
            self._transport.write(messages.CONTINUE)

    def _wait(self) -> None:
        """Read or not, and until when."""
        reader, bounds = self._reader, self._server.bounds
        held_up = self._full or self._queueing or reader.needs_permit
        self._set_reading(reading=not (held_up or reader.done))
        if self._full:
            self.deadline_s = time.perf_counter() + bounds.write_s
        elif self._running is not None or reader.done:
            self.deadline_s = math.inf
        elif reader.now is None:
            self.deadline_s = time.perf_counter() + bounds.idle_s
        else:
            limit_s = bounds.body_s if reader.now.read_head else bounds.head_s
            self.deadline_s = reader.now.since_s + limit_s

    def _set_reading(self, *, reading: bool) -> None:
        if reading is self._reading or self._deaf or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _give_up_permit(self) -> None:
        if self._queueing:
            self._server.permits.leave(self)
        if self._permitted:
            self._server.permits.give_back()
        self._queueing = self._permitted = False

    def _tell(self) -> None:
        """Report that a client disconnected before its answer."""
        running = self._running
        if running is not None and running.match is not None and self._untold:
            self._untold = False
            waited_s = time.perf_counter() - running.began_s
            self._server.site.gone(routes.Gone(running.match.route.path, waited_s))


def _called(message: parser.Message) -> messages.Answer | Awaitable[messages.Answer]:
    assert message.match is not None, "what is not refused has a route"
    route = message.match.route
    try:
        return route.handler(message.request())
    except Exception:
        # Whatever it is, it is our fault; the client needs an answer, and the process must live on.
        log.exception("%s failed", route.path)
        return route.failed(500, _FAILED)


async def _outcome(message: parser.Message, coming: Awaitable[messages.Answer]) -> messages.Answer:
    assert message.match is not None, "what is not refused has a route"
    route = message.match.route
    try:
        return await coming
    except Exception:
        log.exception("%s failed", route.path)
        return route.failed(500, _FAILED)
