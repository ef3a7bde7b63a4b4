"""The hub: a network namespace that lives as long as this process, and a way into it.

Run as a script: ``hub.py FOLDER ADDRESS PORT...``; by the folder others know whose it is. The
namespace is not connected to the machine's network. Instead, who connects to one of the ports on
the machine's loopback interface is connected to the same port in there: a socket stays in the
namespace in which it was made, so one process can listen in one and connect in the other. When the
process ends, in whatever way, and all others in there have, the kernel removes the namespace with
its interfaces, routes and tables.

Ports for connections of its own are chosen from a range in which nobody listens on purpose.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import socket
import subprocess
import sys
from pathlib import Path

_LOOPBACK = "127.0.0.1"
_NEW_NETWORK = 0x40000000  # from linux/sched.h
_PIECE = 1 << 16  # bytes
_SETTINGS = {"ip_forward": "1", "ip_local_port_range": "10000 20000"}


def main(address: str, ports: list[int]) -> None:
    """Make the namespace, then listen: whoever can connect finds all of it made."""
    listeners = {port: _bound(port) for port in ports}
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        sys.exit(f"hub: unshare: {os.strerror(ctypes.get_errno())}")
    for name, value in _SETTINGS.items():
        Path("/proc/sys/net/ipv4", name).write_text(value)
    _ip("link", "set", "lo", "up")
    _ip("address", "add", f"{address}/32", "dev", "lo")
    asyncio.run(_serve(listeners))


def _bound(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # somebody keeps it for us
    listener.bind((_LOOPBACK, port))
    return listener


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


async def _serve(listeners: dict[int, socket.socket]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for port, listener in listeners.items():
            await stack.enter_async_context(await _passing(port, listener))
        await asyncio.Event().wait()


async def _passing(port: int, listener: socket.socket) -> asyncio.Server:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection(_LOOPBACK, port)
            with contextlib.closing(inner_writer):
                await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    return await asyncio.start_server(connected, sock=listener)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    writer.write_eof()


if __name__ == "__main__":
    main(sys.argv[2], [int(word) for word in sys.argv[3:]])
