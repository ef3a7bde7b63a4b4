"""Every way to take memory of a card, each with its way to give it back.

A way is a function that takes so many bytes and returns what gives them back, named after the calls
it makes. Ways run in a program of `client`, behind the fence or not; tests read only their names.
"""

from __future__ import annotations

import os
import random
import select

from tests.native import ways_arrays, ways_contexts
from tests.native.client import Refused, answer, call
from tests.native.ways_graphs import InstantiateParameters, graph, instantiated, nested
from tests.native.ways_memory import PTX
from tests.native.ways_physical import addresses, physical
from tests.native.ways_pools import pool, stream_pointer
from tests.native.ways_table import CONTEXTS, STEP, UNCOUNTED, WAYS, Give

__all__ = [  # what a program may be told to use
    "CONTEXTS",
    "PTX",
    "UNCOUNTED",
    "WAYS",
    "InstantiateParameters",
    "addresses",
    "answers",
    "give_back",
    "graph",
    "instantiated",
    "nested",
    "physical",
    "pool",
    "soak",
    "stream_pointer",
    "take",
    "take_all",
    "ways_arrays",
    "ways_contexts",
]

OUT_OF_MEMORY = 2

_taken: list[Give] = []


def take(name: str, size: int) -> None:
    """Take memory."""
    _taken.append((WAYS | CONTEXTS | UNCOUNTED)[name](size))


def give_back() -> None:
    """Give back what the last `take` took."""
    _taken.pop()()


def take_all(size: int = 8 * STEP) -> None:
    """Take memory in every way, and give it back."""
    for name in WAYS:
        take(name, size)
        give_back()


def soak(seed: int, most: int, tally: str) -> None:
    """Take memory in random ways and sizes and give it back, until told something.

    Not by loading code, whose memory is measured while others allocate and free beside it. The
    tally grows by a byte whenever something is taken, so that those who are killed count too.
    """
    chance = random.Random(seed)
    strokes = os.open(tally, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    held: list[Give] = []
    exact = [name for name in (*WAYS, *CONTEXTS) if not name.startswith(("cuModule", "cuLibrary"))]
    while not select.select([0], [], [], 0)[0]:
        if len(held) > 6 or (held and chance.random() < 0.5):
            held.pop(chance.randrange(len(held)))()
        name = chance.choice(exact)
        try:
            give = (WAYS | CONTEXTS)[name](2 * STEP * chance.randint(1, most // STEP // 2))
        except Refused as refused:
            if refused.code != OUT_OF_MEMORY:
                raise
            continue
        os.write(strokes, b"|")
        if name in CONTEXTS:
            give()
        else:
            held.append(give)
    for give in held:
        give()
    call("cuCtxSynchronize")
    call("cuDeviceGraphMemTrim", 0)
    os.close(strokes)


def answers(*names: str) -> list[int]:
    """The results of calls without arguments worth mentioning: everything is NULL or 0."""
    return [answer(name, *(0,) * 10) for name in names]
