"""Preemption: only nodes on which evicting helps, and only the victims that are needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scheduler import making


def _world(**facts: Any) -> making.World:
    """A node of two 16 GiB cards, 8 taken on each: a on card 0, b and c on card 1."""
    world = making.World()
    world.mirror.nodes.put(making.node("n1", **facts))
    for name, units, index in (("a", 8, 0), ("b", 4, 1), ("c", 4, 1)):
        world.mirror.pods.put(
            making.pod(
                name,
                {making.MEMORY: units},
                on="n1",
                cpu="4",
                annotations=making.gpushare_record(units, index),
            )
        )
    return world


def _preempt(
    world: making.World, units: int, *victims: str, cpu: str = "", key: str = "meta"
) -> dict[str, list[str]]:
    pod = making.wire_pod("p", {making.MEMORY: str(units), **({"cpu": cpu} if cpu else {})})
    body: dict[str, Any] = {"Pod": pod}
    if key == "meta":
        uids = [{"UID": f"uid-{victim}"} for victim in victims]
        body["NodeNameToMetaVictims"] = {"n1": {"Pods": uids, "NumPDBViolations": 1}}
    else:
        whole = [{"metadata": {"uid": f"uid-{victim}"}} for victim in victims]
        body["NodeNameToVictims"] = {"n1": {"Pods": whole, "NumPDBViolations": 1}}
    answer = json.loads(world.preemption.preempt(json.dumps(body).encode()))
    found = answer["NodeNameToMetaVictims"]
    assert all(victims["NumPDBViolations"] == 1 for victims in found.values())
    return {node: [pod["UID"] for pod in v["Pods"]] for node, v in found.items()}


def test_a_node_stays_if_its_victims_make_room_on_one_card() -> None:
    """16 GiB are free once a is gone."""
    assert _preempt(_world(), 16, "a") == {"n1": ["uid-a"]}


def test_a_node_goes_if_the_room_is_on_two_cards() -> None:
    """12 + 12 GiB are free without a's half and b: by sum enough, on no card."""
    world = _world()
    assert _preempt(world, 16, "b") == {}


def test_victims_that_are_not_needed_are_spared() -> None:
    """Evicting a is enough; b would go for nothing."""
    assert _preempt(_world(), 16, "a", "b") == {"n1": ["uid-a"]}
    assert _preempt(_world(), 16, "b", "c", "a") == {"n1": ["uid-a"]}


def test_the_more_important_victim_is_spared_first() -> None:
    """kube-scheduler lists the most important first."""
    assert _preempt(_world(), 12, "b", "c") == {"n1": ["uid-c"]}


def test_a_victim_whose_cpu_is_needed_is_not_spared() -> None:
    """The pod needs 8 CPUs; the node has 12 and gave all of them away."""
    world = _world(cpu="12")
    assert _preempt(world, 16, "a", "b", cpu="8") == {"n1": ["uid-a", "uid-b"]}


def test_whole_pods_are_answered_in_the_short_form() -> None:
    """The answer has one form, whatever the question had."""
    assert _preempt(_world(), 16, "a", key="whole") == {"n1": ["uid-a"]}


def test_where_the_pod_would_fit_anyway_the_victims_stay_as_proposed() -> None:
    """They were proposed for a reason that is none of ours, and an empty list is an error."""
    assert _preempt(_world(), 4, "a") == {"n1": ["uid-a"]}


def test_a_victim_without_a_card_is_never_spared() -> None:
    """It holds something else that the pod needs: a port, a volume, a network card."""
    world = _world()
    world.mirror.pods.put(making.pod("web", {}, on="n1"))
    assert _preempt(world, 16, "web", "a") == {"n1": ["uid-web", "uid-a"]}


@pytest.mark.parametrize(
    "more",
    [
        {"spec": {"affinity": {"podAntiAffinity": {}}}},
        {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
        {"port": 8080},
        {"limits": {"example.com/nic": "1"}},
    ],
    ids=["affinity", "volume", "port", "resource"],
)
def test_a_pod_with_other_needs_spares_nobody(more: dict[str, Any]) -> None:
    """Whoever was proposed may be in the way of those."""
    pod = making.wire_pod("p", {making.MEMORY: "16", **more.get("limits", {})})
    pod["spec"] |= more.get("spec", {})
    if "port" in more:
        pod["spec"]["containers"][0]["ports"] = [{"hostPort": more["port"]}]
    uids = [{"UID": "uid-b"}, {"UID": "uid-a"}]
    body = {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": uids}}}
    answer = json.loads(_world().preemption.preempt(json.dumps(body).encode()))
    assert answer["NodeNameToMetaVictims"]["n1"]["Pods"] == uids


def test_a_victim_that_is_named_twice_is_one() -> None:
    """Whatever the list looks like."""
    assert _preempt(_world(), 16, "a", "a") == {"n1": ["uid-a", "uid-a"]}


def test_preemption_changes_nothing() -> None:
    """It is a question."""
    world = _world()
    before = world.free_mib("n1")
    _preempt(world, 16, "a", "b")
    assert world.free_mib("n1") == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"Pod": {}, "NodeNameToMetaVictims": {"gone": {"Pods": [{"UID": "x"}]}}}'],
)
def test_what_cannot_be_read_or_judged_preempts_nobody(body: bytes) -> None:
    """Except for pods that ask for no card, which are none of our business."""
    answer = json.loads(making.World().preemption.preempt(body))
    expected = {"gone": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}} if b"gone" in body else {}
    assert answer == {"NodeNameToMetaVictims": expected}


def test_a_node_that_is_unknown_is_left_out() -> None:
    """Nobody is evicted where we know nothing."""
    world = making.World()
    assert _preempt(world, 4, "a") == {}
