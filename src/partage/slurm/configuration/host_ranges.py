"""Host ranges: lists such as ``n[1-4,7],login`` as the names that they stand for.

Slurm writes node names and device files so. A range that names more than Slurm allows is an error,
before any of it is written out.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterator, Mapping

MOST_NAMES = 65536  # as in Slurm

_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_PARTS = re.compile(r"\[([^][]*)\]|([^][]+)")


class BadRange(ValueError):
    """A text that is no such list; it says why."""


@functools.lru_cache(maxsize=64)  # a file names the same nodes in many lines
def expanded(text: str) -> tuple[str, ...]:
    """All names, in order."""
    names: list[str] = []
    for item in _items(text):
        names.extend(_expanded_item(item, MOST_NAMES - len(names)))
    return tuple(names)


@functools.lru_cache(maxsize=16)
def positions(text: str) -> Mapping[str, int]:
    """Where each name is in the list, in small letters: to find one among thousands."""
    return {name.lower(): position for position, name in enumerate(expanded(text))}


def _items(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    items, depth = [""], 0
    for character in text:
        depth += {"[": 1, "]": -1}.get(character, 0)
        if depth not in (0, 1):
            raise BadRange(f"the brackets of {text[:80]!r} do not match")
        if character == "," and not depth:
            items.append("")
        else:
            items[-1] += character
    if depth:
        raise BadRange(f"the brackets of {text[:80]!r} do not match")
    return [item.strip() for item in items if item.strip()]


def _expanded_item(item: str, most: int) -> list[str]:
    choices = [
        [match[2]] if match[1] is None else list(_numbers(match[1], most))
        for match in _PARTS.finditer(item)
    ]
    total = 1
    for choice in choices:
        total *= len(choice)
    if total > most:
        raise BadRange(f"{item[:80]!r} names more than {MOST_NAMES}")
    return ["".join(parts) for parts in itertools.product(*choices)]


def _numbers(ranges: str, most: int) -> Iterator[str]:
    """The numbers of a pair of brackets; those with leading zeros keep them."""
    count = 0
    for text in ranges.split(","):
        match = _RANGE.fullmatch(text.strip())
        if match is None:
            raise BadRange(f"[{ranges[:80]}] is not a list of numbers")
        low, high = match[1], match[2] or match[1]
        count += max(0, int(high) - int(low) + 1)
        if int(high) < int(low):
            raise BadRange(f"{text.strip()} ends before it begins")
        if count > most:
            raise BadRange(f"[{ranges[:80]}] names more than {MOST_NAMES}")
        yield from (str(number).zfill(len(low)) for number in range(int(low), int(high) + 1))
