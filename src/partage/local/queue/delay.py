"""Delay: on which cards a later ticket would delay one that waits.

A ticket may pass those ahead of it only if none of them starts later for it, in whatever order the
holders end and however long it runs itself. So each card is looked at under every load that it may
come to carry: any of its holders may remain, and any ticket that waits may have come onto it before
the one in question. If there is a load beside which the ticket ahead fits, and beside which it does
not fit once the later one is there too, then the card is closed to the later one.

Loads are sums, not sets of holders, and all sums of memory that go with one sum of the rest are the
bits of one integer: ten holders of odd sizes have a thousand sums, and counting one more of them is
one shift. What fits beside more fits beside less, so of all loads beside which a ticket fits only
the largest need be tried with somebody else on top. Whether it fits, the core says each time.

What is promised is room, on each card by itself. Not foreseen are a ticket of higher priority that
comes later, a card that recovers, a foreign process that ends, and that a policy may choose another
card for a ticket ahead because of who passed it. Where loads do not tell enough, or would take too
long, nobody passes: if the ticket ahead limits the number of tenants, wants all cards or minds who
is beside it, if offline work is there (it has compute of its own), and beyond MOST_SHAPES and
MOST_RESTS.
"""

from __future__ import annotations

import bisect
import operator
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from partage.core import cards, demands, grants
from partage.core.placement import plans
from partage.core.placement.rooms import NodeState, Room, Use

MOST_SHAPES = 32  # of tickets that wait for one card
MOST_RESTS = 256  # of loads of one card

_Rest = tuple[int, int, bool]  # of a load, without its memory: compute, tenants, exclusive
_Load = tuple[int, _Rest]
_Loads = dict[_Rest, int]  # bit n is set if n MiB may come together with it

_NOTHING: _Rest = (0, 0, False)


class Delays:
    """The tickets of one machine that wait so far, and the cards that they close to later ones.

    The grants on the machine are read when they are first needed; from then on, each further one
    has to be counted.
    """

    def __init__(self, state: NodeState, queue: Sequence[plans.Plan]) -> None:
        self._state = state
        self._queue = queue  # what each ticket asks for; those of one shape share a plan
        self._ahead: list[tuple[str, plans.Plan]] = []  # by their place, with their names
        self._cards: dict[str, _Card] = {}
        self._holders: dict[str, list[_Holder]] = {}
        self._barrier = ""  # the name of a ticket that nobody passes

    def wait(self, name: str, plan: plans.Plan) -> None:
        """From now on, nobody may delay this ticket."""
        if self._closes_all(plan):
            self._barrier = self._barrier or name
        self._ahead.append((name, plan))

    def closed(self, plan: plans.Plan) -> dict[str, str]:
        """The cards with room for a ticket on which it would delay another: by uuid, its name.

        The ticket that waits longest comes first.
        """
        if not self._ahead:
            return {}
        fits = plan.parts[0].fitting(self._state.open_rooms, offline=plan.offline)
        if self._barrier:
            return {room.card.uuid: self._barrier for room in fits}
        delayed = [(self._card(room).delayed(plan), room.card.uuid) for room in fits]
        delaying = sorted((place, uuid) for place, uuid in delayed if place is not None)
        return {uuid: self._ahead[place][0] for place, uuid in delaying}

    def count(self, grant: grants.Grant) -> None:
        """A ticket was granted, and delays nobody."""
        for uuid, holder in _held(grant):
            if uuid in self._cards:
                self._cards[uuid].add(holder)

    def _closes_all(self, plan: plans.Plan) -> bool:
        pod, traits = plan.pod, self._state.node.traits
        minds = any(trait in traits for trait, _ in pod.apart_from)
        return minds or pod.exclusive_node or plan.parts[0].cards == demands.ALL_CARDS

    def _card(self, room: Room) -> _Card:
        """A card, with all that wait for it so far."""
        if not self._cards:
            self._find_holders()
        uuid = room.card.uuid
        if uuid not in self._cards:
            self._cards[uuid] = self._with_holders(room)
        card = self._cards[uuid]
        for place in range(card.considered, len(self._ahead)):
            card.wait(place, self._ahead[place][1])
        return card

    def _find_holders(self) -> None:
        for grant in self._state.grants.values():
            for uuid, holder in _held(grant):
                self._holders.setdefault(uuid, []).append(holder)

    def _with_holders(self, room: Room) -> _Card:
        holders = self._holders.get(room.card.uuid, [])
        least = _least([_taking(plan, room.card) for plan in set(self._queue)])
        card = _Card(room, least, most=len(holders) + len(self._queue))
        for holder in holders:
            card.add(holder)
        return card


class _Holder(msgspec.Struct, frozen=True):
    """What a grant takes of one card."""

    taking: grants.Taking
    offline: bool


class _Card:
    """One card: what it may come to carry, and which tickets wait for it."""

    def __init__(self, room: Room, least: grants.Taking, *, most: int) -> None:
        self.considered = 0  # how many of those that wait
        self._bare = Room(room.card, room.position, Use())
        self._least = least  # no ticket that comes takes less, of anything
        # While the card may have all tenants that can come, it only matters whether there is any.
        self._counted = 1 if most <= room.card.max_tenants else most
        self._loads: _Loads | None = {_NOTHING: 1}  # None: they cannot be told
        self._shapes: dict[plans.Plan, _Shape] = {}
        self._ahead: list[_Ahead] = []
        self._closed_by: int | None = None  # the place of a ticket that nobody passes here

    def add(self, holder: _Holder) -> None:
        """Somebody is on the card, and may stay or go.

        A holder that passed those that wait leaves them room wherever they fitted before, so their
        largest loads are larger by what it takes.
        """
        if holder.offline:
            self._loads = None
        if self._loads is not None:
            self._come(self._loads, self._loads, holder.taking)
        for ahead in self._ahead:
            ahead.largest = [self._more(load, holder.taking) for load in ahead.largest]

    def wait(self, place: int, plan: plans.Plan) -> None:
        """A ticket waits; if the card can be its own, nobody behind it may delay it here."""
        self.considered = place + 1
        if self._closed_by is not None:
            return
        shape = self._shapes.get(plan) or _Shape(plan, self._bare)
        if not shape.fits(0, _NOTHING):
            return
        self._shapes[plan] = shape
        if self._loads is None or not shape.plain or len(self._shapes) > MOST_SHAPES:
            self._closed_by = place
            return
        self._protect(self._loads, place, shape)

    def delayed(self, plan: plans.Plan) -> int | None:
        """The place of one that would be delayed if the ticket came here; None: nobody."""
        if self._closed_by is not None:
            return self._closed_by
        if plan.offline and self._ahead:
            return self._ahead[0].place
        taking = _taking(plan, self._bare.card)
        return next((ahead.place for ahead in self._ahead if self._delays(ahead, taking)), None)

    def _protect(self, loads: _Loads, place: int, shape: _Shape) -> None:
        beside = shape.beside(loads)
        if beside == shape.latest:
            return  # the last of this shape was asked the same
        shape.latest = beside
        self._ahead.append(_Ahead(place, shape, _largest(beside)))
        if self._delays(self._ahead[-1], self._least):
            self._closed_by = place
        else:
            self._come(loads, beside, _taking(shape.plan, self._bare.card))

    def _delays(self, ahead: _Ahead, taking: grants.Taking) -> bool:
        return not all(ahead.shape.fits(*self._more(load, taking)) for load in ahead.largest)

    def _come(self, loads: _Loads, beside: _Loads, taking: grants.Taking) -> None:
        """A ticket that takes this may come onto the card beside some of the loads."""
        for rest, sums in list(beside.items()):
            memory_mib, more = self._more((0, rest), taking)
            loads[more] = loads.get(more, 0) | sums << memory_mib
        self._loads = loads if len(loads) <= MOST_RESTS else None

    def _more(self, load: _Load, taking: grants.Taking) -> _Load:
        memory_mib, (compute_percent, tenants, exclusive) = load
        return memory_mib + taking.memory_mib, (
            compute_percent + taking.compute_percent,
            min(tenants + taking.tenants, self._counted),
            exclusive or taking.exclusive,
        )


class _Shape:
    """A shape of demand, and beside which loads of one card it fits."""

    def __init__(self, plan: plans.Plan, bare: Room) -> None:
        self.plan = plan
        self.plain = not plan.offline and not plan.parts[0].most_tenants
        self.latest: _Loads = {}  # beside which it fitted when it was last asked
        self._bare = bare
        self._rests: dict[_Rest, bool] = {}  # beside which it fits, as far as asked
        every = range(bare.memory_mib + 1)
        short = bisect.bisect_left(every, True, key=lambda mib: not self.fits(mib, _NOTHING))
        self._sums = (1 << short) - 1  # of memory, beside which it fits

    def fits(self, memory_mib: int, rest: _Rest) -> bool:
        """Whether it fits beside a load."""
        compute_percent, tenants, exclusive = rest
        room = self._bare.less(
            memory_mib=memory_mib,
            compute_percent=compute_percent,
            tenants=tenants,
            exclusive=exclusive,
        )
        return room.open and bool(self.plan.parts[0].fitting([room], offline=self.plan.offline))

    def beside(self, loads: _Loads) -> _Loads:
        """The loads beside which it fits: memory is short or not, whatever the rest is."""
        for rest in loads.keys() - self._rests.keys():
            self._rests[rest] = self.fits(0, rest)
        beside = ((rest, sums & self._sums) for rest, sums in loads.items() if self._rests[rest])
        return {rest: sums for rest, sums in beside if sums}


class _Ahead(msgspec.Struct):
    """A ticket that waits, and the largest loads of a card beside which it fits."""

    place: int  # among those that wait
    shape: _Shape
    largest: list[_Load]


def _held(grant: grants.Grant) -> Iterator[tuple[str, _Holder]]:
    offline = grant.qos is demands.Qos.OFFLINE
    for uuid, taking in grants.takings(grant).items():
        yield uuid, _Holder(taking, offline)


def _taking(plan: plans.Plan, card: cards.Card) -> grants.Taking:
    part = plan.parts[0]
    share = part.share(card)
    return grants.Taking(share.memory_mib, share.compute_percent, part.tenants, share.exclusive)


def _least(takings: Iterable[grants.Taking]) -> grants.Taking:
    columns = zip(*(msgspec.structs.astuple(taking) for taking in takings), strict=True)
    return grants.Taking(*(min(values) for values in columns))


def _largest(loads: _Loads) -> list[_Load]:
    """The loads that are not below another one in everything."""
    largest: list[_Load] = []
    most = ((sums.bit_length() - 1, rest) for rest, sums in loads.items())
    for memory_mib, rest in sorted(most, reverse=True):
        if not any(all(map(operator.le, rest, other)) for _, other in largest):
            largest.append((memory_mib, rest))
    return largest
