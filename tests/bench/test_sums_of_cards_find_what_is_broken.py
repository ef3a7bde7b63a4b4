"""The sums that judge a cluster during outages see what must never happen."""

from __future__ import annotations

import json

import pytest

from bench.measurement import card_sums
from cluster import api

CARD_MIB = 1000


def test_a_full_card_is_right() -> None:
    """Cards may be full, and the bound pods are counted."""
    pods = [_pod("a", 600), _pod("b", 400), _pod("c", 1000, card="GPU-2"), _waiting("d")]
    assert card_sums.Sums(CARD_MIB).check(pods) == 3


def test_the_same_card_of_two_nodes_is_two_cards() -> None:
    """Cards that nobody has named yet are known by index, on every node alike."""
    pods = [_pod("a", 600), _pod("b", 600, node="other")]
    assert card_sums.Sums(CARD_MIB).check(pods) == 2


def test_a_card_over_its_memory_is_found() -> None:
    """One MiB is enough."""
    with pytest.raises(card_sums.Broken, match="1001"):
        card_sums.Sums(CARD_MIB).check([_pod("a", 600), _pod("b", 401)])


def test_a_pod_without_grant_is_found() -> None:
    """A bound pod that asks for a share has one."""
    pod = _waiting("a")
    pod["spec"]["nodeName"] = "n"
    with pytest.raises(card_sums.Broken, match="no grant"):
        card_sums.Sums(CARD_MIB).check([pod])


def test_a_grant_for_another_node_is_found() -> None:
    """The grant on a pod names the node it is on."""
    pod = _pod("a", 1)
    pod["spec"]["nodeName"] = "other"
    with pytest.raises(card_sums.Broken, match="grant of another"):
        card_sums.Sums(CARD_MIB).check([pod])


def test_a_pod_that_moved_is_found() -> None:
    """What was bound stays where it is, on the cards it was given."""
    sums = card_sums.Sums(CARD_MIB)
    sums.check([_pod("a", 1)])
    with pytest.raises(card_sums.Broken, match="bound twice"):
        sums.check([_pod("a", 1, card="GPU-2")])


def test_a_lost_pod_is_found() -> None:
    """The pods that are there are those that were made, no more and no fewer."""
    sums = card_sums.Sums(CARD_MIB)
    sums.check_none_lost([_pod("a", 1), _waiting("b")], ["a", "b"])
    with pytest.raises(card_sums.Broken, match="lost"):
        sums.check_none_lost([_pod("a", 1)], ["a", "b"])


def _pod(name: str, memory_mib: int, *, card: str = "GPU-1", node: str = "n") -> api.Object:
    shares = [{"uuid": card, "memory_mib": memory_mib}]
    record = {"uid": f"uid-{name}", "node": node, "containers": [{"shares": shares}]}
    pod = _waiting(name)
    pod["metadata"]["annotations"] = {card_sums.GRANT: json.dumps(record)}
    pod["spec"]["nodeName"] = node
    return pod


def _waiting(name: str) -> api.Object:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}}
