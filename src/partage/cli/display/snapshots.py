"""Snapshots: what is shown of one moment, with the rates since the snapshot before.

There are two kinds. An agent's report (or one made of a folder of fences) has containers, a view of
this machine has tenants; both give a page for people and an object for programs, and nobody else
has to know which it is. The column GOT needs two snapshots: the first one has no rates, and
:meth:`Snapshot.next` takes the second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from partage.agent import reports
from partage.cli.display import machine_page, pages, report_page
from partage.fence import usage_rows
from partage.local.view import views


class Snapshot(Protocol):
    """One moment."""

    def next(self) -> Snapshot:
        """The next one; an error leaves this one as it is."""

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        """For people; an agent's report has one form only."""

    def json(self) -> str:
        """For programs: what was taken, and in each row what it got since the snapshot before."""


class ReportSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of a node's agent, or of a folder of fences."""

    take: Callable[[], reports.Report]
    report: reports.Report
    rates: report_page.Rates = {}

    def next(self) -> ReportSnapshot:
        now = self.take()
        # The same report again has nothing new.
        return ReportSnapshot(self.take, now, reports.rates(self.report, now) or self.rates)

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        return report_page.page(self.report, self.rates)

    def json(self) -> str:
        return _json(self.report, "containers", _rated(self.report.containers, self.rates))


class MachineSnapshot(msgspec.Struct, frozen=True):
    """A snapshot of this machine."""

    take: Callable[[], views.View]
    view: views.View
    rates: machine_page.Rates = {}

    def next(self) -> MachineSnapshot:
        now = self.take()
        return MachineSnapshot(self.take, now, views.rates(self.view, now) or self.rates)

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        return machine_page.page(self.view, self.rates, form)

    def json(self) -> str:
        return _json(self.view, "tenants", _rated(self.view.tenants, self.rates))


def of_agent(take: Callable[[], reports.Report]) -> ReportSnapshot:
    """The first snapshot of an agent."""
    return ReportSnapshot(take, take())


def of_machine(take: Callable[[], views.View]) -> MachineSnapshot:
    """The first snapshot of this machine."""
    return MachineSnapshot(take, take())


def second(first: Snapshot, *, wait: Callable[[float], object], apart_s: float) -> Snapshot:
    """A second snapshot, if there is a tenant that could have got time of a card meanwhile."""
    if not first.page().tenants.lines:
        return first
    wait(apart_s)
    return first.next()


def _rated(
    listed: Iterable[usage_rows.Row[Any]], rates: Mapping[Any, usage_rows.Rate]
) -> list[dict[str, float | None]]:
    """What each row got."""
    rows = (rates.get(row.key) for row in listed)
    return [
        {
            "got_percent": rate.compute_percent if rate else None,
            "throttled_percent": rate.throttled_percent if rate else None,
        }
        for rate in rows
    ]


def _json(
    taken: reports.Report | views.View, name: str, more: Iterable[dict[str, float | None]]
) -> str:
    plain = msgspec.to_builtins(taken)
    for row, rated in zip(plain[name], more, strict=True):
        row.update(rated)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
