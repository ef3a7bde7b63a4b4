"""Groups: one finding for all objects with which the same is wrong.

A cluster has thousands of objects, and a table that people read has room for a handful of names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from partage.local.doctor import findings

SHOWN = 5


def note(kind: str, names: Iterable[str], text: str, remedy: str) -> findings.Finding:
    """Worth knowing of all of them."""
    return _grouped(findings.Status.NOTE, kind, sorted(names), text, remedy)


def problem(kind: str, names: Iterable[str], text: str, remedy: str) -> findings.Finding:
    """To be put right with all of them."""
    return _grouped(findings.Status.PROBLEM, kind, sorted(names), text, remedy)


def counted(count: int, kind: str) -> str:
    """How many, in words."""
    return f"{count:,} {kind}" if count == 1 else f"{count:,} {kind}s"


def listed(names: Sequence[str]) -> str:
    """The first few names, and how many there are besides."""
    if len(names) <= SHOWN:
        return ", ".join(names)
    return f"{', '.join(names[:SHOWN])} and {len(names) - SHOWN:,} more"


def _grouped(
    status: findings.Status, kind: str, names: Sequence[str], text: str, remedy: str
) -> findings.Finding:
    if len(names) == 1:
        return findings.Finding(f"{kind} {names[0]}", status, text, remedy, tuple(names))
    said = f"{text}: {listed(names)}"
    return findings.Finding(counted(len(names), kind), status, said, remedy, tuple(names))
