"""What a vendor's plugin gave away is known by the kubelet's record, and by nothing else."""

from __future__ import annotations

import pytest

from partage.agent.pods import vendor_holdings
from partage.core import grants
from partage.dialects import bound_pods
from partage.kubelet.checkpoint import Holding
from tests.dialects import dialect_pods

NODE = dialect_pods.node(16384, 16384, 8192)
FIRST, SECOND, THIRD = (card.uuid for card in NODE.cards)
WHOLE = "nvidia.com/gpu"


def _held(*holdings: Holding) -> dict[str, dict[str, list[str]]]:
    pods = vendor_holdings.by_pod(holdings, {WHOLE}, NODE.cards)
    return {
        uid: {name: [card.uuid for card in cards] for name, cards in containers.items()}
        for uid, containers in pods.items()
    }


def _holding(*ids: str, container: str = "main", resource: str = WHOLE) -> Holding:
    return Holding("u1", container, resource, frozenset(ids))


def test_ids_that_are_uuids_of_cards_are_another_plugins() -> None:
    """By pod and container, in the order of the cards."""
    assert _held(_holding(SECOND, FIRST), _holding(THIRD, container="side")) == {
        "u1": {"main": [FIRST, SECOND], "side": [THIRD]}
    }


@pytest.mark.parametrize(
    "holding",
    [
        _holding("p0", "p1"),
        _holding(f"{FIRST}::0"),
        _holding(FIRST, "GPU-of-another-node"),
        _holding(FIRST, resource="example.com/gpu"),
        _holding(),
    ],
    ids=["our own", "shared in time", "unknown", "another resource", "nothing"],
)
def test_other_ids_say_nothing(holding: Holding) -> None:
    """Numbers are ours; a card that is shared in time is nobody's alone."""
    assert _held(holding) == {}


def test_the_grant_is_the_one_that_the_extender_would_have_made() -> None:
    """Whole cards, for the container that has them."""
    pod = dialect_pods.bound(dialect_pods.single({WHOLE: 1}), {})

    grant = bound_pods.on_cards(pod, NODE, dialect_pods.SETTINGS, {"main": NODE.cards[1:2]})

    assert isinstance(grant, grants.Grant)
    assert grant == dialect_pods.grant(dialect_pods.single({WHOLE: 1}), NODE, 1)


@pytest.mark.parametrize("chosen", [{"main": NODE.cards}, {"other": NODE.cards[:1]}])
def test_cards_that_do_not_match_the_request_are_no_grant(chosen: dict[str, object]) -> None:
    """The pod is counted in the worst case then."""
    pod = dialect_pods.bound(dialect_pods.single({WHOLE: 1}), {})

    grant = bound_pods.on_cards(pod, NODE, dialect_pods.SETTINGS, chosen)  # type: ignore[arg-type]

    assert isinstance(grant, grants.Damage)
