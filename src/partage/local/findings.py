"""Findings of ``partage doctor``, and the machine that they are about.

A finding that is no problem may still be worth a note; both say what to do.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.local import entries, ledger, machine, places, sweeping


class Status(enum.StrEnum):
    """How serious it is."""

    OK = "ok"
    NOTE = "note"  # works, but not as well as it could
    PROBLEM = "problem"


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, and what is to be said about it."""

    object: str
    status: Status
    text: str
    remedy: str = ""


def ok(what: str, text: str) -> Finding:
    """All is well."""
    return Finding(what, Status.OK, text)


def note(what: str, text: str, remedy: str) -> Finding:
    """Worth knowing."""
    return Finding(what, Status.NOTE, text, remedy)


def problem(what: str, text: str, remedy: str) -> Finding:
    """To be put right."""
    return Finding(what, Status.PROBLEM, text, remedy)


class Around:
    """The machine as examinations see it: each part is looked at once, and nothing is made.

    A part that cannot be had raises its error wherever it is asked for; who asks decides whether
    that is his to tell.
    """

    def __init__(
        self, environ: Mapping[str, str], driver: nvml.Nvml | None, shared: Path = places.SHARED
    ) -> None:
        self.environ = environ
        self.driver = driver
        self._shared = shared

    @functools.cached_property
    def path(self) -> Path:
        """Where the ledger's place is, or will be."""
        return places.where(self.environ, shared=self._shared)

    @functools.cached_property
    def place(self) -> places.Place | None:
        """The place, if it is there and this user may use it."""
        try:
            return places.there(self.path)
        except errors.LedgerError:
            return None  # the examination of the ledger tells why

    @functools.cached_property
    def swept(self) -> sweeping.Swept:
        """Who lives, as far as the leases tell where the ledger cannot be read."""
        if self.place is None:
            return sweeping.Swept(())
        return sweeping.look(self.place, self._rows(self.place))

    @functools.cached_property
    def seen(self) -> machine.Seen | None:
        """What the driver tells, if there is one."""
        return machine.see(self.driver) if self.driver else None

    def _rows(self, place: places.Place) -> list[entries.Entry]:
        try:
            return ledger.rows(place)
        except errors.LedgerError:
            return []
