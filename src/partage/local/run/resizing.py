"""Resizing: a share is changed while its program runs.

The core decides whether the new share fits beside the others on the same cards; the program stays
where it is. Memory can be lowered to what is in use and no further, since nothing takes memory from
a program that has it.

The order is such that nobody is given what is not there. A smaller share is fenced first; then it
is looked whether the program has taken more meanwhile, and only then the ledger has the rest for
others. A larger one is in the ledger first; then the fence is moved out to what the ledger has by
then, since somebody else may have changed it again. Memory and time are looked at each by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec

from partage.core import cards, demands, errors, grants
from partage.core.placement import fitting
from partage.core.quantities import MIB
from partage.fence import usage
from partage.fence.levels import catalog
from partage.fence.store import limits, roots, tenants
from partage.local.ledger import liveness, session
from partage.local.machine import machine
from partage.local.queue import decision, refusal_texts, wait_reasons, wakeup
from partage.local.state import entries, leases, location

_PLENTY_MIB = 1 << 40


class Resized(msgspec.Struct, frozen=True):
    """A share before and after."""

    name: str
    before: grants.ContainerGrant
    after: grants.ContainerGrant
    held: bool  # whether a fence holds the program to it


def resize(opened: session.Session, name: str, changes: dict[str, Any]) -> Resized:
    """Change what a program has of each of its cards; changes are fields of its Demand."""
    seen = machine.see(opened.driver)
    with (
        contextlib.ExitStack() as undone,
        opened.book.deciding(),
    ):  # undone, too, if the commit fails
        living = liveness.sweep(opened.state, opened.book).living
        entry, before = _resizable(living, name)
        node = machine.understood(seen, living, opened.state).node
        resized, after = _decided(node, living, entry, before, changes)
        told_mib = machine.used_mib(seen, living, opened.state, entry.token)
        fence, held = _fence(opened.state, entry, told_mib), _held(opened.state, entry)
        undone.enter_context(_lowered(fence, before, after))
        undone.enter_context(_rewritten(opened.state, entry, resized))
        opened.book.update(resized)
    _raise(opened, entry.token, fence)
    wakeup.send(opened.state.leases / entry.token)
    return Resized(name, before, after, held)


def _resizable(
    living: tuple[entries.Entry, ...], name: str
) -> tuple[entries.Entry, grants.ContainerGrant]:
    entry = next((other for other in living if other.name == name), None)
    if entry is None:
        running = ", ".join(other.name for other in living if other.grant)
        names = f"these run: {running}" if running else "nothing is running"
        raise errors.InputError(f"no program is named {name or repr(name)}", instead=names)
    if not liveness.is_own(entry):
        raise errors.InputError(
            f"{name} belongs to {location.user_name(entry.uid)}",
            instead="only its user, or root, may change a share",
        )
    if entry.container is None:
        raise errors.InputError(
            f"{name} waits in the queue", instead="leave it there with Ctrl-C, and ask again"
        )
    if not entry.container.fence:  # its own process still writes its lease and its fence
        raise errors.LedgerError(f"{name} is still starting", instead="try again in a moment")
    if any(share.exclusive for share in entry.container.shares):
        raise errors.InputError(
            f"{name} has its cards for itself: there is no share to change",
            instead="end it, and start it with --memory",
        )
    return entry, entry.container


def _decided(
    node: cards.Node,
    living: tuple[entries.Entry, ...],
    entry: entries.Entry,
    before: grants.ContainerGrant,
    changes: dict[str, Any],
) -> tuple[entries.Entry, grants.ContainerGrant]:
    """Would the new share be granted on the same cards, if the old one were not there?"""
    uuids = tuple(share.uuid for share in before.shares)
    demand = _changed(entry.demand, changes)
    pinned = _changed(demand, {"cards": len(uuids), "uuids": uuids, "max_tenants": 0})
    others = [other for other in living if other.token != entry.token]
    fleet = decision.fleet_with(_roomy(node, demand), others)
    chosen, node_state = fleet.place(pinned, node.name), fleet.state(node.name)
    if chosen is None or node_state is None or entry.grant is None:
        refused = [
            refusal_texts.on_this_machine(refusal, pinned, node) for refusal in fleet.refuse(pinned)
        ]
        why = wait_reasons.refused(refused[0]) if refused else "its cards are gone"
        if refused and refused[0].never:
            raise errors.InputError(
                f"{entry.name} can never have that: {why}", instead="ask for less"
            )
        raise wait_reasons.NoRoom(
            f"{entry.name} cannot have that: {why}",
            instead="`partage ps` shows who else is on its cards",
        )
    made = fitting.grant(node_state, pinned, chosen, pod=entry.grant.pod, policy=entry.grant.policy)
    after = msgspec.structs.replace(made.containers[0], fence=before.fence)
    grant = msgspec.structs.replace(entry.grant, containers=(after,))
    return msgspec.structs.replace(entry, demand=demand, grant=grant), after


def _roomy(node: cards.Node, demand: demands.PodDemand) -> cards.Node:
    """The node for a program without a memory share that is there already: none need be free."""
    share = demand.containers[0].demand
    if share.memory_mib or share.memory_percent:
        return node
    replace = msgspec.structs.replace
    roomy = (replace(card, memory_mib=_PLENTY_MIB, foreign_memory_mib=0) for card in node.cards)
    return replace(node, cards=tuple(roomy))


def _changed(pod: demands.PodDemand, changes: dict[str, Any]) -> demands.PodDemand:
    container = pod.containers[0]
    memory = {"memory_mib", "memory_percent"} & changes.keys()
    plain: dict[str, Any] = {"memory_mib": 0, "memory_percent": 0} if memory else {}
    demand = msgspec.structs.replace(container.demand, **(plain | changes))
    return msgspec.structs.replace(
        pod, containers=(msgspec.structs.replace(container, demand=demand),)
    )


class _Fence:
    """The fence of a program that runs, if it has one.

    Where none reaches the program there may be one for its children all the same, and what the
    program itself uses is as the driver has told it.
    """

    def __init__(
        self, root: roots.Root, tenant: tenants.Tenant | None, told_mib: dict[str, int]
    ) -> None:
        self._root = root
        self._name = tenant.name if tenant else ""
        self._contexts = (
            {card.uuid: card.context_bytes for card in tenant.limits.cards} if tenant else {}
        )
        self._told_mib = told_mib

    def hold(self, container: grants.ContainerGrant) -> None:
        """Hold the program to what it is granted."""
        if not self._name:
            return
        granted = limits.granted(container, context_bytes=self._contexts)
        order = {uuid: position for position, uuid in enumerate(self._contexts)}
        ordered = sorted(granted.cards, key=lambda card: order[card.uuid])
        tenants.replace(self._root, self._name, limits.Limits(tuple(ordered)))

    def used_mib(self) -> dict[str, int]:
        """What it uses now of each card."""
        used = usage.snapshot(self._root, self._name).cards if self._name else ()
        counted_mib = {card.uuid: -(-card.used_bytes // MIB) for card in used}
        uuids = counted_mib.keys() | self._told_mib.keys()
        return {uuid: max(counted_mib.get(uuid, 0), self._told_mib.get(uuid, 0)) for uuid in uuids}


def _fence(state: location.StateFolder, entry: entries.Entry, told_mib: dict[str, int]) -> _Fence:
    """What the driver told is a moment old, and not needed where the fence counts."""
    root = roots.find(state.fence)
    if _hooked(entry):
        return _Fence(root, tenants.read(root, entry.tenant), {})
    has_fence = entry.tenant in tenants.names(root)
    return _Fence(root, tenants.read(root, entry.tenant) if has_fence else None, told_mib)


def _held(state: location.StateFolder, entry: entries.Entry) -> bool:
    return _hooked(entry) or tenants.running(roots.find(state.fence), entry.tenant) > 0


def _hooked(entry: entries.Entry) -> bool:
    return entry.container is not None and entry.container.fence == str(catalog.Level.HOOK)


@contextlib.contextmanager
def _lowered(
    fence: _Fence, before: grants.ContainerGrant, after: grants.ContainerGrant
) -> Iterator[None]:
    """The fence moved in, if the share becomes smaller; moved out again if that fails."""
    narrower = _narrower(before, after)
    if narrower == before:
        yield
        return
    fence.hold(narrower)
    try:
        _check_used(fence, before, narrower)
        yield
    except BaseException:
        fence.hold(before)
        raise


def _narrower(before: grants.ContainerGrant, after: grants.ContainerGrant) -> grants.ContainerGrant:
    """What both allow: the less of each card's memory, and the smaller part of its time."""
    had = {share.uuid: share.memory_mib for share in before.shares}
    gets = {share.uuid: share.memory_mib for share in after.shares}
    timed = min(
        before, after, key=lambda container: sum(s.compute_percent for s in container.shares)
    )
    shares = (
        msgspec.structs.replace(share, memory_mib=_less(had[share.uuid], gets[share.uuid]))
        for share in timed.shares
    )
    return msgspec.structs.replace(timed, shares=tuple(shares))


def _less(one_mib: int, other_mib: int) -> int:
    """The smaller quota; 0 means that there is none."""
    return min(one_mib or other_mib, other_mib or one_mib)


def _check_used(
    fence: _Fence, before: grants.ContainerGrant, narrower: grants.ContainerGrant
) -> None:
    """Refuse to take away what the program has by now."""
    had = {share.uuid: share.memory_mib for share in before.shares}
    used_mib = fence.used_mib()
    over = [
        (used_mib[share.uuid] - share.memory_mib, share)
        for share in narrower.shares
        if share.memory_mib != had[share.uuid] and used_mib.get(share.uuid, 0) > share.memory_mib
    ]
    if over:
        _, worst = max(over, key=lambda excess: excess[0])
        raise errors.InputError(
            f"{used_mib[worst.uuid]} MiB of card {worst.index} are in use, "
            "and nothing takes memory from a program that has it",
            instead=f"leave it {used_mib[worst.uuid]}MiB or more, or let the program free some",
        )


def _raise(opened: session.Session, token: str, fence: _Fence) -> None:
    """Hold the program to what it has now, while nobody changes that."""
    with opened.book.deciding():
        lease_file = leases.find(opened.state.leases, token)
        if (
            lease_file is not None
            and lease_file.entry is not None
            and lease_file.entry.container is not None
        ):
            fence.hold(lease_file.entry.container)


@contextlib.contextmanager
def _rewritten(
    state: location.StateFolder, before: entries.Entry, after: entries.Entry
) -> Iterator[None]:
    """The lease, which is believed before the ledger."""
    leases.rewrite(state.leases, after)
    try:
        yield
    except BaseException:
        leases.rewrite(state.leases, before)
        raise
