"""The page of this machine: its cards, their tenants, the queue, and foreign processes.

``partage ps`` prints it once, ``partage top`` again and again. Columns stay where they are, since
people cut them out. The narrow form fits into 80 columns: sizes are rounded, and the compute that a
tenant asked for and the compute that it got share a column. The wide form has every column, and the
commands last because they are long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from partage.cli.display import pages, report_page, table_cells
from partage.fence import usage_rows
from partage.local.state import location
from partage.local.view import views

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
STEP = "STEP"  # where a tenant is a job of Slurm, behind the columns that others have
WAITING_NARROW = ("PLACE", "NAME", "USER", "PRIORITY", "ASKS", "WAITING")
WAITING = ("PLACE", "NAME", "USER", "PRIORITY", "ASKS", "WAITING", "REASON")
WAITING_WIDE = ("PID", "TOKEN")
FOREIGN_NARROW = ("FOREIGN(PID)", "CARD", "USER", "USED", "COMMAND")
FOREIGN = ("FOREIGN(PID)", "CARD", "USER", "USED(MiB)", "COMMAND")
FOREIGN_WIDE = ("UUID",)

_VENDOR = "NVIDIA "  # in front of most models, where it adds nothing
_NOTHING = "Nothing runs under Partage here, and nobody waits."
_FOREIGN = "pid {} was not started by Partage; `kill` signals it"

Rates = Mapping[views.Key, usage_rows.Rate]


class _Columns(msgspec.Struct, frozen=True):
    """The names of columns of one table."""

    narrow: tuple[str, ...]
    usual: tuple[str, ...]
    more: tuple[str, ...]  # if it is wide
    last: int = 0  # of the usual ones, those that stay behind the others


class _Piece(msgspec.Struct, frozen=True):
    """One line of a table, in each form."""

    narrow: table_cells.Row
    usual: pages.Line
    more: table_cells.Row


_CARDS = _Columns(CARD_NARROW, CARD, CARD_WIDE)
_TENANTS = _Columns(TENANT_NARROW, TENANT, TENANT_WIDE)
_WITH_JOBS = _Columns((*TENANT_NARROW, STEP), (*TENANT, STEP), TENANT_WIDE)
_QUEUE = _Columns(WAITING_NARROW, WAITING, WAITING_WIDE, last=1)
_FOREIGNERS = _Columns(FOREIGN_NARROW, FOREIGN, FOREIGN_WIDE, last=1)


def page(view: views.View, rates: Rates, form: pages.Form = pages.Form.USUAL) -> pages.Page:
    """This machine, and what its tenants got since the view before."""
    return pages.Page(
        node=view.node,
        about=_about(view),
        taken_ns=view.taken_ns,
        cards=_block(_CARDS, map(_card, view.cards), form),
        tenants=_block(_WITH_JOBS if _has_jobs(view) else _TENANTS, _tenants(view, rates), form),
        others=(
            _block(_QUEUE, _waiting(view), form),
            _block(_FOREIGNERS, map(_foreign, view.foreign), form),
        ),
        problems=pages.Block(report_page.PROBLEM, tuple(_problems(view))),
        nothing="" if view.tenants or view.waiting else _NOTHING,
    )


def _about(view: views.View) -> str:
    count = f"{len(view.cards)} card{'' if len(view.cards) == 1 else 's'}"
    simulated = " (simulated)" if view.simulated else ""
    whose = "shared" if view.shared else "of one user"
    return f"{count}{simulated}  ledger {view.ledger} ({whose}){_managed(view)}"


def _managed(view: views.View) -> str:
    """Which cards ``partage run`` does not give away."""
    indexes = [str(card.index) for card in view.cards if card.managed_by]
    if not indexes:
        return ""
    manager = next(card.managed_by for card in view.cards if card.managed_by)
    return f"  {manager.capitalize()} has card{'s' * (len(indexes) > 1)} {', '.join(indexes)}"


def _block(columns: _Columns, pieces: Iterator[_Piece], form: pages.Form) -> pages.Block:
    if form is pages.Form.NARROW:
        return pages.Block(columns.narrow, tuple(_with(row.usual, row.narrow) for row in pieces))
    if form is pages.Form.USUAL:
        return pages.Block(columns.usual, tuple(row.usual for row in pieces))
    header, at = columns.usual, len(columns.usual) - columns.last
    lines = (
        _with(row.usual, (*row.usual.cells[:at], *row.more, *row.usual.cells[at:]))
        for row in pieces
    )
    return pages.Block((*header[:at], *columns.more, *header[at:]), tuple(lines))


def _with(line: pages.Line, cells: table_cells.Row) -> pages.Line:
    return msgspec.structs.replace(line, cells=cells)


def _card(card: views.CardView) -> _Piece:
    narrow = (
        table_cells.number(card.index),
        table_cells.text((card.model or "").removeprefix(_VENDOR)),
        table_cells.health(card.healthy),
        table_cells.filled(card.used_mib, card.memory_mib),
        _free(card, table_cells.rounded(table_cells.number(card.free_mib))),
        table_cells.bar(card.utilization_percent, 100),
    )
    cells = (
        table_cells.number(card.index),
        table_cells.text(card.model),
        table_cells.health(card.healthy),
        table_cells.bar(card.used_mib, card.memory_mib),
        table_cells.number(card.used_mib),
        table_cells.number(card.granted_mib),
        _free(card, table_cells.number(card.free_mib)),
        table_cells.number(card.memory_mib),
        table_cells.bar(card.utilization_percent, 100),
        table_cells.percent(card.granted_percent),
        table_cells.number(card.tenants),
    )
    more = (
        table_cells.number(card.foreign_mib),
        _temperature(card.temperature_c),
        table_cells.text(card.uuid),
    )
    return _Piece(narrow, pages.Line(cells=cells, key=(card.uuid,)), more)


def _free(card: views.CardView, cell: table_cells.Cell) -> table_cells.Cell:
    if card.free_mib >= 0:
        return cell
    return msgspec.structs.replace(cell, tone=table_cells.Tone.BAD)


def _temperature(degrees_c: int | None) -> table_cells.Cell:
    cell = table_cells.number(degrees_c)
    return cell if degrees_c is None else msgspec.structs.replace(cell, text=f"{degrees_c}C")


def _tenants(view: views.View, rates: Rates) -> Iterator[_Piece]:
    """One line for each grant and card, by card."""
    steps = _has_jobs(view)
    for tenant in _with_only_steps(sorted(view.tenants, key=_by_card)):
        rate = rates.get(tenant.key) or usage_rows.Rate(None, None)
        step = (_step(tenant),) if steps else ()
        line = pages.Line(
            cells=(*_tenant(tenant, rate, view.taken_ns), *step),
            key=tenant.key,
            words=f"{tenant.name} {tenant.user}",
            target=_target(
                view,
                tenant,
                since=tenant.granted_at,
                processes=tenant.processes or (),
                job=tenant.job,
            ),
        )
        narrow = (*_narrow(tenant, rate, view.taken_ns), *step)
        yield _Piece(narrow, line, _more(tenant, rate))


def _with_only_steps(tenants: Sequence[views.TenantView]) -> Iterator[views.TenantView]:
    """A job and its only step, where that has all that the job has, are one line."""
    steps: dict[tuple[int | None, str], list[views.TenantView]] = {}
    for tenant in tenants:
        if tenant.step is not None:
            steps.setdefault((tenant.job, tenant.uuid), []).append(tenant)
    for tenant in tenants:
        own = steps.get((tenant.job, tenant.uuid), [])
        if len(own) != 1:
            yield tenant
        elif tenant.step is None:
            same = own[0].memory_mib == tenant.memory_mib
            yield msgspec.structs.replace(tenant, step=own[0].step) if same else tenant
            if not same:
                yield own[0]


def _has_jobs(view: views.View) -> bool:
    return any(tenant.job is not None for tenant in view.tenants)


def _step(tenant: views.TenantView) -> table_cells.Cell:
    return table_cells.text(tenant.step) if tenant.step else table_cells.nothing()


def _by_card(tenant: views.TenantView) -> tuple[bool, int, float, str]:
    return (
        tenant.index is None,
        -1 if tenant.index is None else tenant.index,
        tenant.granted_at,
        tenant.token,
    )


def _narrow(tenant: views.TenantView, rate: usage_rows.Rate, now_ns: int) -> table_cells.Row:
    compute = table_cells.asked(tenant.mode, tenant.compute_percent, tenant.ceiling_percent)
    return (
        table_cells.text(tenant.name),
        table_cells.text(tenant.user),
        table_cells.number(tenant.index),
        table_cells.rounded(table_cells.granted(tenant.memory_mib)),
        table_cells.rounded(table_cells.used(tenant.used_bytes, tenant.memory_mib)),
        table_cells.rounded(table_cells.mib(tenant.peak_bytes)),
        table_cells.got(rate.compute_percent, compute),
        table_cells.fence(tenant.fence),
        table_cells.age(now_ns / 1e9 - tenant.granted_at),
    )


def _tenant(tenant: views.TenantView, rate: usage_rows.Rate, now_ns: int) -> table_cells.Row:
    return (
        table_cells.text(tenant.name),
        table_cells.text(tenant.user),
        table_cells.number(tenant.index),
        table_cells.granted(tenant.memory_mib),
        table_cells.used(tenant.used_bytes, tenant.memory_mib),
        table_cells.mib(tenant.peak_bytes),
        table_cells.asked(tenant.mode, tenant.compute_percent, tenant.ceiling_percent),
        table_cells.percent(rate.compute_percent),
        table_cells.fence(tenant.fence),
        table_cells.age(now_ns / 1e9 - tenant.granted_at),
    )


def _more(tenant: views.TenantView, rate: usage_rows.Rate) -> table_cells.Row:
    processes = None if tenant.processes is None else len(tenant.processes)
    return (
        table_cells.number(tenant.pid),
        table_cells.number(tenant.priority),
        table_cells.number(processes),
        table_cells.text(tenant.mode),
        table_cells.count(tenant.refused),
        table_cells.waited(rate.throttled_percent),
        table_cells.text(tenant.dialect),
        table_cells.text(tenant.token),
        table_cells.text(tenant.uuid),
        table_cells.text(tenant.command),
    )


def _target(
    view: views.View,
    program: views.TenantView | views.WaitingView,
    *,
    since: float,
    processes: tuple[int, ...] = (),
    job: int | None = None,
) -> pages.Target:
    return pages.Target(
        name=program.name,
        user=program.user,
        uid=program.uid,
        pid=program.pid,
        processes=tuple(pid for pid in processes if pid != program.pid),
        since=since,
        lease=str(_leases(view) / program.token),
        job=job,
    )


def _leases(view: views.View) -> Path:
    return location.StateFolder(Path(view.ledger), view.shared, gid=-1).leases


def _waiting(view: views.View) -> Iterator[_Piece]:
    for waiting in view.waiting:
        narrow = (
            table_cells.number(waiting.place),
            table_cells.text(waiting.name),
            table_cells.text(waiting.user),
            table_cells.number(waiting.priority),
            table_cells.text(waiting.asks),
            table_cells.age(view.taken_ns / 1e9 - waiting.asked_at),
        )
        line = pages.Line(
            cells=(*narrow, table_cells.text(waiting.reason)),
            key=("waiting", waiting.token),
            words=f"{waiting.name} {waiting.user}",
            target=_target(view, waiting, since=waiting.asked_at),
        )
        yield _Piece(
            narrow, line, (table_cells.number(waiting.pid), table_cells.text(waiting.token))
        )


def _foreign(process: views.ForeignView) -> _Piece:
    who = (
        table_cells.number(process.pid),
        table_cells.number(process.index),
        table_cells.text(process.user),
    )
    used, command = table_cells.mib(process.used_bytes), table_cells.text(process.command)
    line = pages.Line(
        cells=(*who, used, command),
        key=("foreign", str(process.pid), process.uuid),
        words=f"{process.user or ''} {process.command or ''}",
        target=_FOREIGN.format(process.pid),
    )
    return _Piece(
        (*who, table_cells.rounded(used), command), line, (table_cells.text(process.uuid),)
    )


def _problems(view: views.View) -> Iterator[pages.Line]:
    """One line for each; the problem of a card may be listed twice in a view."""
    unhealthy = ((f"card {card.index}", card.reason) for card in view.cards if card.reason)
    others = ((problem.object, problem.text) for problem in view.problems)
    for what, text in dict.fromkeys((*unhealthy, *others)):
        yield report_page.problem(what, text)
