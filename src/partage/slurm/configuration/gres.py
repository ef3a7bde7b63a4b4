"""Generic resources (gres) of nodes: what slurm.conf says of them, and what gres.conf says.

slurm.conf has sums, such as ``gpu:a30:2,shard:48``; gres.conf says which files they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from partage.slurm.configuration import host_ranges, statements

GPU, SHARD, MPS = "gpu", "shard", "mps"
SHARINGS = (SHARD, MPS)
SHARED_BY_ALL = "all_sharing"

_COUNT = re.compile(r"(\d{1,15})([kmgtp]?)", re.IGNORECASE | re.ASCII)
_DETAIL = re.compile(r"\([^)]*\)")  # sockets, indices: not what is counted here
_OFF = ("", "off")
_MOST_NODES = 64  # on one machine


class Amount(msgspec.Struct, frozen=True):
    """So many of a resource."""

    name: str
    type: str
    count: int

    def __str__(self) -> str:
        return ":".join(part for part in (self.name, self.type, str(self.count)) if part)


class Line(msgspec.Struct, frozen=True):
    """A line of gres.conf about one resource."""

    place: statements.Place
    name: str
    type: str = ""
    files: tuple[str, ...] = ()
    count: int | None = None  # None: as many as there are files
    flags: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """How many it comes to."""
        return len(self.files) or 1 if self.count is None else self.count


class Node(msgspec.Struct, frozen=True):
    """One node of slurm.conf that this machine is, with its lines of gres.conf."""

    name: str
    place: statements.Place  # where slurm.conf says what it has
    amounts: tuple[Amount, ...] = ()
    lines: tuple[Line, ...] = ()
    detected: bool = False  # gres.conf lets Slurm find the cards itself

    def of(self, *names: str) -> list[Line]:
        """Its lines about these resources."""
        return [line for line in self.lines if line.name in names]

    @property
    def files(self) -> list[str]:
        """The device files of its cards, in the order of the lines."""
        return [file for line in self.of(GPU) for file in line.files]


class Malformed(ValueError):
    """A value that Slurm could not read either; it says why, and where."""

    def __init__(self, place: statements.Place, text: str) -> None:
        self.place = place
        super().__init__(text)


def counted(text: str) -> int | None:
    """A count, which may be written as ``2K``; None if it is none."""
    match = _COUNT.fullmatch(text)
    return int(match[1]) << 10 * " kmgtp".index(match[2].lower() or " ") if match else None


def amounts(text: str) -> tuple[Amount, ...]:
    """The parts of ``gpu:a30:2,shard:48``; a part without a number counts as one."""
    return tuple(
        _amount(part.strip().split(":"))
        for part in _DETAIL.sub("", text).split(",")
        if part.strip() and part.strip() != "(null)"
    )


def nodes(
    slurm: statements.Document, gres: statements.Document, hosts: Iterable[str]
) -> list[Node]:
    """The nodes that this machine is, by the names of its host; raises Malformed."""
    names = {host.lower() for host in hosts}
    own = [
        (name, place, text)
        for statement, place, text in _node_statements(slurm)
        for name in _named(statement, names)
    ]
    return [
        _node(name, place, text, [line for line in gres.statements if _is_about(line, name)])
        for name, place, text in own[:_MOST_NODES]
    ]


def kinds(slurm: statements.Document, gres: statements.Document) -> list[Node]:
    """The whole cluster, one node for all those that have the same; raises Malformed."""
    lines_of = _by_node(gres)
    kinds: dict[tuple[str, tuple[int, ...]], Node] = {}
    for statement, place, text in _node_statements(slurm):
        for name in _expanded(statement, "NodeName"):
            indexes = tuple(sorted(lines_of.get("", []) + lines_of.get(name.lower(), [])))
            if (text, indexes) not in kinds:
                own = [gres.statements[index] for index in indexes]
                kinds[text, indexes] = _node(name, place, text, own)
    return [*kinds.values()]


def summed(parts: Iterable[Amount | Line]) -> dict[tuple[str, str], int]:
    """How many there are of each resource and type, in the order in which they come."""
    totals: dict[tuple[str, str], int] = {}
    for part in parts:
        key = part.name, part.type.lower()
        totals[key] = totals.get(key, 0) + (part.count if isinstance(part, Amount) else part.total)
    return totals


def _amount(words: list[str]) -> Amount:
    count = counted(words[-1]) if len(words) > 1 else None
    kind = words[1:-1] if count is not None else words[1:]
    return Amount(words[0].lower(), kind[0] if kind else "", 1 if count is None else count)


def _node_statements(
    slurm: statements.Document,
) -> Iterator[tuple[statements.Statement, statements.Place, str]]:
    """The lines about nodes, with what each says of Gres, and where: DEFAULT holds for the next."""
    default = ("", slurm.place)
    for statement in slurm.with_key("NodeName"):
        text, place = statement.get("Gres"), statement.place
        if (statement.get("NodeName") or "").lower() == "default":
            default = (text, place) if text is not None else default
            continue
        if text is None:
            text, place = default if default[0] else ("", place)
        yield statement, place, text


def _by_node(gres: statements.Document) -> dict[str, list[int]]:
    """Which lines of gres.conf are about a node; under no name are those about all."""
    lines_of: dict[str, list[int]] = {}
    for index, statement in enumerate(gres.statements):
        named = statement.get("NodeName") is not None
        for name in _positions(statement, "NodeName") if named else ("",):
            lines_of.setdefault(name, []).append(index)
    return lines_of


def _named(statement: statements.Statement, hosts: Iterable[str]) -> Iterator[str]:
    """The names of a line's nodes that run on one of the hosts."""
    names = _expanded(statement, "NodeName")
    on = _positions(statement, "NodeHostname") or _positions(statement, "NodeName")
    places = sorted({on[host] for host in hosts if host in on})
    if places and len(on) == 1:  # several nodes on one machine
        yield from names
    else:
        yield from (names[place] for place in places if place < len(names))


def _expanded(statement: statements.Statement, key: str) -> tuple[str, ...]:
    try:
        return host_ranges.expanded(statement.get(key) or "")
    except host_ranges.BadRange as error:
        raise Malformed(statement.place, f"{key}: {error}") from None


def _positions(statement: statements.Statement, key: str) -> Mapping[str, int]:
    _expanded(statement, key)  # tells what cannot be read
    return host_ranges.positions(statement.get(key) or "")


def _node(
    name: str, place: statements.Place, text: str, own: Sequence[statements.Statement]
) -> Node:
    detecting = [value for statement in own if (value := statement.get("AutoDetect")) is not None]
    return Node(
        name=name,
        place=place,
        amounts=amounts(text),
        lines=tuple(_line(statement) for statement in own if statement.get("Name") is not None),
        detected=bool(detecting) and detecting[-1].lower() not in _OFF,
    )


def _is_about(statement: statements.Statement, name: str) -> bool:
    named = statement.get("NodeName") is not None
    return not named or name.lower() in _positions(statement, "NodeName")


def _line(statement: statements.Statement) -> Line:
    pairs = statement.pairs
    written = pairs.get("count")
    count = None if written is None else counted(written)
    if written is not None and count is None:
        raise Malformed(statement.place, f"Count={written[:40]} is not a number")
    return Line(
        place=statement.place,
        name=pairs["name"].lower(),
        type=pairs.get("type", ""),
        files=_expanded(statement, "File"),
        count=count,
        flags=tuple(statements.words(pairs.get("flags", ""))),
    )
