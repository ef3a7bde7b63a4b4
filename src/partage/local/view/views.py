"""A view: the cards of this machine, their tenants, what waits and what is foreign, at one moment.

What ``partage ps`` prints once and ``partage top`` prints again and again. It is data only; how it
is gathered is told in :mod:`partage.local.view.machine_snapshot`. What nobody can tell is None, and
is shown as ``N/A``: the use of a program that no fence counts, the command of somebody else's
process. The names of the fields are read by programs, and stay.
"""

from __future__ import annotations

import msgspec

from partage.core.problems import Problem
from partage.fence import usage_rows

Key = tuple[str, str]  # token of the grant, uuid of the card


class CardView(msgspec.Struct, frozen=True, kw_only=True):
    """One card: what was granted of it, and what the driver measures."""

    index: int
    uuid: str
    model: str | None
    memory_mib: int
    used_mib: int | None
    utilization_percent: int | None
    temperature_c: int | None
    healthy: bool
    reason: str  # why it is not
    granted_mib: int
    granted_percent: int
    foreign_mib: int  # of processes that Partage did not start
    free_mib: int  # to be granted; negative where others took what was granted
    tenants: int
    managed_by: str = ""  # who gives it away, if that is not `partage run`: slurm


class TenantView(msgspec.Struct, frozen=True, kw_only=True):
    """One grant, or job of Slurm, on one of its cards; with three cards it is there three times."""

    token: str  # of the grant; names may come again
    name: str
    user: str
    uid: int
    pid: int | None  # of the program that was started; it may have ended before its children
    processes: tuple[int, ...] | None  # that use CUDA now, as far as the fence tells
    command: str | None  # None where the kernel does not tell it to this user
    index: int | None  # of the card; None if it is gone
    uuid: str
    memory_mib: int  # granted
    exclusive: bool
    compute_percent: int  # granted; 0: nothing was said
    ceiling_percent: int | None  # of mode burst
    mode: str  # of compute: none, fixed, burst or best-effort
    fence: str  # the level in force; "starting" until it is known, "outside" of what escaped it
    granted_at: float  # seconds since 1970
    priority: int
    dialect: str
    used_bytes: int | None
    peak_bytes: int | None
    refused: int | None  # allocations, because of the quota
    busy_ns: int | None
    throttled_ns: int | None
    launches: int | None
    outside_bytes: int | None = None  # not counted by its fence, or above its quota
    outside_pid: int | None = None  # the process that has most of it
    job: int | None = None  # of Slurm; such a tenant was started by Slurm, and has no pid
    step: str | None = None  # of the job, in whose row it is counted, too; None: all of it

    @property
    def key(self) -> Key:
        """What makes it the same in two views."""
        return self.token, self.uuid


class WaitingView(msgspec.Struct, frozen=True, kw_only=True):
    """One request in the queue."""

    place: int  # 1 is the next
    token: str
    name: str
    user: str
    uid: int
    pid: int
    priority: int
    asks: str  # "4096 MiB and 30 % of one card"
    asked_at: float  # seconds since 1970
    reason: str  # what it waits for


class ForeignView(msgspec.Struct, frozen=True, kw_only=True):
    """A process on a card that Partage did not start."""

    index: int
    uuid: str
    pid: int
    user: str | None
    command: str | None
    used_bytes: int | None


class View(msgspec.Struct, frozen=True, kw_only=True):
    """This machine at one moment."""

    api_version: str = msgspec.field(default="output.partage.dev/v1", name="apiVersion")
    kind: str = "View"
    node: str
    taken_ns: int  # since 1970
    simulated: bool
    ledger: str  # its folder
    shared: bool  # whether all users of the machine share it
    cards: tuple[CardView, ...]
    tenants: tuple[TenantView, ...]
    waiting: tuple[WaitingView, ...] = ()
    foreign: tuple[ForeignView, ...] = ()
    problems: tuple[Problem, ...] = ()


def rates(before: View | None, now: View) -> dict[Key, usage_rows.Rate]:
    """What tenants got between two views."""
    if before is None:
        return {}
    return usage_rows.rates(before.tenants, now.tenants, now.taken_ns - before.taken_ns)
