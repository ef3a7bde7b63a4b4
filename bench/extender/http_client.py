"""HTTP client: the least that a client can do on one connection that is kept.

The requests are made beforehand, as bytes; of an answer only its length is read. So the time is the
server's, the kernel's and that of one system call or two.
"""

from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator

_HOST = "127.0.0.1"
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_END = b"\r\n\r\n"


class Client:
    """One connection to a server whose process is known."""

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self._socket = socket.create_connection((_HOST, port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> bytes:
        """The body of the answer."""
        self._socket.sendall(request)
        head, _, body = self._receive_head().partition(_END)
        length = _LENGTH.search(head)
        assert length is not None, head
        assert head.startswith(b"HTTP/1.1 200"), head
        pieces, missing = [body], int(length[1]) - len(body)
        while missing > 0:
            pieces.append(self._socket.recv(1 << 18))
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def change(self) -> None:
        """One node of the server's mirror changes."""
        self.ask(_CHANGE)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def _receive_head(self) -> bytes:
        received = b""
        while _END not in received:
            piece = self._socket.recv(1 << 18)
            assert piece, "the server closed the connection"
            received += piece
        return received


class Cpu:
    """The processor time that the server takes for a request, by the kernel's account."""

    def __init__(self, client: Client) -> None:
        self._path = pathlib.Path(f"/proc/{client.pid}/schedstat")
        self._took_us: list[float] = []

    def during(self, work: Callable[[], object]) -> None:
        """Do something, and note what it took."""
        before_ns = self._read_ns()
        work()
        self._took_us.append((self._read_ns() - before_ns) / 1000)

    @property
    def median_us(self) -> float:
        """The usual time."""
        return statistics.median(self._took_us)

    def _read_ns(self) -> int:
        return int(self._path.read_text().split()[0])


@contextlib.contextmanager
def of_standalone_server(nodes: int, pods: int) -> Iterator[Client]:
    """A client of a server that stands by itself; see
    :mod:`bench.extender.standalone_server`."""
    command = [sys.executable, "-m", "bench.extender.standalone_server", str(nodes), str(pods)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        port = child.stdout.readline()
        client = Client(int(port), child.pid)
        try:
            yield client
        finally:
            client.close()
            child.stdin.close()


def request(path: str, body: bytes) -> bytes:
    """A request as kube-scheduler sends it."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {_HOST}\r\nUser-Agent: bench\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


_CHANGE = request("/change", b"")
