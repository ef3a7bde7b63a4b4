"""Entries: the programs that have a grant on this machine, and those that wait for one.

An entry is a row of the ledger and, as its owner wrote it, the content of their lease. It says
nothing about the environment of the program, nor about its arguments: those are shown as far as the
kernel shows them to the user who asks.
"""

from __future__ import annotations

import re

import msgspec

from partage.core import cards, demands, errors, grants

CONTAINER = ""  # a program has one, and it needs no name
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
TOKEN = re.compile(r"[0-9a-f]{16}")
MOST_PRIORITY = 1000
MOST_MIB = 1 << 32  # that a share may have of a card: 4 PiB
_MOST_PID = 1 << 22  # no kernel gives a larger one
_MOST_TICKS = 1 << 62


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One request on its way, or one program that runs."""

    token: str  # names its lease, and is never used again
    seq: int  # its place among those who came before and after
    uid: int
    name: str
    boot_id: str  # of the kernel that knows the process: nobody outlives a reboot
    pid: int
    started_ticks: int  # when that process started, since boot: a process id may come again
    priority: int
    asked_at: float  # seconds since 1970
    demand: demands.PodDemand
    granted_at: float | None = None
    grant: grants.Grant | None = None  # None: it waits

    @property
    def tenant(self) -> str:
        """The name of its fence's tenant; with the token, since names come again."""
        return f"{self.name}.{self.token}"

    @property
    def since(self) -> float:
        """Since when it has what it has, or waits."""
        return self.asked_at if self.granted_at is None else self.granted_at

    @property
    def container(self) -> grants.ContainerGrant | None:
        """What the program was granted."""
        return self.grant.containers[0] if self.grant else None


def sound(entry: Entry, uid: int) -> bool:
    """Whether an entry that a user wrote is one that they could have been given.

    A share below nothing would make room for others that is not there.
    """
    grant = entry.grant
    if entry.uid != uid or not NAME.fullmatch(entry.name) or len(entry.demand.containers) != 1:
        return False
    if not 0 < entry.pid <= _MOST_PID or not 0 <= entry.started_ticks <= _MOST_TICKS:
        return False
    if abs(entry.priority) > MOST_PRIORITY or (grant is None) != (entry.granted_at is None):
        return False
    if grant is None:
        return True
    if grant.pod.uid != entry.token or len(grant.containers) != 1:
        return False
    shares = grant.containers[0].shares
    return bool(shares) and all(map(_sound, shares))


def _sound(share: grants.Share) -> bool:
    return 0 <= share.memory_mib <= MOST_MIB and 0 <= share.compute_percent <= cards.FULL_PERCENT


def check_name(name: str) -> None:
    """Refuse what cannot be a name."""
    if not NAME.fullmatch(name):
        raise errors.InputError(
            f"{name[:80]!r} is not a valid name",
            instead="write up to 63 of A-Z, a-z, 0-9, '.', '-' and '_'; a letter or a digit first",
        )


def default_name(program: str, seq: int) -> str:
    """A name for a program that was given none: ``python-17``."""
    base = program.rsplit("/", 1)[-1]
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", base)[:40].lstrip("._-")
    return f"{plain or 'run'}-{seq}"
