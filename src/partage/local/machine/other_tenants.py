"""Tenants on this machine that something else than ``partage run`` made: jobs of Slurm.

They have fences like programs, under a root of their own. The ledger does not have them, and does
not give away their cards; those who look at the machine want to see them all the same. Who finds
them is no affair of this package: a source is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

import msgspec

from partage.core import cards, grants
from partage.core.quantities import MIB
from partage.fence import processes
from partage.fence.store import limits, roots, tenants


class OtherTenant(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    job: int  # its number, by which people know it
    uid: int
    since: float  # seconds since 1970
    tenant: tenants.Tenant


class OtherTenants(msgspec.Struct, frozen=True):
    """Those of one moment, by the names of their tenants."""

    root: roots.Root | None = None
    tenants: Mapping[str, OtherTenant] = {}
    whose: Callable[[processes.Facts], str] = lambda _process: ""  # by what the kernel says
    job_of: Callable[[processes.Facts], int | None] = lambda _process: None  # with a fence or not
    step_name: Callable[[int], str] = str  # of the step that is a group of a tenant

    def owners(self, pids: Collection[int]) -> dict[int, str]:
        """Those of these processes that are theirs, with the names of their tenants."""
        if not self.tenants:
            return {}
        living = (process for pid in pids if (process := processes.facts(pid)))
        return {process.pid: name for process in living if (name := self.whose(process))}

    def unfenced(self, pids: Collection[int]) -> dict[int, int]:
        """Those of these processes that are of jobs without a fence, with the jobs' numbers.

        The cards of such a job are its own.
        """
        fenced = {tenant.job for tenant in self.tenants.values()}
        living = (process for pid in pids if (process := processes.facts(pid)))
        jobs = {process.pid: self.job_of(process) for process in living}
        return {pid: job for pid, job in jobs.items() if job is not None and job not in fenced}


Source = Callable[[], OtherTenants]


def none() -> OtherTenants:
    """The source where nobody else has tenants."""
    return OtherTenants()


def granted(others: OtherTenants, node: cards.Node) -> Iterator[grants.Grant]:
    """What they have of the node's cards, as grants."""
    indexes = {card.uuid: card.index for card in node.cards}
    for name, other in others.tenants.items():
        shares = tuple(
            _share(card, indexes[card.uuid])
            for card in other.tenant.limits.cards
            if card.uuid in indexes
        )
        if shares:
            container = grants.ContainerGrant(name="", shares=shares)
            yield grants.Grant(pod=grants.Pod(name), node=node.name, containers=(container,))


def memory_mib(card: limits.CardLimits) -> int:
    """What a tenant may have of a card; 0: all of it."""
    return 0 if card.memory_bytes == limits.NO_QUOTA else card.memory_bytes // MIB


def percent(share_millionths: int) -> int:
    """What is promised of a card's time."""
    return share_millionths // limits.MILLIONTHS_PER_PERCENT


def _share(card: limits.CardLimits, index: int) -> grants.Share:
    return grants.Share(
        uuid=card.uuid,
        index=index,
        memory_mib=memory_mib(card),
        compute_percent=percent(card.share_millionths),
    )
