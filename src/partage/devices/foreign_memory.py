"""What some processes have of a card, where a driver may not tell it of each of them.

NVML does not know the memory of every process (a display under WSL, a driver in a mode for one
purpose). What nobody else explains of the card's use is then theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from partage.core.quantities import MIB
from partage.devices import nvml


def held_mib(
    present: Iterable[nvml.Process], foreign: Collection[int], used_bytes: int | None
) -> int:
    """What the ``foreign`` of the processes on a card hold; ``used_bytes`` is in use there."""
    held: dict[bool, list[int | None]] = {True: [], False: []}
    for process in present:
        held[process.pid in foreign].append(process.used_bytes)
    theirs_mib = -(-sum(size or 0 for size in held[True]) // MIB)
    if None not in held[True]:
        return theirs_mib
    ours_bytes = sum(size or 0 for size in held[False])
    return max(theirs_mib, (used_bytes or 0) // MIB - ours_bytes // MIB)
