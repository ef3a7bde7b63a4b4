"""Totals: what a namespace may have of all cards together, in neutral terms.

Quotas by the name of a resource do not add up where people ask in different dialects. A Total does:
it is compared with what grants give, whatever words they were asked for in. A pod is charged what
it takes of each of its cards at its worst moment, as the card itself is:

- memory, in MiB: a whole card with all it has, a percentage with what it came to on its card;
- compute, in percent of one card: a whole card with 100;
- cards, by number: one for each card on which the pod stands, whether it has a share of it or all.

Each of the three is a total of its own. A pod that asks for nothing of one (a share without
compute, say) is not held up by it.
"""

from __future__ import annotations

import enum

import msgspec

from partage.core import grants

_GIB = 1024  # MiB


class Sums(msgspec.Struct, frozen=True):
    """What grants come to, over all their cards."""

    cards: int = 0
    memory_mib: int = 0
    compute_percent: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.cards + other.cards,
            self.memory_mib + other.memory_mib,
            self.compute_percent + other.compute_percent,
        )

    def __sub__(self, other: Sums) -> Sums:
        return Sums(
            self.cards - other.cards,
            self.memory_mib - other.memory_mib,
            self.compute_percent - other.compute_percent,
        )


NOTHING = Sums()


class Total(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a namespace may have; None: as much as there is.

    ``problem`` says what is wrong with a total that somebody wrote and nobody can read. What was
    meant is not known then, so nothing more is granted until it is repaired.
    """

    cards: int | None = None
    memory_mib: int | None = None
    compute_percent: int | None = None
    problem: str = ""


class Kind(enum.StrEnum):
    """Of what there is too little."""

    CARDS = "cards"
    MEMORY = "memory"
    COMPUTE = "compute"
    TOTAL = "total"  # it cannot be read


class Excess(msgspec.Struct, frozen=True, kw_only=True):
    """Why a pod would put its namespace over its total."""

    namespace: str
    kind: Kind
    most: int = 0  # cards, MiB or percent, as the kind says
    has: int = 0
    asks: int = 0
    problem: str = ""

    @property
    def never(self) -> bool:
        """Whether it would even if the namespace had nothing yet."""
        return self.kind is not Kind.TOTAL and self.asks > self.most

    @property
    def text(self) -> str:
        """In one sentence, the same on all nodes where the pod asks for as much."""
        return self.told("this pod")

    def told(self, asker: str) -> str:
        """The text, about whatever asks: a pod, or a claim."""
        if self.kind is Kind.TOTAL:
            return f"namespace {self.namespace} gets no more cards: {self.problem}"
        most, has, asks = _shown(self.kind, self.most, self.has, self.asks)
        what = {Kind.MEMORY: " of card memory", Kind.COMPUTE: " of compute"}.get(self.kind, "")
        may_have = f"namespace {self.namespace} may have {most}{what}"
        if self.never:
            return f"{may_have}; {asker} alone asks for {asks}"
        return f"{may_have} and has {has}; {asker} asks for {asks}"


def of(grant: grants.Grant) -> Sums:
    """What a grant is charged with."""
    takings = grants.takings(grant).values()
    return Sums(
        len(takings),
        sum([taking.memory_mib for taking in takings]),
        sum([taking.compute_percent for taking in takings]),
    )


def excess(namespace: str, total: Total, used: Sums, charge: Sums) -> Excess | None:
    """Why a namespace that has so much may not have this much more; None: it may."""
    if total.problem:
        return Excess(namespace=namespace, kind=Kind.TOTAL, problem=total.problem)
    over = [
        Excess(namespace=namespace, kind=kind, most=most, has=has, asks=asks)
        for kind, most, has, asks in (
            (Kind.MEMORY, total.memory_mib, used.memory_mib, charge.memory_mib),
            (Kind.COMPUTE, total.compute_percent, used.compute_percent, charge.compute_percent),
            (Kind.CARDS, total.cards, used.cards, charge.cards),
        )
        if most is not None and asks and has + asks > most
    ]
    # What can never be is the better thing to say: no waiting helps.
    return max(over, key=lambda reason: reason.never, default=None)


def _shown(kind: Kind, *amounts: int) -> list[str]:
    """Amounts with their unit; memory in GiB where that loses nothing."""
    match kind:
        case Kind.MEMORY if any(amount % _GIB for amount in amounts):
            return [f"{amount} MiB" for amount in amounts]
        case Kind.MEMORY:
            return [f"{amount // _GIB} GiB" for amount in amounts]
        case Kind.COMPUTE:
            return [f"{amount} %" for amount in amounts]
        case _:
            first, *rest = amounts
            return [f"{first} {'card' if first == 1 else 'cards'}", *map(str, rest)]
