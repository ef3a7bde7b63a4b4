"""Records: reading which cards another system, or an earlier Partage, gave to a pod.

Annotations are written by programs but editable by anybody who may edit the pod, so nothing in them
is trusted: texts are bounded before they are looked at, numbers before they are used, and every
record must agree with what the pod asks for and with the cards of its node. What does not agree is
:class:`Unreadable`; the registry turns it into a Damage, which is counted and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from partage.core import cards, demands, grants, plans
from partage.dialects import base, pods, reading

MOST_TEXT = 1 << 18  # characters; Kubernetes takes no more for all annotations of an object
MOST_CARDS = reading.MOST_CARDS
_LONGEST_NUMBER = 18  # digits; what follows fits into 64 bits


class Unreadable(Exception):
    """A record that makes no sense; it carries the Damage to report."""

    def __init__(self, annotation: str, problem: str, *, instead: str = "") -> None:
        self.damage = grants.Damage(
            field=reading.annotation_field(annotation),
            problem=problem,
            instead=instead or "delete the pod to place it anew",
        )
        super().__init__(str(self.damage))


def text(pod: pods.Pod, annotation: str) -> str:
    """The annotation's text, bounded; it must be there."""
    found = pod.metadata.annotations.get(annotation)
    if found is None:
        raise Unreadable(annotation, "the annotation is missing beside others of its family")
    if len(found) > MOST_TEXT:
        raise Unreadable(annotation, f"its {len(found)} characters are too many")
    return found


def number(annotation: str, written: str) -> int:
    """A plain decimal number, as these systems write it."""
    if not (written.isascii() and written.isdigit() and len(written) <= _LONGEST_NUMBER):
        raise Unreadable(annotation, f"{reading.shown(written)} is not a plain number")
    return int(written)


def decoded(annotation: str, written: str, form: type[reading.Decoded]) -> reading.Decoded:
    """JSON of a known form; depth is bounded by the decoder, length by :func:`text`."""
    try:
        return msgspec.json.decode(written, type=form)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(annotation, f"not the JSON it should be: {str(error)[:120]}") from None
    except RecursionError:
        raise Unreadable(annotation, "JSON that is nested too deeply") from None


def cards_at(annotation: str, node: cards.Node, indexes: Iterable[str]) -> tuple[cards.Card, ...]:
    """The node's cards with these indexes, each once."""
    by_index = {card.index: card for card in node.cards}
    found: dict[int, cards.Card] = {}
    for index in (number(annotation, written) for written in indexes):
        if index not in by_index:
            raise Unreadable(annotation, f"node {node.name} has no card {index}")
        if index in found:
            raise Unreadable(annotation, f"it names card {index} twice")
        found[index] = by_index[index]
    return tuple(found.values())


def indexes(container: grants.ContainerGrant) -> str:
    """The cards of a container, as :func:`listed` reads them: ``0`` or ``0,2``."""
    return ",".join(str(share.index) for share in container.shares)


def same_node(pod: pods.Pod, annotation: str, node: cards.Node) -> None:
    """Check that a record names the node the pod is on."""
    named = text(pod, annotation)
    if named != node.name:
        raise Unreadable(annotation, f"it names node {reading.shown(named)}, not {node.name}")


class Places(msgspec.Struct, frozen=True):
    """Which cards a record gives to a container, and the annotation that says so."""

    annotation: str
    cards: Sequence[cards.Card]


def listed(
    request: base.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    annotations: Mapping[str, str],
) -> grants.Grant:
    """A grant whose cards are listed in one annotation for each container, by its name."""
    placed = {}
    for container, annotation in annotations.items():
        written = text(request.pod, annotation).split(",", MOST_CARDS)
        placed[container] = Places(annotation, cards_at(annotation, node, written))
    return grant(request, node, demand, placed)


def grant(
    request: base.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    placed: Mapping[str, Places],
) -> grants.Grant:
    """What the pod asks for, on the cards that the records name, by container."""
    return shared(
        request,
        node,
        demand,
        {c.name: _shares(c.demand, placed[c.name]) for c in demand.containers},
    )


def shared(
    request: base.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    shares: Mapping[str, tuple[grants.Share, ...]],
) -> grants.Grant:
    """A grant of shares, by container, with all else as the pod asks for it."""
    return grants.Grant(
        pod=request.pod.identity,
        node=node.name,
        containers=tuple(
            grants.ContainerGrant(
                name=container.name,
                shares=shares[container.name],
                role=container.role,
                compute_ceiling_percent=container.demand.compute_ceiling_percent,
                compute_mode=container.demand.compute_mode,
                memory_enforced=container.demand.memory_enforced,
            )
            for container in demand.containers
        ),
        dialect=demand.dialect,
        qos=demand.qos,
        tag=demand.tag,
        exclusive_node=demand.exclusive_node,
    )


def _shares(demand: demands.Demand, places: Places) -> tuple[grants.Share, ...]:
    if len(places.cards) != demand.cards:
        problem = f"it names {len(places.cards)} cards; the container asks for {demand.cards}"
        raise Unreadable(places.annotation, problem)
    part = plans.Part(demand)
    return tuple(_share(card, part, places.annotation) for card in places.cards)


def _share(card: cards.Card, part: plans.Part, annotation: str) -> grants.Share:
    """The same arithmetic as for a new placement, so both ways give the same grant."""
    share = part.share(card)
    if share.memory_mib > card.memory_mib:
        problem = f"{share.memory_mib} MiB are more than card {card.index} has ({card.memory_mib})"
        raise Unreadable(annotation, problem, instead="check the unit of memory in the settings")
    return share
