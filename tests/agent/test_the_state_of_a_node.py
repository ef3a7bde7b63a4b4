"""What the agent knows of its node: from the driver, from the watch of health, from labels."""

from __future__ import annotations

from partage.agent import node_state
from partage.devices import nvml
from partage.dialects import cordons, registry
from partage.fence.store import layout
from tests.agent import agent_node


def facts(state: node_state.NodeState) -> list[tuple[int, str, int, bool]]:
    """The cards, as far as it matters here."""
    return [(card.index, card.uuid, card.memory_mib, card.healthy) for card in state.node.cards]


def test_cards_are_what_the_driver_tells() -> None:
    """In their order, each with as many tenants as a fence has seats for."""
    state = agent_node.facts(16384, 24576)
    assert facts(state) == [
        (0, agent_node.uuid(0), 16384, True),
        (1, agent_node.uuid(1), 24576, True),
    ]
    assert {card.max_tenants for card in state.node.cards} == {layout.SEATS}
    assert state.node.name == agent_node.NODE
    assert [device.index for device in state.devices] == [0, 1]


def test_a_lost_card_keeps_its_facts_and_is_unhealthy() -> None:
    """Pods run on it; the driver no longer says which card it was, nor how large."""
    state = agent_node.facts()
    state.set_devices([agent_node.device(0), nvml.Device(index=1, problem="lost")])
    assert facts(state) == [
        (0, agent_node.uuid(0), 16384, True),
        (1, agent_node.uuid(1), 16384, False),
    ]
    assert state.devices[1].problem == "lost"
    assert [card.index for card in state.healthy.cards] == [0]

    state.set_devices([agent_node.device(0), agent_node.device(1)])
    assert state.healthy == state.node


def test_what_strangers_use_is_a_fact_of_the_card() -> None:
    """As the scheduler reads it; no more than the card has, and nothing of what is offered."""
    state = agent_node.facts(16384, 24576)
    state.set_foreign({agent_node.uuid(0): 512, agent_node.uuid(1): 24832})
    assert [card.foreign_memory_mib for card in state.node.cards] == [512, 24576]
    offered = registry.offered(state.node, state.settings, state.dialects)
    state.set_foreign({})
    assert [card.foreign_memory_mib for card in state.node.cards] == [0, 0]
    assert registry.offered(state.node, state.settings, state.dialects) == offered


def test_all_cards_stay_when_the_driver_does_not_answer() -> None:
    """It is being updated, for example."""
    state = agent_node.facts()
    state.set_devices([])
    assert len(state.node.cards) == 2


def test_another_card_in_its_place_is_another_card() -> None:
    """It was swapped."""
    state = agent_node.facts()
    state.set_devices([agent_node.device(0), agent_node.device(1, 24576, uuid=agent_node.uuid(7))])
    assert facts(state)[1] == (1, agent_node.uuid(7), 24576, True)


def test_cards_that_change_their_places_are_there_once() -> None:
    """After a restart of the driver without one of its cards, the others have other indexes."""
    state = agent_node.facts(16384, 16384, 16384)
    state.set_devices(
        [
            agent_node.device(0, uuid=agent_node.uuid(1)),
            agent_node.device(1, uuid=agent_node.uuid(2)),
        ]
    )
    assert facts(state) == [
        (0, agent_node.uuid(1), 16384, True),
        (1, agent_node.uuid(2), 16384, True),
    ]
    state.set_devices([agent_node.device(index) for index in range(3)])
    assert [card.uuid for card in state.node.cards] == [agent_node.uuid(n) for n in range(3)]


def test_a_card_that_was_never_known_is_not_there() -> None:
    """It cannot be named; as soon as it can, it is."""
    state = agent_node.facts()
    state.set_devices([nvml.Device(index=2, problem="lost")])
    assert len(state.node.cards) == 2
    state.set_devices([agent_node.device(2)])
    assert [card.index for card in state.node.cards] == [0, 1, 2]


def test_unhealthy_cards_are_not_healthy() -> None:
    """As the watch judges it; and well again when the watch says so."""
    state = agent_node.facts()
    state.set_unhealthy({agent_node.uuid(1): "Xid 79", "GPU-unknown": "lost"})
    assert [card.healthy for card in state.node.cards] == [True, False]
    assert [card.index for card in state.healthy.cards] == [0]
    assert state.unhealthy[agent_node.uuid(1)] == "Xid 79"
    state.set_unhealthy({})
    assert state.healthy == state.node


def test_labels_are_modes() -> None:
    """The node's traits, and the policy for the choice among its cards."""
    state = agent_node.facts()
    assert (state.node.traits, state.node.cards_by) == (frozenset(), "")
    state.set_labels({"ack.node.gpu.schedule": "cgpu", "ack.node.gpu.placement": "spread"})
    assert (state.node.traits, state.node.cards_by) == (frozenset({"aliyun/cgpu"}), "spread")
    state.set_labels({"sched.tensorstack.dev/node-alloc-mode": "xgn"})
    assert (state.node.traits, state.node.cards_by) == (frozenset({"t9k/xgn"}), "")
    assert len(state.healthy.cards) == 2
    assert state.healthy.traits == state.node.traits


def test_each_side_keeps_what_the_others_set() -> None:
    """Whatever comes last, the whole is the same."""
    labels = {"ack.node.gpu.schedule": "cgpu"}
    one, other = agent_node.facts(), agent_node.facts(16384)
    one.set_unhealthy({agent_node.uuid(1): "x"})
    one.set_labels(labels)
    other.set_labels(labels)
    other.set_unhealthy({agent_node.uuid(1): "x"})
    other.set_devices([agent_node.device(0), agent_node.device(1)])
    assert one.node == other.node


def test_cordons_are_of_the_node_and_not_of_its_cards() -> None:
    """What is published of the cards does not change with them."""
    state = agent_node.facts()
    before = state.node.cards
    state.set_annotations({cordons.CORDONED: '{"version":1,"cards":{"1":"fan"}}', "other": "x"})
    assert state.node.cordons == {agent_node.uuid(1): "fan"}
    assert [card.index for card in state.cordoned.cards] == [1]
    assert state.node.cards == state.healthy.cards == before
    state.set_unhealthy({agent_node.uuid(1): "lost"})
    assert state.cordoned.cards == ()  # its units are unhealthy already
    state.set_annotations({})
    assert state.node.cordons == {}
