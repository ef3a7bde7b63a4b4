"""Write queue: which objects are to be written, each once, and the nodes in turn.

It holds names and no contents. What is written is computed when an object's turn has come, so that
many changes while it waits are one write. Of a node one object is under way at a time, and its next
one comes after one of every other node: a node with many changes does not keep others waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque

from partage.scheduler.gpu_objects import card_objects


class WriteQueue:
    """The names of objects, by node."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, None]] = {}  # by node
        self._turns: deque[str] = deque()  # nodes with names, of which none is under way
        self._under_way: set[str] = set()  # nodes
        self._filled = asyncio.Event()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, name: str) -> None:
        """An object is to be written; if it waits already, that is enough."""
        node = card_objects.node_of(name)
        names = self._names.setdefault(node, {})
        if name in names:
            return
        if not names and node not in self._under_way:
            self._give_turn(node)
        names[name] = None
        self._count += 1

    async def next(self) -> str:
        """The name of the object whose turn it is; :meth:`done` has to follow."""
        while not self._turns:
            self._filled.clear()
            await self._filled.wait()
        node = self._turns.popleft()
        self._under_way.add(node)
        name = next(iter(self._names[node]))
        del self._names[node][name]
        self._count -= 1
        return name

    def done(self, name: str) -> None:
        """It is written, or not; the next object of its node may come."""
        node = card_objects.node_of(name)
        self._under_way.discard(node)
        if self._names[node]:
            self._give_turn(node)
        else:
            del self._names[node]

    def _give_turn(self, node: str) -> None:
        self._turns.append(node)
        self._filled.set()
