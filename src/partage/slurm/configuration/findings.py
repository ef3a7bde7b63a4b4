"""Findings about a configuration of Slurm: what is wrong in which line, and what to write there.

A note is worth knowing and breaks nothing today; a problem is to be put right.
"""

from __future__ import annotations

import enum

import msgspec

from partage.slurm.configuration import statements


class Severity(enum.StrEnum):
    """How serious it is."""

    NOTE = "note"
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One of them; ``line`` is 0 where it is about a whole file, or about what is not in it."""

    code: str  # stable, for programs
    severity: Severity
    file: str
    line: int
    problem: str
    remedy: str


def problem(code: str, place: statements.Place, text: str, remedy: str) -> Finding:
    """To be put right."""
    return _finding(code, Severity.PROBLEM, place, text, remedy)


def note(code: str, place: statements.Place, text: str, remedy: str) -> Finding:
    """Worth knowing."""
    return _finding(code, Severity.NOTE, place, text, remedy)


def _finding(
    code: str, severity: Severity, place: statements.Place, text: str, remedy: str
) -> Finding:
    return Finding(
        code=code,
        severity=severity,
        file=place.file,
        line=place.line,
        problem=text,
        remedy=remedy,
    )
