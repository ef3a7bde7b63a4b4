"""What is known of cards, processes and tenants at one moment: what the watch judges by.

The driver's numbers cannot be changed by a tenant; what its fence counts can, because the tenant
writes it. So nothing here is believed that would only help whoever wrote it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from partage.core.quantities import MIB


class Holding(msgspec.Struct, frozen=True):
    """A process on a card, as the driver says; None: it does not tell how much."""

    uuid: str
    pid: int  # as this reader's pid namespace knows it
    used_bytes: int | None


class Card(msgspec.Struct, frozen=True):
    """A card with all that is in use there, by whomever; None: the driver does not tell."""

    uuid: str
    used_bytes: int | None


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A living process of a tenant; an id alone is not enough, since ids come again."""

    pid: int
    started_ticks: int
    inner_pid: int  # in its own pid namespace: what its fence knows it by
    tenant: str


class Counted(msgspec.Struct, frozen=True):
    """What the fence counts for one living process on one card."""

    inner_pid: int
    used_bytes: int


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant's part of one card."""

    uuid: str
    quota_bytes: int | None  # None: as much as the card has
    context_bytes: int  # what one context costs; 0: nobody measured it
    timed: bool = False  # its part of the card's time is limited
    counted: tuple[Counted, ...] = ()


class Tenant(msgspec.Struct, frozen=True):
    """A tenant with a fence that counts."""

    name: str
    shares: tuple[Share, ...]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One look: the driver is asked first, and the fences afterwards."""

    taken_s: float  # of a clock that does not jump
    cards: tuple[Card, ...]
    holdings: tuple[Holding, ...]
    processes: tuple[Process, ...]  # of tenants; those of others are not named
    tenants: tuple[Tenant, ...]


class Kind(enum.StrEnum):
    """What was found."""

    OUTSIDE = "outside"  # a process of the tenant is not behind its fence
    EXCESS = "excess"  # the tenant has more than its quota


class Then(enum.StrEnum):
    """What is done about a finding."""

    TELL = "tell"  # whoever looks
    PAUSE = "pause"  # launches of the tenant's processes that are behind the fence
    END = "end"  # the process


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmed: a tenant has card memory that its fence does not hold."""

    kind: Kind
    tenant: str
    uuid: str
    process: Process  # the one that explains most of it
    held_bytes: int  # by that process
    real_bytes: int  # by all processes of the tenant
    beyond_bytes: int  # of the tenant: not counted by its fence, or above its quota
    harms: bool  # others lack what they were promised: memory above the quota, or time
    since_s: float  # when it was first seen

    def marks(self, counted_bytes: int | None) -> dict[str, Any]:
        """What a row of the tenant shows of it: the driver's word, and not the fence's."""
        return {
            "fence": Kind.OUTSIDE.value,
            "used_bytes": max(counted_bytes or 0, self.real_bytes),
            "outside_bytes": self.beyond_bytes,
            "outside_pid": self.process.pid,
        }

    @property
    def text(self) -> str:
        """What a process holds, for people; of which card is said by whoever knows its number."""
        counts = "not counted by its fence" if self.kind is Kind.OUTSIDE else "above its quota"
        beyond_mib = self.beyond_bytes // MIB
        return (
            f"process {self.process.pid} is outside its fence: it holds "
            f"{self.held_bytes // MIB} MiB, and {beyond_mib} MiB of the tenant are {counts}"
        )


def gravest(findings: Iterable[Finding]) -> dict[Process, Finding]:
    """One for each process, which may be found for several reasons: the first that harms others."""
    chosen: dict[Process, Finding] = {}
    for finding in findings:
        before = chosen.setdefault(finding.process, finding)
        if finding.harms and not before.harms:
            chosen[finding.process] = finding
    return chosen
