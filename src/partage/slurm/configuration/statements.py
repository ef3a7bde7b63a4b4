"""Statements of Slurm's configuration files: from text to keys and values, as Slurm reads them.

Keys are compared without regard to case, ``#`` begins a comment unless a backslash stands before
it, a backslash at the end of a line joins the next one to it, and a value with blanks is quoted. A
key that is given twice has its last value. This is pure; :mod:`.config_files` reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_ESCAPED = re.compile(r"\\([\\#])")
_PAIR = re.compile(r"\s*([\w./-]+)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|([^\s\"]\S*))(?=\s|$)", re.ASCII)
_INCLUDE = re.compile(r"include\s+(\S.*)", re.IGNORECASE)

# Statements with one of these are about some nodes or jobs, and not about all.
_PARTIAL = {"nodename", "partitionname", "nodeset", "downnodes", "frontendname"}


class Place(msgspec.Struct, frozen=True):
    """Where something is written; line 0 is the file as a whole."""

    file: str
    line: int = 0


class Statement(msgspec.Struct, frozen=True):
    """One logical line."""

    place: Place
    text: str
    pairs: dict[str, str]  # its values by key, in small letters
    unreadable: str  # what is neither a key nor a value

    @property
    def included(self) -> str | None:
        """The file that it includes, if that is what it does."""
        match = _INCLUDE.fullmatch(self.text)
        return match[1].strip().strip('"') if match else None

    def get(self, key: str) -> str | None:
        """A value."""
        return self.pairs.get(key.lower())


class Document(msgspec.Struct, frozen=True):
    """The statements of a file and of all that it includes, in order."""

    path: str
    statements: tuple[Statement, ...] = ()

    @property
    def place(self) -> Place:
        """The file as a whole."""
        return Place(self.path)

    def setting(self, key: str) -> tuple[str, Place]:
        """The last value of a key for all; empty and the whole file, if nobody gives it one."""
        said = [
            (value, statement.place)
            for statement in self.statements
            if (value := statement.get(key)) is not None and not _PARTIAL & statement.pairs.keys()
        ]
        return said[-1] if said else ("", self.place)

    def with_key(self, key: str) -> list[Statement]:
        """The statements that have the key."""
        return [statement for statement in self.statements if statement.get(key) is not None]


def of_text(file: str, text: str) -> Iterator[Statement]:
    """The statements of a text, those that include others among them."""
    begun, parts = 0, list[str]()
    for number, line in enumerate(text.split("\n"), start=1):
        begun = begun or number
        bare = _COMMENT.sub(r"\1", line).rstrip()
        if _CONTINUED.search(bare):
            parts.append(bare[:-1])
            continue
        whole = _ESCAPED.sub(r"\1", "".join([*parts, bare])).strip()
        if whole:
            yield _statement(Place(file, begun), whole)
        begun, parts = 0, []
    if rest := "".join(parts).strip():
        yield _statement(Place(file, begun), rest)


def words(value: str) -> list[str]:
    """The parts of a value with commas, in small letters."""
    return [part.strip().lower() for part in value.split(",") if part.strip()]


def _statement(place: Place, text: str) -> Statement:
    """Read once, as it is asked often."""
    return Statement(
        place=place,
        text=text,
        pairs={match[1].lower(): _value(match) for match in _PAIR.finditer(text)},
        unreadable=" ".join(_PAIR.sub(" ", text).split()),
    )


def _value(match: re.Match[str]) -> str:
    return match[3] if match[2] is None else match[2]
