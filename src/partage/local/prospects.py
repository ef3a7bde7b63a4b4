"""Prospects: would a request fit now, if not what is in the way, and would it ever."""

from __future__ import annotations

import msgspec

from partage.core import demands, grants, refusals
from partage.local import (
    entries,
    granting,
    machine,
    queueing,
    reasons,
    requests,
    sessions,
)

_LAST = 1 << 62  # after everybody who waits


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """What would become of a request."""

    asks: str
    fits: bool  # now
    ever: bool
    cards: tuple[int, ...] = ()  # it would get
    reason: str = ""  # why not now
    held_by: tuple[str, ...] = ()  # names of programs in the way; foreign ones by process id
    place: int = 0  # in the queue, if it waited; 1 is next
    simulated: bool = False


def prospect(here: sessions.Session, wishes: requests.Wishes) -> Prospect:
    """Ask without taking anything."""
    now = granting.survey(here.place, here.driver, here.book.all)
    found = now.found
    demand = requests.demand(wishes, found.node.cards)
    ticket = queueing.Ticket(token="prospect", name="it", demand=demand, priority=0, seq=_LAST)
    answer = queueing.hindered(now.known, found.node.name, now.tickets, ticket)
    if isinstance(answer, grants.Grant):
        cards = tuple(share.index for share in answer.containers[0].shares)
        return Prospect(
            asks=_asks(demand), fits=True, ever=True, cards=cards, simulated=found.simulated
        )
    ever = answer.refusal is None or not answer.refusal.never
    return Prospect(
        asks=_asks(demand),
        fits=False,
        ever=ever,
        reason=reasons.told(answer),
        held_by=_in_the_way(answer.refusal, now.living, found),
        place=answer.place if ever else 0,
        simulated=found.simulated,
    )


def _asks(demand: demands.PodDemand) -> str:
    return demands.described(demand.containers[0].demand)


def _in_the_way(
    refusal: refusals.Refusal | None, living: tuple[entries.Entry, ...], found: machine.Machine
) -> tuple[str, ...]:
    short = {shortage.uuid for shortage in refusal.shortages} if refusal else set()
    if refusal is None or refusal.never:
        return ()
    foreign = (f"process {each.pid}" for each in found.foreign if each.uuid in short)
    return (*(entry.name for entry in granting.on_cards(living, short)), *foreign)
