"""What an agent published of unhealthy cards, and of strangers, is known to the next one."""

from __future__ import annotations

import pytest

from partage.agent.cluster import node_publication
from partage.dialects import nodes
from partage.kube import api
from tests.agent import agent_node
from tests.kube import scripted_server


@pytest.fixture
def publisher(client: api.Api) -> node_publication.Publisher:
    """Of an agent that has just been started."""
    return node_publication.Publisher(
        client,
        agent_node.NODE,
        agent_node.facts(),
        fence="hook",
        changed=lambda _: None,
    )


def test_cards_that_were_unhealthy_are_known(publisher: node_publication.Publisher) -> None:
    """An Xid is told once: that the agent was started again is no cure."""
    assert publisher.unhealthy_before() == {}
    state = agent_node.facts()
    state.set_unhealthy({agent_node.uuid(1): "Xid 48"})
    annotations = {nodes.CARDS: nodes.encode(state.node.cards)}
    publisher.put(agent_node.node_object(annotations=annotations))
    assert publisher.unhealthy_before().keys() == {agent_node.uuid(1)}


def test_what_strangers_use_is_known(publisher: node_publication.Publisher) -> None:
    """The scheduler goes on with it while no agent runs, and so does the next agent."""
    state = agent_node.facts()
    state.set_foreign({agent_node.uuid(1): 512})
    annotations = {nodes.CARDS: nodes.encode(state.node.cards)}
    publisher.put(agent_node.node_object(annotations=annotations))
    assert publisher.foreign_before() == {agent_node.uuid(1): 512}


@pytest.mark.parametrize("annotations", [{}, {nodes.CARDS: "nonsense"}], ids=["none", "nonsense"])
def test_a_node_that_says_nothing_readable_has_no_past(
    publisher: node_publication.Publisher, annotations: dict[str, str]
) -> None:
    """It is written anew in a moment."""
    publisher.put(agent_node.node_object(annotations=annotations))
    assert publisher.unhealthy_before() == {}
    assert publisher.foreign_before() == {}


async def test_a_list_that_could_not_be_read_is_written_anew(
    publisher: node_publication.Publisher, server: scripted_server.Server
) -> None:
    """It may name cards that are well by now, and its readers would avoid them for ever."""
    server.script(scripted_server.refusal(500, "InternalError"), scripted_server.Answer({}))
    await publisher.recall()
    await publisher._tell_unhealthy()
    assert [request.verb for request in server.requests] == ["GET", "PATCH"]
