"""The page of this machine: its cards, who has them, who waits, who else is there.

``partage ps`` prints it once, ``partage top`` again and again. Columns stay where they are, since
people cut them out. The narrow form has room in 80 columns: sizes are rounded, and what is asked
for and what is got share a column. The wide form has every column, and the commands last because
they are long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from partage.cli.top import grid, pages, rows
from partage.fence import tallies
from partage.local import places, views

CARD_NARROW = ("CARD", "MODEL", "HEALTH", "MEMORY", "FREE", "COMPUTE")
CARD = (
    *("CARD", "MODEL", "HEALTH", "MEMORY", "USED(MiB)", "GRANTED(MiB)", "FREE(MiB)", "TOTAL(MiB)"),
    *("COMPUTE", "GRANTED", "TENANTS"),
)
CARD_WIDE = ("FOREIGN(MiB)", "TEMPERATURE", "UUID")
TENANT_NARROW = ("NAME", "USER", "CARD", "ASKED", "USED", "PEAK", "COMPUTE", "FENCE", "AGE")
TENANT = (
    *("NAME", "USER", "CARD", "ASKED(MiB)", "USED(MiB)", "PEAK(MiB)"),
    *("COMPUTE", "GOT", "FENCE", "AGE"),
)
TENANT_WIDE = (
    *("PID", "PRIORITY", "PROCESSES", "MODE", "REFUSED", "WAITED", "DIALECT", "TOKEN", "UUID"),
    "COMMAND",
)
WAITING_NARROW = ("PLACE", "NAME", "USER", "PRIORITY", "ASKS", "WAITING")
WAITING = ("PLACE", "NAME", "USER", "PRIORITY", "ASKS", "WAITING", "REASON")
WAITING_WIDE = ("PID", "TOKEN")
FOREIGN_NARROW = ("FOREIGN(PID)", "CARD", "USER", "USED", "COMMAND")
FOREIGN = ("FOREIGN(PID)", "CARD", "USER", "USED(MiB)", "COMMAND")
FOREIGN_WIDE = ("UUID",)

_VENDOR = "NVIDIA "  # in front of most models, and tells nothing
_NOTHING = "Nothing runs under Partage here, and nobody waits."
_FOREIGN = "pid {} was not started by Partage, and is not signalled from here; `kill` does it"

Rates = Mapping[views.Key, tallies.Rate]


class _Columns(msgspec.Struct, frozen=True):
    """The names of columns of one table."""

    narrow: tuple[str, ...]
    usual: tuple[str, ...]
    more: tuple[str, ...]  # if it is wide
    last: int = 0  # of the usual ones, those that stay behind the others


class _Piece(msgspec.Struct, frozen=True):
    """One line of a table, in each form."""

    narrow: grid.Row
    usual: pages.Line
    more: grid.Row


_CARDS = _Columns(CARD_NARROW, CARD, CARD_WIDE)
_TENANTS = _Columns(TENANT_NARROW, TENANT, TENANT_WIDE)
_QUEUE = _Columns(WAITING_NARROW, WAITING, WAITING_WIDE, last=1)
_FOREIGNERS = _Columns(FOREIGN_NARROW, FOREIGN, FOREIGN_WIDE, last=1)


def page(view: views.View, rates: Rates, form: pages.Form = pages.Form.USUAL) -> pages.Page:
    """This machine, and what its tenants got since the last view."""
    return pages.Page(
        node=view.node,
        about=_about(view),
        taken_ns=view.taken_ns,
        cards=_block(_CARDS, map(_card, view.cards), form),
        tenants=_block(_TENANTS, _tenants(view, rates), form),
        others=(
            _block(_QUEUE, _waiting(view), form),
            _block(_FOREIGNERS, map(_foreign, view.foreign), form),
        ),
        problems=pages.Block(rows.PROBLEM, tuple(_problems(view))),
        nothing="" if view.tenants or view.waiting else _NOTHING,
    )


def _about(view: views.View) -> str:
    count = f"{len(view.cards)} card{'' if len(view.cards) == 1 else 's'}"
    simulated = " (simulated)" if view.simulated else ""
    whose = "shared" if view.shared else "of one user"
    return f"{count}{simulated}  ledger {view.ledger} ({whose})"


def _block(columns: _Columns, pieces: Iterator[_Piece], form: pages.Form) -> pages.Block:
    if form is pages.Form.NARROW:
        return pages.Block(columns.narrow, tuple(_with(each.usual, each.narrow) for each in pieces))
    if form is pages.Form.USUAL:
        return pages.Block(columns.usual, tuple(each.usual for each in pieces))
    header, at = columns.usual, len(columns.usual) - columns.last
    lines = (
        _with(each.usual, (*each.usual.cells[:at], *each.more, *each.usual.cells[at:]))
        for each in pieces
    )
    return pages.Block((*header[:at], *columns.more, *header[at:]), tuple(lines))


def _with(line: pages.Line, cells: grid.Row) -> pages.Line:
    return msgspec.structs.replace(line, cells=cells)


def _card(card: views.CardView) -> _Piece:
    narrow = (
        *(grid.number(card.index), grid.text((card.model or "").removeprefix(_VENDOR))),
        *(grid.health(card.healthy), grid.filled(card.used_mib, card.memory_mib)),
        *(
            _free(card, grid.rounded(grid.number(card.free_mib))),
            grid.bar(card.utilization_percent, 100),
        ),
    )
    cells = (
        *(grid.number(card.index), grid.text(card.model), grid.health(card.healthy)),
        *(grid.bar(card.used_mib, card.memory_mib), grid.number(card.used_mib)),
        *(grid.number(card.granted_mib), _free(card, grid.number(card.free_mib))),
        grid.number(card.memory_mib),
        grid.bar(card.utilization_percent, 100),
        *(grid.percent(card.granted_percent), grid.number(card.tenants)),
    )
    more = (
        *(grid.number(card.foreign_mib), _temperature(card.temperature_c)),
        grid.text(card.uuid),
    )
    return _Piece(narrow, pages.Line(cells=cells, key=(card.uuid,)), more)


def _free(card: views.CardView, cell: grid.Cell) -> grid.Cell:
    if card.free_mib >= 0:
        return cell
    return msgspec.structs.replace(cell, tone=grid.Tone.BAD)


def _temperature(degrees_c: int | None) -> grid.Cell:
    cell = grid.number(degrees_c)
    return cell if degrees_c is None else msgspec.structs.replace(cell, text=f"{degrees_c}C")


def _tenants(view: views.View, rates: Rates) -> Iterator[_Piece]:
    """One line for each grant and card, by card."""
    for each in sorted(view.tenants, key=_place):
        rate = rates.get(each.key) or tallies.Rate(None, None)
        line = pages.Line(
            cells=_tenant(each, rate, view.taken_ns),
            key=each.key,
            words=f"{each.name} {each.user}",
            target=_target(view, each, since=each.granted_at, processes=each.processes or ()),
        )
        yield _Piece(_narrow(each, rate, view.taken_ns), line, _more(each, rate))


def _place(each: views.TenantView) -> tuple[bool, int, float, str]:
    return each.index is None, -1 if each.index is None else each.index, each.granted_at, each.token


def _narrow(each: views.TenantView, rate: tallies.Rate, now_ns: int) -> grid.Row:
    asked = grid.asked(each.mode, each.compute_percent, each.ceiling_percent)
    return (
        *(grid.text(each.name), grid.text(each.user), grid.number(each.index)),
        grid.rounded(grid.granted(each.memory_mib)),
        grid.rounded(grid.used(each.used_bytes, each.memory_mib)),
        *(grid.rounded(grid.mib(each.peak_bytes)), grid.got(rate.compute_percent, asked)),
        *(grid.fence(each.fence), grid.age(now_ns / 1e9 - each.granted_at)),
    )


def _tenant(each: views.TenantView, rate: tallies.Rate, now_ns: int) -> grid.Row:
    return (
        *(grid.text(each.name), grid.text(each.user), grid.number(each.index)),
        grid.granted(each.memory_mib),
        *(grid.used(each.used_bytes, each.memory_mib), grid.mib(each.peak_bytes)),
        grid.asked(each.mode, each.compute_percent, each.ceiling_percent),
        *(grid.percent(rate.compute_percent), grid.fence(each.fence)),
        grid.age(now_ns / 1e9 - each.granted_at),
    )


def _more(each: views.TenantView, rate: tallies.Rate) -> grid.Row:
    processes = None if each.processes is None else len(each.processes)
    return (
        *(grid.number(each.pid), grid.number(each.priority)),
        *(grid.number(processes), grid.text(each.mode), grid.count(each.refused)),
        *(grid.waited(rate.throttled_percent), grid.text(each.dialect)),
        *(grid.text(each.token), grid.text(each.uuid), grid.text(each.command)),
    )


def _target(
    view: views.View,
    each: views.TenantView | views.WaitingView,
    *,
    since: float,
    processes: tuple[int, ...] = (),
) -> pages.Target:
    return pages.Target(
        name=each.name,
        user=each.user,
        uid=each.uid,
        pid=each.pid,
        processes=tuple(pid for pid in processes if pid != each.pid),
        since=since,
        lease=str(places.Place(Path(view.ledger), view.shared, gid=-1).leases / each.token),
    )


def _waiting(view: views.View) -> Iterator[_Piece]:
    for each in view.waiting:
        narrow = (
            *(grid.number(each.place), grid.text(each.name), grid.text(each.user)),
            *(grid.number(each.priority), grid.text(each.asks)),
            grid.age(view.taken_ns / 1e9 - each.asked_at),
        )
        line = pages.Line(
            cells=(*narrow, grid.text(each.reason)),
            key=("waiting", each.token),
            words=f"{each.name} {each.user}",
            target=_target(view, each, since=each.asked_at),
        )
        yield _Piece(narrow, line, (grid.number(each.pid), grid.text(each.token)))


def _foreign(each: views.ForeignView) -> _Piece:
    who = (grid.number(each.pid), grid.number(each.index), grid.text(each.user))
    used, command = grid.mib(each.used_bytes), grid.text(each.command)
    line = pages.Line(
        cells=(*who, used, command),
        key=("foreign", str(each.pid), each.uuid),
        words=f"{each.user or ''} {each.command or ''}",
        target=_FOREIGN.format(each.pid),
    )
    return _Piece((*who, grid.rounded(used), command), line, (grid.text(each.uuid),))


def _problems(view: views.View) -> Iterator[pages.Line]:
    """One line for each; what is wrong with a card may be told of it and beside it."""
    sick = ((f"card {card.index}", card.reason) for card in view.cards if card.reason)
    told = ((each.object, each.text) for each in view.problems)
    for what, text in dict.fromkeys((*sick, *told)):
        yield rows.problem(what, text)
