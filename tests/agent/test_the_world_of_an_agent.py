"""What the agent knows of its node: from the driver, from the watch of health, from labels."""

from __future__ import annotations

from partage.agent import world
from partage.devices import nvml
from partage.fence import layout
from tests.agent import making


def facts(there: world.World) -> list[tuple[int, str, int, bool]]:
    """The cards, as far as it matters here."""
    return [(card.index, card.uuid, card.memory_mib, card.healthy) for card in there.node.cards]


def test_cards_are_what_the_driver_tells() -> None:
    """In their order, each with as many tenants as a fence has seats for."""
    there = making.facts(16384, 24576)
    assert facts(there) == [(0, making.uuid(0), 16384, True), (1, making.uuid(1), 24576, True)]
    assert {card.max_tenants for card in there.node.cards} == {layout.SEATS}
    assert there.node.name == making.NODE
    assert [device.index for device in there.devices] == [0, 1]


def test_a_lost_card_keeps_its_facts_and_is_sick() -> None:
    """Pods run on it; the driver no longer says which card it was, nor how large."""
    there = making.facts()
    there.set_devices([making.device(0), nvml.Device(index=1, problem="lost")])
    assert facts(there) == [(0, making.uuid(0), 16384, True), (1, making.uuid(1), 16384, False)]
    assert there.devices[1].problem == "lost"
    assert [card.index for card in there.healthy.cards] == [0]

    there.set_devices([making.device(0), making.device(1)])
    assert there.healthy == there.node


def test_all_cards_stay_when_the_driver_does_not_answer() -> None:
    """It is being updated, for example."""
    there = making.facts()
    there.set_devices([])
    assert len(there.node.cards) == 2


def test_another_card_in_its_place_is_another_card() -> None:
    """It was swapped."""
    there = making.facts()
    there.set_devices([making.device(0), making.device(1, 24576, uuid=making.uuid(7))])
    assert facts(there)[1] == (1, making.uuid(7), 24576, True)


def test_cards_that_change_their_places_are_there_once() -> None:
    """After a restart of the driver without one of its cards, the others have other indexes."""
    there = making.facts(16384, 16384, 16384)
    there.set_devices(
        [making.device(0, uuid=making.uuid(1)), making.device(1, uuid=making.uuid(2))]
    )
    assert facts(there) == [(0, making.uuid(1), 16384, True), (1, making.uuid(2), 16384, True)]
    there.set_devices([making.device(index) for index in range(3)])
    assert [card.uuid for card in there.node.cards] == [making.uuid(n) for n in range(3)]


def test_a_card_that_was_never_known_is_not_there() -> None:
    """It cannot be named; as soon as it can, it is."""
    there = making.facts()
    there.set_devices([nvml.Device(index=2, problem="lost")])
    assert len(there.node.cards) == 2
    there.set_devices([making.device(2)])
    assert [card.index for card in there.node.cards] == [0, 1, 2]


def test_sick_cards_are_not_healthy() -> None:
    """As judged by whoever watches; and well again when he says so."""
    there = making.facts()
    there.set_sick({making.uuid(1): "Xid 79", "GPU-unknown": "lost"})
    assert [card.healthy for card in there.node.cards] == [True, False]
    assert [card.index for card in there.healthy.cards] == [0]
    assert there.sick[making.uuid(1)] == "Xid 79"
    there.set_sick({})
    assert there.healthy == there.node


def test_labels_are_modes() -> None:
    """The node's traits, and the policy for the choice among its cards."""
    there = making.facts()
    assert (there.node.traits, there.node.cards_by) == (frozenset(), "")
    there.set_labels({"ack.node.gpu.schedule": "cgpu", "ack.node.gpu.placement": "spread"})
    assert (there.node.traits, there.node.cards_by) == (frozenset({"aliyun/cgpu"}), "spread")
    there.set_labels({"sched.tensorstack.dev/node-alloc-mode": "xgn"})
    assert (there.node.traits, there.node.cards_by) == (frozenset({"t9k/xgn"}), "")
    assert len(there.healthy.cards) == 2
    assert there.healthy.traits == there.node.traits


def test_each_side_keeps_what_the_others_set() -> None:
    """Whatever comes last, the whole is the same."""
    labels = {"ack.node.gpu.schedule": "cgpu"}
    one, other = making.facts(), making.facts(16384)
    one.set_sick({making.uuid(1): "x"})
    one.set_labels(labels)
    other.set_labels(labels)
    other.set_sick({making.uuid(1): "x"})
    other.set_devices([making.device(0), making.device(1)])
    assert one.node == other.node
