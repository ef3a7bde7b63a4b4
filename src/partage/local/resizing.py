"""Resizing: a share changed while its program runs.

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

from partage.core import cards, demands, errors, fitting, grants
from partage.core.quantities import MIB
from partage.fence import levels, limits, roots, tenants, usage
from partage.local import (
    bells,
    entries,
    granting,
    leases,
    machine,
    places,
    reasons,
    sessions,
    sweeping,
)

_PLENTY_MIB = 1 << 40


class Resized(msgspec.Struct, frozen=True):
    """A share before and after."""

    name: str
    before: grants.ContainerGrant
    after: grants.ContainerGrant
    held: bool  # whether a fence holds the program to it


def resize(here: sessions.Session, name: str, changes: dict[str, Any]) -> Resized:
    """Change what a program has of each of its cards; changes are fields of its Demand."""
    seen = machine.see(here.driver)
    with contextlib.ExitStack() as undone, here.book.deciding():  # undone, too, if the commit fails
        living = sweeping.sweep(here.place, here.book).living
        entry, before = _resizable(living, name)
        node = machine.understood(seen, living, here.place).node
        resized, after = _decided(node, living, entry, before, changes)
        told_mib = machine.used_mib(seen, living, here.place, entry.token)
        fence, held = _fence(here.place, entry, told_mib), _held(here.place, entry)
        undone.enter_context(_lowered(fence, before, after))
        undone.enter_context(_rewritten(here.place, entry, resized))
        here.book.update(resized)
    _raise(here, entry.token, fence)
    bells.ring(here.place.leases / entry.token)
    return Resized(name, before, after, held)


def _resizable(
    living: tuple[entries.Entry, ...], name: str
) -> tuple[entries.Entry, grants.ContainerGrant]:
    entry = next((each for each in living if each.name == name), None)
    if entry is None:
        there = ", ".join(each.name for each in living if each.grant) or "nobody"
        raise errors.InputError(
            f"there is no program {name or repr(name)}", instead=f"there is {there}"
        )
    if not sweeping.mine(entry):
        raise errors.InputError(
            f"{name} is {places.user_name(entry.uid)}'s",
            instead="only its user, or root, changes a share",
        )
    if entry.container is None:
        raise errors.InputError(
            f"{name} waits in the queue", instead="leave it there with Ctrl-C, and ask again"
        )
    if not entry.container.fence:  # its own process still writes its lease and its fence
        raise errors.LedgerError(f"{name} is just being started", instead="try again in a moment")
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
    known, _ = granting.world(
        _roomy(node, demand), [each for each in living if each.token != entry.token]
    )
    chosen, state = known.place(pinned, node.name), known.state(node.name)
    if chosen is None or state is None or entry.grant is None:
        refused = known.refuse(pinned)
        why = reasons.refused(refused[0]) if refused else "its cards are gone"
        if refused and refused[0].never:
            raise errors.InputError(
                f"{entry.name} can never have that: {why}", instead="ask for less"
            )
        raise reasons.NoRoom(
            f"{entry.name} cannot have that: {why}",
            instead="`partage ps` shows who else is on its cards",
        )
    made = fitting.grant(state, pinned, chosen, pod=entry.grant.pod, policy=entry.grant.policy)
    after = msgspec.structs.replace(made.containers[0], fence=before.fence)
    grant = msgspec.structs.replace(entry.grant, containers=(after,))
    return msgspec.structs.replace(entry, demand=demand, grant=grant), after


def _roomy(node: cards.Node, demand: demands.PodDemand) -> cards.Node:
    """The node as one finds it who takes no memory and is there already: none need be free."""
    asked = demand.containers[0].demand
    if asked.memory_mib or asked.memory_percent:
        return node
    replace = msgspec.structs.replace
    roomy = (replace(each, memory_mib=_PLENTY_MIB, foreign_memory_mib=0) for each in node.cards)
    return replace(node, cards=tuple(roomy))


def _changed(asked: demands.PodDemand, changes: dict[str, Any]) -> demands.PodDemand:
    container = asked.containers[0]
    memory = {"memory_mib", "memory_percent"} & changes.keys()
    plain: dict[str, Any] = {"memory_mib": 0, "memory_percent": 0} if memory else {}
    demand = msgspec.structs.replace(container.demand, **(plain | changes))
    return msgspec.structs.replace(
        asked, containers=(msgspec.structs.replace(container, demand=demand),)
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
        wanted = limits.granted(container, context_bytes=self._contexts)
        order = {uuid: place for place, uuid in enumerate(self._contexts)}
        ordered = sorted(wanted.cards, key=lambda card: order[card.uuid])
        tenants.replace(self._root, self._name, limits.Limits(tuple(ordered)))

    def used_mib(self) -> dict[str, int]:
        """What it uses now of each card."""
        used = usage.snapshot(self._root, self._name).cards if self._name else ()
        counted_mib = {card.uuid: -(-card.used_bytes // MIB) for card in used}
        known = counted_mib.keys() | self._told_mib.keys()
        return {uuid: max(counted_mib.get(uuid, 0), self._told_mib.get(uuid, 0)) for uuid in known}


def _fence(place: places.Place, entry: entries.Entry, told_mib: dict[str, int]) -> _Fence:
    """What the driver told is a moment old, and not needed where the fence counts."""
    root = roots.find(place.fence)
    if _hooked(entry):
        return _Fence(root, tenants.read(root, entry.tenant), {})
    there = entry.tenant in tenants.names(root)
    return _Fence(root, tenants.read(root, entry.tenant) if there else None, told_mib)


def _held(place: places.Place, entry: entries.Entry) -> bool:
    return _hooked(entry) or tenants.running(roots.find(place.fence), entry.tenant) > 0


def _hooked(entry: entries.Entry) -> bool:
    return entry.container is not None and entry.container.fence == str(levels.Level.HOOK)


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
    asked = {share.uuid: share.memory_mib for share in after.shares}
    timed = min(before, after, key=lambda each: sum(s.compute_percent for s in each.shares))
    shares = (
        msgspec.structs.replace(share, memory_mib=_less(had[share.uuid], asked[share.uuid]))
        for share in timed.shares
    )
    return msgspec.structs.replace(timed, shares=tuple(shares))


def _less(one_mib: int, other_mib: int) -> int:
    """Nothing is no quota."""
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
        _, worst = max(over, key=lambda each: each[0])
        raise errors.InputError(
            f"{used_mib[worst.uuid]} MiB of card {worst.index} are in use, "
            "and nothing takes memory from a program that has it",
            instead=f"leave it {used_mib[worst.uuid]}MiB or more, or let the program free some",
        )


def _raise(here: sessions.Session, token: str, fence: _Fence) -> None:
    """Hold the program to what it has now, while nobody changes that."""
    with here.book.deciding():
        found = leases.find(here.place.leases, token)
        if found is not None and found.entry is not None and found.entry.container is not None:
            fence.hold(found.entry.container)


@contextlib.contextmanager
def _rewritten(place: places.Place, before: entries.Entry, after: entries.Entry) -> Iterator[None]:
    """The lease, which is believed before the ledger."""
    leases.rewrite(place.leases, after)
    try:
        yield
    except BaseException:
        leases.rewrite(place.leases, before)
        raise
