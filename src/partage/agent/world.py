"""The world of an agent: its node, with what is known of the cards at this moment.

Facts come from three sides: the driver tells which cards there are, whoever watches their health
tells which are sick, and the node's labels tell its modes. Each side sets its part, and whoever
needs the whole gets one value. A card that no longer answers keeps what was known of it, because
pods run on it, and is sick.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from partage.core import cards
from partage.devices import nvml
from partage.dialects import base, registry
from partage.fence import layout


class World:
    """What the agent knows of its node."""

    def __init__(self, name: str, settings: base.Settings, dialects: Iterable[str]) -> None:
        self.settings = settings
        self.dialects = frozenset(dialects)
        self.context_bytes: dict[str, int] = {}  # what a context costs, by uuid
        self.served: frozenset[str] = frozenset()  # the resources that have a plugin
        self.sick: Mapping[str, str] = {}  # why, by uuid
        self.driver = ""
        self._name = name
        self._labels: Mapping[str, str] = {}
        self._devices: dict[int, nvml.Device] = {}
        self._node = cards.Node(name=name)

    @property
    def node(self) -> cards.Node:
        """The node with all its cards, the sick ones too."""
        return self._node

    @property
    def healthy(self) -> cards.Node:
        """The node with those of its cards that can be used."""
        well = tuple(card for card in self._node.cards if card.healthy)
        return msgspec.structs.replace(self._node, cards=well)

    @property
    def devices(self) -> tuple[nvml.Device, ...]:
        """The cards as the driver tells of them."""
        return tuple(self._devices.values())

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the node."""
        return self._labels

    def set_devices(self, found: Iterable[nvml.Device]) -> None:
        """The driver was asked; a card that it cannot tell apart any more is the one it was."""
        seen = tuple(found)
        for device in seen:
            before = self._devices.get(device.index)
            if device.uuid is not None or before is None:
                self._devices[device.index] = device
            else:
                kept = msgspec.structs.replace(before, problem=device.problem)
                self._devices[device.index] = kept
        # A driver that was started again without one of its cards numbers the others anew.
        places: dict[str | None, int] = {d.uuid: d.index for d in seen if d.uuid is not None}
        self._devices = {
            index: device
            for index, device in sorted(self._devices.items())
            if places.get(device.uuid, index) == index
        }
        self._renew()

    def set_sick(self, found: Mapping[str, str]) -> None:
        """The health of all cards was judged."""
        self.sick = dict(found)
        self._renew()

    def set_labels(self, labels: Mapping[str, str]) -> None:
        """The node has these labels."""
        if labels != self._labels:
            self._labels = dict(labels)
            self._renew()

    def _renew(self) -> None:
        known = (self._card(device) for device in self._devices.values())
        self._node = cards.Node(
            name=self._name,
            cards=tuple(card for card in known if card is not None),
            traits=registry.node_traits(self._labels),
            cards_by=registry.cards_by(self._labels),
        )

    def _card(self, device: nvml.Device) -> cards.Card | None:
        card = device.card
        if card is None:
            return None
        return msgspec.structs.replace(
            card,
            healthy=card.healthy and card.uuid not in self.sick,
            max_tenants=layout.SEATS,
        )
