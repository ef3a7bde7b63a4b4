"""Lines out of a stream of bytes, for watches.

A watch is one JSON object a line, and the lines come cut anywhere. `StreamReader.readline` gives up
at a length that aiohttp chooses, and costs a call for each line; so chunks are taken as they come
and cut here. A line is bounded too, by what no object in etcd can reach.
"""

from __future__ import annotations

import collections
from collections.abc import AsyncIterator

from partage.kube import errors

LONGEST = 16 * 1024 * 1024  # bytes; etcd takes objects up to 1.5 MiB


class Cutter:
    """Cuts chunks into lines and keeps the rest for the next chunk."""

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest: list[bytes] = []  # joined once, at the end of the line
        self._rest_size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without empty ones."""
        first, *others = chunk.split(b"\n")
        self._keep(first)
        if not others:
            return []
        whole = [b"".join(self._rest), *others[:-1]]
        self._rest, self._rest_size = [], 0
        self._keep(others[-1])
        return [line for line in whole if line.strip()]

    def _keep(self, piece: bytes) -> None:
        self._rest.append(piece)
        self._rest_size += len(piece)
        if self._rest_size > self._longest:
            raise errors.BadAnswer(f"a line of more than {self._longest} bytes in a watch")


class Lines:
    """The lines of a stream, in order; ends where the stream ends.

    What follows the last newline is not handed out: it is a line that was cut off.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._cutter = Cutter()
        self._ready: collections.deque[bytes] = collections.deque()

    @property
    def waiting(self) -> int:
        """How many lines have been received and not been asked for."""
        return len(self._ready)

    def __aiter__(self) -> Lines:
        """Itself."""
        return self

    async def __anext__(self) -> bytes:
        """The next line."""
        while not self._ready:
            self._ready.extend(self._cutter.feed(await anext(self._chunks)))
        return self._ready.popleft()
