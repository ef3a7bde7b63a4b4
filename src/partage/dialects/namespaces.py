"""The part of a Kubernetes Namespace that says what its pods may have together.

The totals are annotations. Who may write them is a matter of rights: Kubernetes' own roles for the
people of a namespace do not let them change the Namespace itself.

A slip must not turn a limit into none. What looks like a total and cannot be read, in its name or
in its value, closes the namespace for new grants, with the reason in the total (see
:class:`partage.core.totals.Total`). Any other annotation of ours that nobody knows is reported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

import msgspec

from partage.core import cards, errors, quantities, totals

PREFIX = "partage.dev/"
CARDS = f"{PREFIX}most-cards"
MEMORY = f"{PREFIX}most-memory"
COMPUTE = f"{PREFIX}most-compute"
ANNOTATIONS = {
    totals.Kind.CARDS: CARDS,
    totals.Kind.MEMORY: MEMORY,
    totals.Kind.COMPUTE: COMPUTE,
}

_MOST = f"{PREFIX}most"
_MOST_CARDS = 1_000_000
_NEAR = 0.75  # of its letters make a name the one that was meant
_LONGEST = 80  # characters of a name that are shown


class Metadata(msgspec.Struct, frozen=True):
    """Who the namespace is, and what was written on it."""

    name: str = ""
    annotations: Mapping[str, str] = {}


class Namespace(msgspec.Struct, frozen=True):
    """A namespace, as far as its totals go."""

    metadata: Metadata = Metadata()


class Reading(msgspec.Struct, frozen=True):
    """The total of a namespace, if it has one, and what is wrong with its annotations."""

    total: totals.Total | None = None
    problem: str = ""


def read(namespace: Namespace) -> Reading:
    """What a namespace says of its totals."""
    ours = {k: v for k, v in namespace.metadata.annotations.items() if k.startswith(PREFIX)}
    amounts = {name: _amount(name, text) for name, text in ours.items() if name in _READERS}
    unknown = sorted(ours.keys() - _READERS.keys())
    slips = [text for _, text in sorted(amounts.items()) if isinstance(text, str)]
    slips += [_unknown(name) for name in unknown if _is_slip(name)]
    others = [_unknown(name) for name in unknown if not _is_slip(name)]
    if slips:
        closed = totals.Total(problem="; ".join(slips))
        return Reading(closed, "; ".join([*slips, _CLOSED, *others]))
    return Reading(_total(amounts), "; ".join(others))


def _total(amounts: Mapping[str, int | str]) -> totals.Total | None:
    fields = {_FIELDS[name]: amount for name, amount in amounts.items()}
    return msgspec.convert(fields, totals.Total) if fields else None


def _amount(name: str, text: str) -> int | str:
    """The amount of a total; a text if it cannot be read."""
    try:
        return _READERS[name](text)
    except errors.QuantityError as error:
        return f"{name}: {error}"


def _counter(example: int, most: int) -> Callable[[str], int]:
    """A reader of plain numbers; a very large one is a slip, such as a unit that is not one."""

    def count(text: str) -> int:
        instead = f"write a whole number such as {example}, or 0"
        try:
            number = quantities.whole(text)
        except errors.QuantityError as error:
            shown = quantities.shown(text)
            raise errors.QuantityError(f"{shown} is not a number", instead=instead) from error
        if not 0 <= number <= most:
            problem = f"{quantities.shown(text)} is not between 0 and {most}"
            raise errors.QuantityError(problem, instead=instead)
        return number

    return count


_READERS: Mapping[str, Callable[[str], int]] = {
    CARDS: _counter(4, _MOST_CARDS),
    MEMORY: quantities.at_most_mib,
    COMPUTE: _counter(400, cards.FULL_PERCENT * _MOST_CARDS),
}
_FIELDS = {CARDS: "cards", MEMORY: "memory_mib", COMPUTE: "compute_percent"}
_CLOSED = "until then its pods get no more cards"


def _meant(name: str) -> str:
    """The annotation that somebody meant by another name; empty if none is like it."""
    words = {written.removeprefix(PREFIX): written for written in _READERS}
    near = difflib.get_close_matches(name.removeprefix(PREFIX).lower(), words, n=1, cutoff=_NEAR)
    return words[near[0]] if near else ""


def _is_slip(name: str) -> bool:
    return name.startswith(_MOST) or bool(_meant(name))


def _unknown(name: str) -> str:
    meant = _meant(name)
    instead = f"write {meant}" if meant else f"there are {', '.join(_READERS)}"
    return f"{name[:_LONGEST]}: a namespace has no such annotation; {instead}"
