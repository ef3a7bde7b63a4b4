"""The levels of fences, from the strongest: what each really holds, and the one to use.

| level    | memory                 | compute                 | held by                      |
|----------|------------------------|-------------------------|------------------------------|
| driver   | of the tenant          | not                     | the kernel driver, by cgroup |
| mps      | of each process        | of each process         | the MPS server               |
| hook     | of the tenant          | of the tenant           | our library in the process   |
| advisory | not                    | not                     | nothing: the program is told |

A stronger level is harder to get around, not wider: ``driver`` holds no compute at all.

``hook`` and ``advisory`` are put up. ``driver`` has a fence that no command uses yet, ``mps`` has
none: both are words that users may write, and requests for them are refused with the reason.

Every fence reads back what it set, and raises an error if it reads anything else: a limit that is
not in force is never a success.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterable
from typing import Protocol

import msgspec

from partage.core import errors
from partage.fence.store import limits


@functools.total_ordering
class Level(enum.Enum):
    """What holds a tenant to its limits; ``DRIVER > MPS > HOOK > ADVISORY``."""

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
    """What a limit holds for."""

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
    """Whether a level can be put up on this machine; if not, why, and what to do about it."""

    level: Level
    available: bool
    reason: str = ""
    remedy: str = ""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """The tenant that a fence is put around."""

    name: str
    uid: int | None = None  # None: the user who puts the fence up
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

    def apply(self, subject: Subject, requested: limits.Limits) -> Applied:
        """Put the fence up before the tenant starts; doing it again is harmless."""

    def change(self, subject: Subject, requested: limits.Limits) -> Applied:
        """Change the limits of a running tenant."""

    def release(self, subject: Subject, held: limits.Limits) -> None:
        """Take the fence down after the tenant has ended; doing it again is harmless."""


def strongest(probes: Iterable[Probe]) -> Level:
    """The strongest level that is available; the weakest always is."""
    return max((probe.level for probe in probes if probe.available), default=Level.ADVISORY)


def require(probes: Iterable[Probe], minimum: Level) -> Level:
    """The strongest level, if it is strong enough; else an error that says what is missing."""
    answers = list(probes)
    level = strongest(answers)
    if level >= minimum:
        return level
    missing = [probe for probe in answers if probe.level >= minimum]
    why = "; ".join(f"{probe.level}: {probe.reason}" for probe in missing)
    remedies = list(dict.fromkeys(probe.remedy for probe in missing if probe.remedy))
    raise errors.FenceError(
        f"the fence {minimum} is requested, but the strongest available is {level} ({why})",
        instead=" or ".join([*remedies, f"request {level} only"]),
    )


def unmet(level: Level, name: str, requested: object, actual: object) -> errors.FenceError:
    """The error for a limit that was set and is not what is read back."""
    return errors.FenceError(
        f"{level}: {name} was set to {requested} but reads back as {actual}",
        instead="do not start the tenant; use another level, and report this",
    )
