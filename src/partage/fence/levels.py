"""The levels of fences, from the strongest: what each really holds, and which one to use.

| level    | memory                 | compute                 | held by                      |
|----------|------------------------|-------------------------|------------------------------|
| driver   | of the tenant          | not                     | the kernel driver, by cgroup |
| mps      | of each process        | of each process         | the MPS server               |
| hook     | of the tenant          | of the tenant           | our library in the process   |
| advisory | not                    | not                     | nobody: the program is told  |

A stronger level is harder to get around, not wider: ``driver`` holds no compute at all. So fences
can be put around the same tenant together, and :func:`chosen` says which.

Every fence reads back what it set, and says so if it is not what was asked: a limit that is not in
force is an error, never a success.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from typing import Protocol

import msgspec

from partage.core import errors
from partage.fence import limits


@functools.total_ordering
class Level(enum.Enum):
    """Who holds a tenant to its limits; ``DRIVER > MPS > HOOK > ADVISORY``."""

    DRIVER = "driver"
    MPS = "mps"
    HOOK = "hook"
    ADVISORY = "advisory"

    def __lt__(self, other: Level) -> bool:
        order = list(Level)
        return order.index(self) > order.index(other)

    def __str__(self) -> str:
        return self.value


class Scope(enum.StrEnum):
    """For whom a limit holds."""

    TENANT = "tenant"  # all its processes together
    PROCESS = "process"  # each of them, so that two have twice as much
    NOBODY = "nobody"


class Holding(msgspec.Struct, frozen=True):
    """What a level holds."""

    memory: Scope
    compute: Scope
    live: bool  # whether a change reaches processes that already run


HOLDINGS = {
    Level.DRIVER: Holding(Scope.TENANT, Scope.NOBODY, live=True),
    Level.MPS: Holding(Scope.PROCESS, Scope.PROCESS, live=False),
    Level.HOOK: Holding(Scope.TENANT, Scope.TENANT, live=True),
    Level.ADVISORY: Holding(Scope.NOBODY, Scope.NOBODY, live=False),
}


class Probe(msgspec.Struct, frozen=True):
    """Whether this machine has a level; if not, why, and what would have to be done."""

    level: Level
    available: bool
    reason: str = ""
    remedy: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a fence is put around."""

    name: str
    uid: int | None = None  # None: as whoever puts the fence
    gid: int | None = None
    cgroup: str = ""  # the full path of its leaf, for the driver


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A fence that is in force."""

    level: Level
    limits: limits.Limits  # as read back; what this level does not hold is not limited in it
    environment: dict[str, str] = {}  # what the tenant's processes have to be started with


class Fence(Protocol):
    """One level at work."""

    @property
    def level(self) -> Level:
        """Which one."""

    def apply(self, subject: Subject, asked: limits.Limits) -> Applied:
        """Put the fence up before the tenant starts; once more is no harm."""

    def change(self, subject: Subject, asked: limits.Limits) -> Applied:
        """Move the fence of a tenant that runs."""

    def release(self, subject: Subject, held: limits.Limits) -> None:
        """Take the fence down after the tenant has ended; once more is no harm."""


def strongest(probes: Iterable[Probe]) -> Level:
    """The strongest level that is available; the weakest always is."""
    return max((probe.level for probe in probes if probe.available), default=Level.ADVISORY)


def chosen(
    probes: Iterable[Probe], *, compute: bool = False, minimum: Level = Level.ADVISORY
) -> tuple[Level, ...]:
    """The levels to put around a tenant: the strongest, and one for compute if that has none."""
    known = list(probes)
    first = require(known, minimum)
    if not compute or HOLDINGS[first].compute is not Scope.NOBODY:
        return (first,)
    second = strongest(p for p in known if HOLDINGS[p.level].compute is not Scope.NOBODY)
    return (first,) if second is Level.ADVISORY else (first, second)


def require(probes: Iterable[Probe], minimum: Level) -> Level:
    """The strongest level, if it is strong enough; an error that says why not, if it is not."""
    known = list(probes)
    found = strongest(known)
    if found >= minimum:
        return found
    missing = [probe for probe in known if probe.level >= minimum]
    why = "; ".join(f"{probe.level}: {probe.reason}" for probe in missing)
    remedies = list(dict.fromkeys(probe.remedy for probe in missing if probe.remedy))
    raise errors.FenceError(
        f"the fence {minimum} is asked for, and this machine has {found} ({why})",
        instead=" or ".join([*remedies, f"ask for {found} only"]),
    )


def unmet(level: Level, name: str, asked: object, found: object) -> errors.FenceError:
    """The error for a limit that was set and is not what is read back."""
    return errors.FenceError(
        f"{level}: {name} was set to {asked} and is {found} when read back",
        instead="the tenant must not start: use another level, and report this",
    )
