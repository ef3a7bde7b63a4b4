"""The part of a Kubernetes Node that says which cards it has.

Best is the annotation that the node's agent writes: every card with its uuid. Without it a node is
read the way the family's own system reads it: an amount of memory and a number of cards in its
capacity, or another agent's annotation. A number alone means cards that are given whole or not at
all. Cards that nobody named get a uuid made of their index,
and :func:`rebased` moves grants between such names and real ones, so that installing an agent (or
taking it away) under running pods loses none of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from partage.core import cards, errors, grants, quantities
from partage.dialects import pods, rules

CARDS = "partage.dev/cards"
AWAY = "partage.dev/away"  # since when the node's agent is; it is written by one that leaves
VERSION = 1
MOST_TEXT = 1 << 18  # characters; Kubernetes takes no more for all annotations of an object

MOST_CARDS = 256  # of a node: sixteen machines' worth, or each of them cut into sixteen
MOST_INDEX = rules.MOST_CARDS
MOST_MIB = 1 << 32

_UNNAMED = "index-"  # no uuid of a driver begins so
_LARGEST_GIB = 1024  # of one card; a larger number counts MiB


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who the node is, and what was written on it."""

    name: str = ""
    uid: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}


class Address(msgspec.Struct, frozen=True):
    """One address of a node."""

    type: str = ""
    address: str = ""


REPELLING = ("NoSchedule", "NoExecute")  # effects of taints


class Taint(msgspec.Struct, frozen=True):
    """What keeps pods away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""

    def __str__(self) -> str:
        """As kubectl writes it."""
        return (
            f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"
        )


class Spec(msgspec.Struct, frozen=True):
    """Whether pods may come."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """What the kubelet reports."""

    capacity: Mapping[str, pods.Amount] = {}
    allocatable: Mapping[str, pods.Amount] = {}
    addresses: tuple[Address, ...] = ()


class Node(msgspec.Struct, frozen=True, rename="camel"):
    """A node as the dialects see it."""

    metadata: Metadata = Metadata()
    status: Status = Status()
    spec: Spec = Spec()

    def amount(self, resource: str) -> int:
        """What the node's capacity says of a resource; 0 if nothing, or nothing readable."""
        return _whole(self.status.capacity, resource)

    def allocatable(self, resource: str) -> int:
        """How much of a resource pods can have there at the moment."""
        return _whole(self.status.allocatable, resource)

    def offers(self, resource: str) -> bool:
        """Whether pods can have any of a resource there at the moment."""
        return self.allocatable(resource) > 0

    @property
    def address(self) -> str:
        """Its first internal address."""
        internal = (a.address for a in self.status.addresses if a.type == "InternalIP")
        return next(internal, "")


def _whole(amounts: Mapping[str, pods.Amount], resource: str) -> int:
    try:
        return max(0, quantities.whole(str(amounts.get(resource, 0))))
    except errors.QuantityError:
        return 0


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """What the annotation of the node's agent holds."""

    version: int
    cards: tuple[cards.Card, ...]
    driver: str = ""  # its version, for people
    agent: str = ""  # its version, for people; older ones do not tell it


class Unreadable(Exception):
    """Cards that make no sense, as somebody wrote them on a node."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")


def encode(node_cards: Iterable[cards.Card], driver: str = "", agent: str = "") -> str:
    """The text of the annotation for some cards."""
    record = Published(version=VERSION, cards=tuple(node_cards), driver=driver, agent=agent)
    return msgspec.json.encode(record).decode()


def published(node: Node) -> tuple[cards.Card, ...] | None:
    """The cards that the node's agent wrote down; None if it did not."""
    record = publication(node)
    return None if record is None else bounded(CARDS, record.cards)


def publication(node: Node) -> Published | None:
    """All that the node's agent wrote down; None if it did not."""
    text = node.metadata.annotations.get(CARDS)
    if text is None:
        return None
    record = decoded(CARDS, text, Published)
    if record.version != VERSION:
        problem = f"its version is {record.version}, but only version {VERSION} is supported"
        raise Unreadable(rules.annotation_field(CARDS), problem)
    return record


def decoded(annotation: str, text: str, form: type[rules.Decoded]) -> rules.Decoded:
    """The JSON of a node's annotation; raises Unreadable, whatever is wrong with it."""
    field = rules.annotation_field(annotation)
    if len(text) > MOST_TEXT:
        raise Unreadable(field, f"it is too long ({len(text)} characters)")
    try:
        return msgspec.json.decode(text, type=form)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Unreadable(field, f"it is not the expected JSON: {str(error)[:120]}") from None
    except RecursionError:
        raise Unreadable(field, "its JSON is nested too deeply") from None


def bounded(annotation: str, named: Iterable[cards.Card]) -> tuple[cards.Card, ...]:
    """The cards that an annotation names, if they are as many and as large as cards can be."""
    field = rules.annotation_field(annotation)
    try:
        node_cards = tuple(named)
    except ValueError as error:
        raise Unreadable(field, str(error)[:120]) from None
    if len(node_cards) > MOST_CARDS:
        raise Unreadable(field, f"{len(node_cards)} cards are too many")
    for card in node_cards:
        if max(card.memory_mib, card.foreign_memory_mib) > MOST_MIB or card.index >= MOST_INDEX:
            raise Unreadable(field, f"card {rules.shown(card.uuid)}: a number is too large")
    return node_cards


def counted(count: int, memory_mib: int, model: str = "") -> tuple[cards.Card, ...]:
    """So many equal cards that nobody named; none if the numbers do not make sense."""
    if not 0 < count <= rules.MOST_CARDS or memory_mib <= 0:
        return ()
    return tuple(
        cards.Card(uuid=f"{_UNNAMED}{index}", index=index, memory_mib=memory_mib, model=model)
        for index in range(count)
    )


def whole_only(count: int, model: str = "") -> tuple[cards.Card, ...]:
    """So many cards of which nobody says more; none if the number does not make sense."""
    if not 0 < count <= rules.MOST_CARDS:
        return ()
    return tuple(
        cards.Card(
            uuid=f"{_UNNAMED}{index}", index=index, memory_mib=0, model=model, whole_only=True
        )
        for index in range(count)
    )


def unnamed(card: cards.Card | grants.Share) -> bool:
    """Whether nobody named the card, so that its index is all that is known."""
    return card.uuid.startswith(_UNNAMED)


def divided(node: Node, count: int, resource: str, unit_mib: int) -> tuple[cards.Card, ...]:
    """So many cards among which the node's amount of a resource is divided evenly."""
    return counted(count, node.amount(resource) // count * unit_mib) if count else ()


def unit_mib(units_per_card: int) -> int:
    """What a number of units for one card must count: no card has a TiB, and none only a GiB."""
    return 1 if units_per_card > _LARGEST_GIB else 1024


def judged(
    node_cards: tuple[cards.Card, ...], unhealthy: Collection[int]
) -> tuple[cards.Card, ...]:
    """The cards, those with these indexes not healthy."""
    replace = msgspec.structs.replace
    return tuple(replace(c, healthy=False) if c.index in unhealthy else c for c in node_cards)


def within_memory(card: cards.Card) -> cards.Card:
    """The card, of which others use no more than there is of it."""
    memory_mib = card.foreign_memory_mib if card.whole_only else card.memory_mib
    used_mib = min(card.foreign_memory_mib, memory_mib)
    used_percent = min(card.foreign_compute_percent, cards.FULL_PERCENT)
    if (used_mib, used_percent) == (card.foreign_memory_mib, card.foreign_compute_percent):
        return card
    return msgspec.structs.replace(
        card, foreign_memory_mib=used_mib, foreign_compute_percent=used_percent
    )


def rebased(grant: grants.Grant, node: cards.Node) -> grants.Grant:
    """The grant with the names that the node's cards have now.

    A share of an unnamed card is a share of the card with its index; and on a node whose cards are
    unnamed, indexes are all there is. Who has a whole card has its memory, once that is known.
    """
    by_index = {card.index: card for card in node.cards}
    shares = [share for container in grant.containers for share in container.shares]
    if not (any(map(unnamed, node.cards)) or any(map(unnamed, shares))):
        return grant
    replace = msgspec.structs.replace

    def renamed(share: grants.Share) -> grants.Share:
        card = by_index.get(share.index)
        if card is None:
            return share
        uuid = share.uuid if unnamed(card) == unnamed(share) else card.uuid
        unsized = share.exclusive and not share.memory_mib and uuid == card.uuid
        memory_mib = card.memory_mib if unsized else share.memory_mib
        if (uuid, memory_mib) == (share.uuid, share.memory_mib):
            return share
        return replace(share, uuid=uuid, memory_mib=memory_mib)

    return replace(
        grant,
        containers=tuple(
            replace(c, shares=tuple(map(renamed, c.shares))) for c in grant.containers
        ),
    )
