"""The page of this machine: its cards, who has them, who waits, who else is there.

``partage ps`` prints it once, ``partage top`` again and again. Columns stay where they are, since
people cut them out; ``wide`` has more of them, and the commands last because they are long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from partage.cli import top_cells, top_pages, top_rows
from partage.fence import tallies
from partage.local import places, views

CARD = (
    *("CARD", "MODEL", "HEALTH", "MEMORY", "USED(MiB)", "GRANTED(MiB)", "FREE(MiB)", "TOTAL(MiB)"),
    *("COMPUTE", "GRANTED", "TENANTS"),
)
CARD_WIDE = ("FOREIGN(MiB)", "TEMPERATURE", "UUID")
TENANT = (
    *("NAME", "USER", "CARD", "ASKED(MiB)", "USED(MiB)", "PEAK(MiB)"),
    *("COMPUTE", "GOT", "FENCE", "AGE"),
)
TENANT_WIDE = (
    *("PID", "PRIORITY", "PROCESSES", "MODE", "REFUSED", "WAITED", "DIALECT", "TOKEN", "UUID"),
    "COMMAND",
)
WAITING = ("PLACE", "NAME", "USER", "PRIORITY", "ASKS", "WAITING", "REASON")
WAITING_WIDE = ("PID", "TOKEN")
FOREIGN = ("FOREIGN(PID)", "CARD", "USER", "USED(MiB)", "COMMAND")
FOREIGN_WIDE = ("UUID",)

_NOTHING = "Nothing runs under Partage here, and nobody waits."
_FOREIGN = "pid {} was not started by Partage, and is not signalled from here; `kill` does it"

Rates = Mapping[views.Key, tallies.Rate]
Pieces = tuple[top_pages.Line, top_cells.Row]  # a line, and what it has more if it is wide


def page(view: views.View, rates: Rates, *, wide: bool = False) -> top_pages.Page:
    """This machine, and what its tenants got since the last view."""
    return top_pages.Page(
        node=view.node,
        about=_about(view),
        taken_ns=view.taken_ns,
        cards=_block(CARD, CARD_WIDE, map(_card, view.cards), wide=wide),
        tenants=_block(TENANT, TENANT_WIDE, _tenants(view, rates), wide=wide),
        others=(
            _block(WAITING, WAITING_WIDE, _waiting(view), wide=wide, last=1),
            _block(FOREIGN, FOREIGN_WIDE, map(_foreign, view.foreign), wide=wide, last=1),
        ),
        problems=top_pages.Block(top_rows.PROBLEM, tuple(_problems(view))),
        nothing="" if view.tenants or view.waiting else _NOTHING,
    )


def _about(view: views.View) -> str:
    count = f"{len(view.cards)} card{'' if len(view.cards) == 1 else 's'}"
    simulated = " (simulated)" if view.simulated else ""
    whose = "shared" if view.shared else "of one user"
    return f"{count}{simulated}  ledger {view.ledger} ({whose})"


def _block(
    header: tuple[str, ...],
    more: tuple[str, ...],
    pieces: Iterator[Pieces],
    *,
    wide: bool,
    last: int = 0,  # columns that stay behind the others
) -> top_pages.Block:
    if not wide:
        return top_pages.Block(header, tuple(line for line, _ in pieces))
    at = len(header) - last
    lines = (
        msgspec.structs.replace(line, cells=(*line.cells[:at], *cells, *line.cells[at:]))
        for line, cells in pieces
    )
    return top_pages.Block((*header[:at], *more, *header[at:]), tuple(lines))


def _card(card: views.CardView) -> Pieces:
    cells = (
        *(top_cells.number(card.index), top_cells.text(card.model), top_cells.health(card.healthy)),
        *(top_cells.bar(card.used_mib, card.memory_mib), top_cells.number(card.used_mib)),
        *(top_cells.number(card.granted_mib), _free(card), top_cells.number(card.memory_mib)),
        top_cells.bar(card.utilization_percent, 100),
        *(top_cells.percent(card.granted_percent), top_cells.number(card.tenants)),
    )
    more = (
        *(top_cells.number(card.foreign_mib), _temperature(card.temperature_c)),
        top_cells.text(card.uuid),
    )
    return top_pages.Line(cells=cells, key=(card.uuid,)), more


def _free(card: views.CardView) -> top_cells.Cell:
    cell = top_cells.number(card.free_mib)
    if card.free_mib >= 0:
        return cell
    return msgspec.structs.replace(cell, tone=top_cells.Tone.BAD)


def _temperature(degrees_c: int | None) -> top_cells.Cell:
    cell = top_cells.number(degrees_c)
    return cell if degrees_c is None else msgspec.structs.replace(cell, text=f"{degrees_c}C")


def _tenants(view: views.View, rates: Rates) -> Iterator[Pieces]:
    """One line for each grant and card, by card."""
    for each in sorted(view.tenants, key=_place):
        rate = rates.get(each.key) or tallies.Rate(None, None)
        line = top_pages.Line(
            cells=_tenant(each, rate, view.taken_ns),
            key=each.key,
            words=f"{each.name} {each.user}",
            target=_target(view, each, since=each.granted_at, processes=each.processes or ()),
        )
        yield line, _more(each, rate)


def _place(each: views.TenantView) -> tuple[bool, int, float, str]:
    return each.index is None, -1 if each.index is None else each.index, each.granted_at, each.token


def _tenant(each: views.TenantView, rate: tallies.Rate, now_ns: int) -> top_cells.Row:
    return (
        *(top_cells.text(each.name), top_cells.text(each.user), top_cells.number(each.index)),
        top_cells.number(each.memory_mib),
        *(top_cells.used(each.used_bytes, each.memory_mib), top_cells.mib(each.peak_bytes)),
        top_cells.asked(each.mode, each.compute_percent, each.ceiling_percent),
        *(top_cells.percent(rate.compute_percent), top_cells.text(each.fence)),
        top_cells.age(now_ns / 1e9 - each.granted_at),
    )


def _more(each: views.TenantView, rate: tallies.Rate) -> top_cells.Row:
    processes = None if each.processes is None else len(each.processes)
    return (
        *(top_cells.number(each.pid), top_cells.number(each.priority)),
        *(top_cells.number(processes), top_cells.text(each.mode), top_cells.count(each.refused)),
        *(top_cells.waited(rate.throttled_percent), top_cells.text(each.dialect)),
        *(top_cells.text(each.token), top_cells.text(each.uuid), top_cells.text(each.command)),
    )


def _target(
    view: views.View,
    each: views.TenantView | views.WaitingView,
    *,
    since: float,
    processes: tuple[int, ...] = (),
) -> top_pages.Target:
    return top_pages.Target(
        name=each.name,
        user=each.user,
        uid=each.uid,
        pid=each.pid,
        processes=tuple(pid for pid in processes if pid != each.pid),
        since=since,
        lease=str(places.Place(Path(view.ledger), view.shared, gid=-1).leases / each.token),
    )


def _waiting(view: views.View) -> Iterator[Pieces]:
    for each in view.waiting:
        cells = (
            *(top_cells.number(each.place), top_cells.text(each.name), top_cells.text(each.user)),
            *(top_cells.number(each.priority), top_cells.text(each.asks)),
            *(top_cells.age(view.taken_ns / 1e9 - each.asked_at), top_cells.text(each.reason)),
        )
        line = top_pages.Line(
            cells=cells,
            key=("waiting", each.token),
            words=f"{each.name} {each.user}",
            target=_target(view, each, since=each.asked_at),
        )
        yield line, (top_cells.number(each.pid), top_cells.text(each.token))


def _foreign(each: views.ForeignView) -> Pieces:
    cells = (
        *(top_cells.number(each.pid), top_cells.number(each.index), top_cells.text(each.user)),
        *(top_cells.mib(each.used_bytes), top_cells.text(each.command)),
    )
    line = top_pages.Line(
        cells=cells,
        key=("foreign", str(each.pid), each.uuid),
        words=f"{each.user or ''} {each.command or ''}",
        target=_FOREIGN.format(each.pid),
    )
    return line, (top_cells.text(each.uuid),)


def _problems(view: views.View) -> Iterator[top_pages.Line]:
    """One line for each; what is wrong with a card may be told of it and beside it."""
    sick = ((f"card {card.index}", card.reason) for card in view.cards if card.reason)
    told = ((each.object, each.text) for each in view.problems)
    for what, text in dict.fromkeys((*sick, *told)):
        yield top_rows.problem(what, text)
