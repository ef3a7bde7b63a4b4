"""Prospects: would a request fit now, if not what is in the way, and would it ever."""

from __future__ import annotations

import msgspec

from partage.core import demands, grants, refusals
from partage.local.ledger import session
from partage.local.machine import machine
from partage.local.queue import decision, queue_order, wait_reasons
from partage.local.requests import card_access, requests
from partage.local.state import entries

_LAST = 1 << 62  # after all that wait


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


def prospect(
    opened: session.Session,
    wishes: requests.Wishes,
    gate: card_access.Gate = card_access.open_gate,
) -> Prospect:
    """Ask without taking anything."""
    survey = decision.survey(opened.state, opened.driver, opened.book.all)
    this_machine = survey.machine
    access = gate(this_machine.devices)
    demand = requests.demand(wishes, this_machine.node.cards, access)
    ticket = queue_order.Ticket(token="prospect", name="it", demand=demand, priority=0, seq=_LAST)
    answer = queue_order.trial(survey.fleet, this_machine.node.name, survey.tickets, ticket)
    if isinstance(answer, grants.Grant):
        cards = tuple(share.index for share in answer.containers[0].shares)
        return Prospect(
            asks=_asks(demand), fits=True, ever=True, cards=cards, simulated=this_machine.simulated
        )
    ever = answer.refusal is None or not answer.refusal.never
    return Prospect(
        asks=_asks(demand),
        fits=False,
        ever=ever,
        reason=_reason(answer, ever, access.note(this_machine.node.cards)),
        held_by=_in_the_way(answer.refusal, survey.living, this_machine),
        place=answer.place if ever else 0,
        simulated=this_machine.simulated,
    )


def _reason(answer: queue_order.Waiting, ever: bool, note: str) -> str:
    reason = wait_reasons.reason(answer)
    return reason if ever or not note else f"{reason}; {note}"


def _asks(demand: demands.PodDemand) -> str:
    return demands.described(demand.containers[0].demand)


def _in_the_way(
    refusal: refusals.Refusal | None,
    living: tuple[entries.Entry, ...],
    this_machine: machine.Machine,
) -> tuple[str, ...]:
    short = {shortage.uuid for shortage in refusal.shortages} if refusal else set()
    if refusal is None or refusal.never:
        return ()
    foreign = (
        f"process {process.pid}" for process in this_machine.foreign if process.uuid in short
    )
    return (*(entry.name for entry in decision.on_cards(living, short)), *foreign)
