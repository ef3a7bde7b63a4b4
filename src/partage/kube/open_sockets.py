"""The open sockets of a client, to be closed when the client is closed.

A TLS connection that is given up says goodbye first and then waits up to half a minute for the
server's goodbye; aiohttp does not wait with it, and forgets it. Should the event loop end
meanwhile, its socket is left open and found by the garbage collector, somewhere else and much
later. So we remember our sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiohttp import AddrInfoType

_TURNS = 100  # of the event loop; a transport needs three or four to see its end


class Sockets:
    """The sockets of one client, which has a factory of them for aiohttp's connector."""

    def __init__(self) -> None:
        self._made: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def made(self, address: AddrInfoType) -> socket.socket:
        """A new one, not yet connected."""
        family, kind, protocol, *_ = address
        new = socket.socket(family, kind, protocol)
        self._made.add(new)
        return new

    async def close(self) -> None:
        """End those that still wait for the server, and see their transports close them."""
        for unclosed in self._open():
            with contextlib.suppress(OSError):  # never connected, or reset by the server
                unclosed.shutdown(socket.SHUT_RDWR)
        for _ in range(_TURNS):
            if not self._open():
                return
            await asyncio.sleep(0)

    def _open(self) -> list[socket.socket]:
        return [made for made in self._made if made.fileno() != -1]
