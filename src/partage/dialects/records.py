"""Records: reading which cards another system, or an earlier Partage, gave to a pod.

Annotations are written by programs but editable by anybody who may edit the pod, so nothing in them
is trusted: texts are bounded before they are looked at, numbers before they are used, and every
record must agree with what the pod asks for and with the cards of its node. What does not agree is
:class:`Unreadable`; ``bound_pods`` turns it into a Damage, which is counted and shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from partage.core import cards, demands, grants
from partage.core.placement import plans
from partage.dialects import contract, pods, rules

MOST_TEXT = 1 << 18  # characters; Kubernetes takes no more for all annotations of an object
MOST_CARDS = rules.MOST_CARDS
_LONGEST_NUMBER = 18  # digits; what follows fits into 64 bits


class Unreadable(Exception):
    """A record that makes no sense; it carries the Damage to report."""

    def __init__(self, annotation: str, problem: str, *, instead: str = "") -> None:
        self.damage = grants.Damage(
            field=rules.annotation_field(annotation),
            problem=problem,
            instead=instead or "delete the pod so that it is placed again",
        )
        super().__init__(str(self.damage))


def text(pod: pods.Pod, annotation: str) -> str:
    """The annotation's text, bounded; it must be there."""
    written = pod.metadata.annotations.get(annotation)
    if written is None:
        raise Unreadable(
            annotation, "the annotation is missing, but others of its family are present"
        )
    if len(written) > MOST_TEXT:
        raise Unreadable(annotation, f"it is too long ({len(written)} characters)")
    return written


def number(annotation: str, written: str) -> int:
    """A plain decimal number, as these systems write it."""
    if not (written.isascii() and written.isdigit() and len(written) <= _LONGEST_NUMBER):
        raise Unreadable(annotation, f"{rules.shown(written)} is not a plain number")
    return int(written)


def decoded(annotation: str, written: str, form: type[rules.Decoded]) -> rules.Decoded:
    """JSON of a known form; depth is bounded by the decoder, length by :func:`text`."""
    try:
        return msgspec.json.decode(written, type=form)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(annotation, f"it is not the expected JSON: {str(error)[:120]}") from None
    except RecursionError:
        raise Unreadable(annotation, "its JSON is nested too deeply") from None


def cards_at(annotation: str, node: cards.Node, indexes: Iterable[str]) -> tuple[cards.Card, ...]:
    """The node's cards with these indexes, each once."""
    by_index = {card.index: card for card in node.cards}
    chosen: dict[int, cards.Card] = {}
    for index in (number(annotation, written) for written in indexes):
        if index not in by_index:
            raise Unreadable(annotation, f"node {node.name} has no card {index}")
        if index in chosen:
            raise Unreadable(annotation, f"it names card {index} twice")
        chosen[index] = by_index[index]
    return tuple(chosen.values())


def indexes(container: grants.ContainerGrant) -> str:
    """The cards of a container, as :func:`listed` reads them: ``0`` or ``0,2``."""
    return ",".join(str(share.index) for share in container.shares)


def same_node(pod: pods.Pod, annotation: str, node: cards.Node) -> None:
    """Check that a record names the node the pod is on."""
    named = text(pod, annotation)
    if named != node.name:
        raise Unreadable(annotation, f"it names node {rules.shown(named)}, not {node.name}")


class RecordedCards(msgspec.Struct, frozen=True):
    """Which cards a record gives to a container, and the annotation that says so."""

    annotation: str
    cards: Sequence[cards.Card]


def listed(
    request: contract.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    annotations: Mapping[str, str],
) -> grants.Grant:
    """A grant whose cards are listed in one annotation for each container, by its name."""
    recorded = {}
    for container, annotation in annotations.items():
        written = text(request.pod, annotation).split(",", MOST_CARDS)
        recorded[container] = RecordedCards(annotation, cards_at(annotation, node, written))
    return grant(request, node, demand, recorded)


def grant(
    request: contract.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    recorded: Mapping[str, RecordedCards],
) -> grants.Grant:
    """What the pod asks for, on the cards that the records name, by container."""
    return shared(
        request,
        node,
        demand,
        {c.name: _shares(c.demand, recorded[c.name]) for c in demand.containers},
    )


def on_cards(
    request: contract.Request,
    node: cards.Node,
    demand: demands.PodDemand,
    chosen: Mapping[str, Sequence[cards.Card]],
) -> grants.Grant:
    """What the pod asks for, on cards that somebody gave to its containers without a record."""
    if chosen.keys() != {container.name for container in demand.containers}:
        raise Unreadable("", "not all containers that ask for cards have some")
    return grant(
        request, node, demand, {name: RecordedCards("", given) for name, given in chosen.items()}
    )


def shared(
    request: contract.Request,
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


def _shares(demand: demands.Demand, recorded: RecordedCards) -> tuple[grants.Share, ...]:
    if len(recorded.cards) != demand.cards:
        problem = f"it names {len(recorded.cards)} cards; the container asks for {demand.cards}"
        raise Unreadable(recorded.annotation, problem)
    part = plans.Part(demand)
    return tuple(_share(card, part, recorded.annotation) for card in recorded.cards)


def _share(card: cards.Card, part: plans.Part, annotation: str) -> grants.Share:
    """The same arithmetic as for a new placement, so both ways give the same grant."""
    share = part.share(card)
    if share.memory_mib > card.memory_mib:
        problem = f"{share.memory_mib} MiB are more than card {card.index} has ({card.memory_mib})"
        raise Unreadable(annotation, problem, instead="check the unit of memory in the settings")
    return share
