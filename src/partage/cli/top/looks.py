"""Looks: one moment of whatever is shown, with what happened since the moment before.

There are two kinds. An agent's report (or one made of a folder of fences) has containers, a view of
this machine has tenants; both give a page for people and an object for programs, and nobody else
has to know which it is. GOT needs two moments: a first look has none, and :meth:`Look.again` takes
the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from partage.agent import reporting
from partage.cli import ps_rows
from partage.cli.top import pages, rows
from partage.fence import tallies
from partage.local import views


class Look(Protocol):
    """One moment."""

    def again(self) -> Look:
        """The next one; an error leaves this one as it is."""

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        """For people; an agent's report has one form only."""

    def json(self) -> str:
        """For programs: what was taken, and in each row what it got since the look before."""


class ReportLook(msgspec.Struct, frozen=True):
    """A look at a node's agent, or at a folder of fences."""

    take: Callable[[], reporting.Report]
    report: reporting.Report
    rates: rows.Rates = {}

    def again(self) -> ReportLook:
        now = self.take()
        # The same report once more tells nothing new.
        return ReportLook(self.take, now, reporting.rates(self.report, now) or self.rates)

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        return rows.page(self.report, self.rates)

    def json(self) -> str:
        return _json(self.report, "containers", _rated(self.report.containers, self.rates))


class ViewLook(msgspec.Struct, frozen=True):
    """A look at this machine."""

    take: Callable[[], views.View]
    view: views.View
    rates: ps_rows.Rates = {}

    def again(self) -> ViewLook:
        now = self.take()
        return ViewLook(self.take, now, views.rates(self.view, now) or self.rates)

    def page(self, form: pages.Form = pages.Form.USUAL) -> pages.Page:
        return ps_rows.page(self.view, self.rates, form)

    def json(self) -> str:
        return _json(self.view, "tenants", _rated(self.view.tenants, self.rates))


def of_agent(take: Callable[[], reporting.Report]) -> ReportLook:
    """The first look at an agent."""
    return ReportLook(take, take())


def of_machine(take: Callable[[], views.View]) -> ViewLook:
    """The first look at this machine."""
    return ViewLook(take, take())


def twice(first: Look, *, wait: Callable[[float], object], apart_s: float) -> Look:
    """A second look, where there is anybody who could have got something meanwhile."""
    if not first.page().tenants.lines:
        return first
    wait(apart_s)
    return first.again()


def _rated(
    listed: Iterable[tallies.Counted[Any]], rates: Mapping[Any, tallies.Rate]
) -> list[dict[str, float | None]]:
    """What each row got."""
    found = (rates.get(row.key) for row in listed)
    return [
        {
            "got_percent": rate.compute_percent if rate else None,
            "throttled_percent": rate.throttled_percent if rate else None,
        }
        for rate in found
    ]


def _json(
    taken: reporting.Report | views.View, name: str, more: Iterable[dict[str, float | None]]
) -> str:
    plain = msgspec.to_builtins(taken)
    for row, rated in zip(plain[name], more, strict=True):
        row.update(rated)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
