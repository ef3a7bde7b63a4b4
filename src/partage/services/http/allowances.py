"""Allowances: how much a client may send, and how long it may take.

A client that connects takes memory and time, even without a certificate. Nothing here is a limit
for kube-scheduler: its bodies are small, whole and sent at once.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import msgspec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """All allowances of a server."""

    connections: int = 512
    head_bytes: int = 16 << 10
    body_bytes: int = 32 << 20
    small_bytes: int = 256 << 10  # a body up to this needs no permit
    large_bodies: int = 8  # permits
    head_s: float = 5.0
    body_s: float = 5.0
    idle_s: float = 120.0  # Go closes after 90 s and has to be first: it repeats no POST
    write_s: float = 30.0  # that a client may leave an answer unread
    linger_s: float = 5.0  # for a client to read a last answer while it is still sending
    handshake_s: float = 10.0
    grace_s: float = 5.0  # for requests that are under way at the end
    tick_s: float = 0.5  # between two looks at the times above


class Receiver(Protocol):
    """What receives a large body, or waits for the permit to do so."""

    def permit(self) -> None:
        """It may read on."""


class Permits:
    """How many large bodies are in memory at once; the others are not read meanwhile."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Receiver] = deque()

    def take(self, receiver: Receiver) -> bool:
        """Whether there is one now; if not, it is given as soon as there is."""
        if self._free:
            self._free -= 1
            return True
        self._waiting.append(receiver)
        return False

    def leave(self, receiver: Receiver) -> None:
        """Stop waiting for a permit."""
        if receiver in self._waiting:
            self._waiting.remove(receiver)

    def give_back(self) -> None:
        """A permit is free for the next."""
        if self._waiting:
            self._waiting.popleft().permit()
        else:
            self._free += 1
