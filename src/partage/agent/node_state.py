"""The state of the node: its cards, and what is known of them at this moment.

Facts come from four sides: the driver tells which cards there are, the watch of their health tells
which are unhealthy, looks at processes tell what others use of them, and the node's object tells
its modes, by labels, and which cards are cordoned, by an annotation. Each side sets its part, and
readers get the whole as one value. A card that no longer answers keeps what was known of it,
because pods run on it, and is unhealthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from partage.core import cards
from partage.devices import nvml
from partage.dialects import contract, cordons, node_readings
from partage.fence.store import layout


class NodeState:
    """What the agent knows of its node."""

    def __init__(self, name: str, settings: contract.Settings, dialects: Iterable[str]) -> None:
        self.settings = settings
        self.dialects = frozenset(dialects)
        self.context_bytes: dict[str, int] = {}  # what a context costs, by uuid
        self.served: frozenset[str] = frozenset()  # the resources that have a plugin
        self.unhealthy: Mapping[str, str] = {}  # why, by uuid
        self.driver = ""
        self._name = name
        self._labels: Mapping[str, str] = {}
        self._annotations: Mapping[str, str] = {}
        self._devices: dict[int, nvml.Device] = {}
        self._foreign_mib: Mapping[str, int] = {}  # by uuid
        self._node = cards.Node(name=name)

    @property
    def node(self) -> cards.Node:
        """The node with all its cards, the unhealthy ones too."""
        return self._node

    @property
    def healthy(self) -> cards.Node:
        """The node with those of its cards that work."""
        usable = tuple(card for card in self._node.cards if card.healthy)
        return msgspec.structs.replace(self._node, cards=usable)

    @property
    def cordoned(self) -> cards.Node:
        """The node with those of its cards that work and are cordoned."""
        closed = tuple(c for c in self._node.cards if c.healthy and c.uuid in self._node.cordons)
        return msgspec.structs.replace(self._node, cards=closed)

    @property
    def open(self) -> cards.Node:
        """The node with those of its cards that work and are not cordoned."""
        usable = tuple(c for c in self.healthy.cards if c.uuid not in self._node.cordons)
        return msgspec.structs.replace(self._node, cards=usable)

    @property
    def devices(self) -> tuple[nvml.Device, ...]:
        """The cards as the driver tells of them."""
        return tuple(self._devices.values())

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the node."""
        return self._labels

    def set_devices(self, devices: Iterable[nvml.Device]) -> None:
        """The driver was asked; a card that it cannot tell apart any more is the one it was."""
        seen = tuple(devices)
        for device in seen:
            before = self._devices.get(device.index)
            if device.uuid is not None or before is None:
                self._devices[device.index] = device
            else:
                kept = msgspec.structs.replace(before, problem=device.problem)
                self._devices[device.index] = kept
        # A driver that was started again without one of its cards numbers the others anew.
        indexes: dict[str | None, int] = {d.uuid: d.index for d in seen if d.uuid is not None}
        self._devices = {
            index: device
            for index, device in sorted(self._devices.items())
            if indexes.get(device.uuid, index) == index
        }
        self._renew()

    def set_unhealthy(self, reasons: Mapping[str, str]) -> None:
        """The health of all cards was judged."""
        self.unhealthy = dict(reasons)
        self._renew()

    def set_foreign(self, foreign_mib: Mapping[str, int]) -> None:
        """Processes outside Partage use so much of cards, by uuid."""
        self._foreign_mib = dict(foreign_mib)
        self._renew()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """The node has these labels."""
        if labels != self._labels:
            self._labels = dict(labels)
            self._renew()

    def set_annotations(self, annotations: Mapping[str, str]) -> None:
        """The node has these annotations, of which one names cards that are cordoned."""
        text = annotations.get(cordons.CORDONED)
        if text != self._annotations.get(cordons.CORDONED):
            self._annotations = {} if text is None else {cordons.CORDONED: text}
            self._renew()

    def _renew(self) -> None:
        seen_cards = (self._card(device) for device in self._devices.values())
        usable = tuple(card for card in seen_cards if card is not None)
        self._node = cards.Node(
            name=self._name,
            cards=usable,
            traits=node_readings.traits(self._labels),
            cards_by=node_readings.cards_by(self._labels),
            cordons=cordons.read(self._annotations, usable).reasons,
        )

    def _card(self, device: nvml.Device) -> cards.Card | None:
        card = device.card
        if card is None:
            return None
        return msgspec.structs.replace(
            card,
            healthy=card.healthy and card.uuid not in self.unhealthy,
            max_tenants=layout.SEATS,
            foreign_memory_mib=min(self._foreign_mib.get(card.uuid, 0), card.memory_mib),
        )
