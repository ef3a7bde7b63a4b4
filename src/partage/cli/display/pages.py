"""Pages: what ``partage top`` and ``partage ps`` show of one moment, as tables of cells.

An agent's report and a view of this machine become the same kind of page
(:mod:`partage.cli.display.report_page`, :mod:`partage.cli.display.machine_page`), so that one
screen shows both. A page knows neither keys nor colours. Sorting and filtering are functions here,
too, which give another page.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

import msgspec

from partage.cli.display import table_cells

Key = tuple[str, ...]
AS_IT_COMES = -1  # a column to sort by: none


class Form(enum.Enum):
    """How much of a page is shown."""

    NARROW = "narrow"  # for 80 columns
    USUAL = "usual"
    WIDE = "wide"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The program that a signal would reach; ``cli/commands/top/signal_targets`` proves it."""

    name: str
    user: str
    uid: int
    pid: int | None  # of the program that was started; it may have ended
    processes: tuple[int, ...]  # others, as they registered themselves
    since: float  # seconds since 1970; the program was started before
    lease: str  # the file that its processes have open
    job: int | None = None  # of Slurm: its processes are known by their cgroup, and there is no pid


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    cells: table_cells.Row
    key: Key = ()  # what makes it the same in two pages
    words: str = ""  # what a filter looks at
    target: Target | str = ""  # or why it cannot be signalled


class Block(msgspec.Struct, frozen=True):
    """One table."""

    header: tuple[str, ...]
    lines: tuple[Line, ...]


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a machine."""

    node: str
    about: str = ""  # what else the heading says; without it a pipe gets no heading
    taken_ns: int  # since 1970
    cards: Block
    tenants: Block
    others: tuple[Block, ...] = ()  # the queue and foreign processes: these can be selected, too
    problems: Block
    nothing: str = ""  # a sentence, if there is nothing to see

    @property
    def blocks(self) -> list[Block]:
        """Those with anything in them, in their order."""
        every = (self.cards, self.tenants, *self.others, self.problems)
        return [block for block in every if block.lines]

    @property
    def selectable(self) -> list[Line]:
        """What the arrows move through."""
        return [line for block in (self.tenants, *self.others) for line in block.lines]


def ordered(page: Page, column: int, *, descending: bool) -> Page:
    """The tenants by a column; those whose value is not known come last either way."""
    if column == AS_IT_COMES:
        return page
    ranked = [line for line in page.tenants.lines if line.cells[column].rank is not None]
    unranked = [line for line in page.tenants.lines if line.cells[column].rank is None]
    ranked.sort(key=_by(column), reverse=descending)
    lines = (*ranked, *unranked)
    return msgspec.structs.replace(page, tenants=Block(page.tenants.header, lines))


def largest_first(page: Page, column: int) -> bool:
    """The order of a column until the user reverses it: largest number first, names from a."""
    ranks = (
        [] if column == AS_IT_COMES else [line.cells[column].rank for line in page.tenants.lines]
    )
    return any(rank is not None and not isinstance(rank, str) for rank in ranks)


def filtered(page: Page, pattern: str) -> Page:
    """The lines whose name or user contains a pattern."""
    if not pattern:
        return page
    return msgspec.structs.replace(
        page,
        tenants=_kept(page.tenants, pattern.casefold()),
        others=tuple(_kept(block, pattern.casefold()) for block in page.others),
    )


def _by(column: int) -> Callable[[Line], tuple[bool, float, str]]:
    def key(line: Line) -> tuple[bool, float, str]:
        rank = line.cells[column].rank
        return (True, 0.0, rank) if isinstance(rank, str) else (False, rank or 0.0, "")

    return key


def _kept(block: Block, pattern: str) -> Block:
    lines = tuple(line for line in block.lines if pattern in line.words.casefold())
    return Block(block.header, lines)
