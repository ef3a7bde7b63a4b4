"""Findings of ``partage doctor``, and the machine that they are about.

A finding that is not a problem may still be worth a note; both say what to do.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from partage.core import errors
from partage.devices import nvml
from partage.local.ledger import ledger, liveness
from partage.local.machine import machine
from partage.local.state import entries, location
from partage.local.view import surroundings


class Status(enum.StrEnum):
    """How serious it is."""

    OK = "ok"
    NOTE = "note"  # works, but not as well as it could
    PROBLEM = "problem"
    UNCHECKED = "unchecked"  # it could not be looked at


class Finding(msgspec.Struct, frozen=True):
    """One line: what was looked at, and what is to be said about it."""

    object: str
    status: Status
    text: str
    remedy: str = ""
    objects: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # where it may be about several


def ok(what: str, text: str) -> Finding:
    """Nothing to do."""
    return Finding(what, Status.OK, text)


def note(what: str, text: str, remedy: str) -> Finding:
    """Worth knowing."""
    return Finding(what, Status.NOTE, text, remedy)


def problem(what: str, text: str, remedy: str) -> Finding:
    """To be put right."""
    return Finding(what, Status.PROBLEM, text, remedy)


def unchecked(what: str, why: str, remedy: str) -> Finding:
    """Nothing can be said about it."""
    return Finding(what, Status.UNCHECKED, f"not checked: {why}", remedy)


def failed(what: str, error: Exception) -> Finding:
    """An examination ended in an error that it does not know."""
    return problem(
        what,
        f"this could not be examined ({type(error).__name__}: {error})",
        "this is a bug in Partage: please report it with this line",
    )


class Context:
    """The machine as examinations see it: each part is looked at once, and nothing is made.

    A part that cannot be read raises its error wherever it is asked for, and the caller decides
    whether to report it.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        driver: nvml.Nvml | None,
        shared: Path = location.SHARED,
        beside: surroundings.Surroundings = surroundings.ALONE,
    ) -> None:
        self.environ = environ
        self.driver = driver
        self.beside = beside
        self._shared = shared

    @functools.cached_property
    def path(self) -> Path:
        """Where the state folder is, or will be."""
        return location.where(self.environ, shared=self._shared)

    @functools.cached_property
    def state(self) -> location.StateFolder | None:
        """The state folder, if it exists and this user may use it."""
        try:
            return location.existing(self.path)
        except errors.LedgerError:
            return None  # the examination of the ledger tells why

    @functools.cached_property
    def swept(self) -> liveness.Swept:
        """The living entries; by their leases alone, where the ledger cannot be read."""
        if self.state is None:
            return liveness.Swept(())
        return liveness.look(self.state, self._rows(self.state))

    @functools.cached_property
    def seen(self) -> machine.Seen | None:
        """What the driver tells, if there is one."""
        return machine.see(self.driver) if self.driver else None

    def _rows(self, state: location.StateFolder) -> list[entries.Entry]:
        try:
            return ledger.rows(state)
        except errors.LedgerError:
            return []
