"""Escapes: a tenant has card memory that its fence does not hold, and what is done about it."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from partage.core.quantities import MIB
from partage.fence.watch import samples


class Kind(enum.StrEnum):
    """What was found."""

    OUTSIDE = "outside"  # a process of the tenant is not behind its fence
    EXCESS = "excess"  # the tenant has more than its quota


class Then(enum.StrEnum):
    """What is done about a finding."""

    TELL = "tell"  # report it, to those who look
    PAUSE = "pause"  # launches of the tenant's processes that are behind the fence
    END = "end"  # the process


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Confirmed: a tenant has card memory that its fence does not hold."""

    kind: Kind
    tenant: str
    uuid: str
    process: samples.Process  # the one that explains most of it
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
        """What a process holds, for people; the caller knows the card's number, and adds it."""
        counts = "not counted by its fence" if self.kind is Kind.OUTSIDE else "above its quota"
        beyond_mib = self.beyond_bytes // MIB
        return (
            f"process {self.process.pid} is outside its fence: it holds "
            f"{self.held_bytes // MIB} MiB, and {beyond_mib} MiB of the tenant are {counts}"
        )


def gravest(findings: Iterable[Finding]) -> dict[samples.Process, Finding]:
    """One for each process, which may be found for several reasons: the first that harms others."""
    chosen: dict[samples.Process, Finding] = {}
    for finding in findings:
        before = chosen.setdefault(finding.process, finding)
        if finding.harms and not before.harms:
            chosen[finding.process] = finding
    return chosen
