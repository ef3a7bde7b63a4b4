"""What an agent published of sick cards is known to the next one."""

from __future__ import annotations

import pytest

from partage.agent import publishing
from partage.dialects import nodes
from partage.kube import api
from tests.agent import making
from tests.kube import scripted


@pytest.fixture
def publisher(client: api.Api) -> publishing.Publisher:
    """Of an agent that has just been started."""
    return publishing.Publisher(
        client,
        making.NODE,
        making.facts(),
        fence="hook",
        accelerator=False,
        changed=lambda _: None,
    )


def test_cards_that_were_sick_are_known(publisher: publishing.Publisher) -> None:
    """An Xid is told once: that the agent was started again is no cure."""
    assert publisher.sick_before() == {}
    there = making.facts()
    there.set_sick({making.uuid(1): "Xid 48"})
    annotations = {nodes.CARDS: nodes.encode(there.node.cards)}
    publisher.put(making.node_object(annotations=annotations))
    assert publisher.sick_before().keys() == {making.uuid(1)}


@pytest.mark.parametrize("annotations", [{}, {nodes.CARDS: "nonsense"}], ids=["none", "nonsense"])
def test_a_node_that_says_nothing_readable_has_no_past(
    publisher: publishing.Publisher, annotations: dict[str, str]
) -> None:
    """It is written anew in a moment."""
    publisher.put(making.node_object(annotations=annotations))
    assert publisher.sick_before() == {}


async def test_a_list_that_could_not_be_read_is_written_anew(
    publisher: publishing.Publisher, server: scripted.Server
) -> None:
    """It may name cards that are well by now, and its readers would avoid them for ever."""
    server.script(scripted.refusal(500, "InternalError"), scripted.Answer({}))
    await publisher.recall()
    await publisher._tell_sick()
    assert [request.verb for request in server.requests] == ["GET", "PATCH"]
