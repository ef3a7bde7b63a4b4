"""Preemption: only nodes on which evicting helps, and only the victims that are needed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scheduler import small_cluster


def _cluster(**facts: Any) -> small_cluster.Cluster:
    """A node of two 16 GiB cards, 8 taken on each: a on card 0, b and c on card 1."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1", **facts))
    for name, units, index in (("a", 8, 0), ("b", 4, 1), ("c", 4, 1)):
        cluster.mirror.pods.put(
            small_cluster.pod(
                name,
                {small_cluster.MEMORY: units},
                on="n1",
                cpu="4",
                annotations=small_cluster.gpushare_record(units, index),
            )
        )
    return cluster


def _preempt(
    cluster: small_cluster.Cluster, units: int, *victims: str, cpu: str = "", key: str = "meta"
) -> dict[str, list[str]]:
    pod = small_cluster.wire_pod(
        "p", {small_cluster.MEMORY: str(units), **({"cpu": cpu} if cpu else {})}
    )
    body: dict[str, Any] = {"Pod": pod}
    if key == "meta":
        uids = [{"UID": f"uid-{victim}"} for victim in victims]
        body["NodeNameToMetaVictims"] = {"n1": {"Pods": uids, "NumPDBViolations": 1}}
    else:
        whole = [{"metadata": {"uid": f"uid-{victim}"}} for victim in victims]
        body["NodeNameToVictims"] = {"n1": {"Pods": whole, "NumPDBViolations": 1}}
    answer = json.loads(cluster.preemption.preempt(json.dumps(body).encode()))
    kept = answer["NodeNameToMetaVictims"]
    assert all(victims["NumPDBViolations"] == 1 for victims in kept.values())
    return {node: [pod["UID"] for pod in v["Pods"]] for node, v in kept.items()}


def test_a_node_stays_if_its_victims_make_room_on_one_card() -> None:
    """16 GiB are free once a is gone."""
    assert _preempt(_cluster(), 16, "a") == {"n1": ["uid-a"]}


def test_a_node_goes_if_the_room_is_on_two_cards() -> None:
    """12 + 12 GiB are free without a's half and b: by sum enough, on no card."""
    cluster = _cluster()
    assert _preempt(cluster, 16, "b") == {}


def test_victims_that_are_not_needed_are_spared() -> None:
    """Evicting a is enough; b would go for nothing."""
    assert _preempt(_cluster(), 16, "a", "b") == {"n1": ["uid-a"]}
    assert _preempt(_cluster(), 16, "b", "c", "a") == {"n1": ["uid-a"]}


def test_the_more_important_victim_is_spared_first() -> None:
    """kube-scheduler lists the most important first."""
    assert _preempt(_cluster(), 12, "b", "c") == {"n1": ["uid-c"]}


def test_a_victim_whose_cpu_is_needed_is_not_spared() -> None:
    """The pod needs 8 CPUs; the node has 12 and gave all of them away."""
    cluster = _cluster(cpu="12")
    assert _preempt(cluster, 16, "a", "b", cpu="8") == {"n1": ["uid-a", "uid-b"]}


def test_whole_pods_are_answered_in_the_short_form() -> None:
    """The answer has one form, whatever the question had."""
    assert _preempt(_cluster(), 16, "a", key="whole") == {"n1": ["uid-a"]}


def test_where_the_pod_would_fit_anyway_the_victims_stay_as_proposed() -> None:
    """They were proposed for a reason that is none of ours, and an empty list is an error."""
    assert _preempt(_cluster(), 4, "a") == {"n1": ["uid-a"]}


def test_a_victim_without_a_card_is_never_spared() -> None:
    """It holds something else that the pod needs: a port, a volume, a network card."""
    cluster = _cluster()
    cluster.mirror.pods.put(small_cluster.pod("web", {}, on="n1"))
    assert _preempt(cluster, 16, "web", "a") == {"n1": ["uid-web", "uid-a"]}


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
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "16", **more.get("limits", {})})
    pod["spec"] |= more.get("spec", {})
    if "port" in more:
        pod["spec"]["containers"][0]["ports"] = [{"hostPort": more["port"]}]
    uids = [{"UID": "uid-b"}, {"UID": "uid-a"}]
    body = {"Pod": pod, "NodeNameToMetaVictims": {"n1": {"Pods": uids}}}
    answer = json.loads(_cluster().preemption.preempt(json.dumps(body).encode()))
    assert answer["NodeNameToMetaVictims"]["n1"]["Pods"] == uids


def test_a_victim_that_is_named_twice_is_one() -> None:
    """Whatever the list looks like."""
    assert _preempt(_cluster(), 16, "a", "a") == {"n1": ["uid-a", "uid-a"]}


def test_preemption_changes_nothing() -> None:
    """It is a question."""
    cluster = _cluster()
    before = cluster.free_mib("n1")
    _preempt(cluster, 16, "a", "b")
    assert cluster.free_mib("n1") == before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"Pod": {}, "NodeNameToMetaVictims": {"gone": {"Pods": [{"UID": "x"}]}}}'],
)
def test_what_cannot_be_read_or_judged_preempts_nobody(body: bytes) -> None:
    """Except for pods that ask for no card, which are none of our business."""
    answer = json.loads(small_cluster.Cluster().preemption.preempt(body))
    expected = {"gone": {"Pods": [{"UID": "x"}], "NumPDBViolations": 0}} if b"gone" in body else {}
    assert answer == {"NodeNameToMetaVictims": expected}


def test_a_node_that_is_unknown_is_left_out() -> None:
    """Nobody is evicted where we know nothing."""
    cluster = small_cluster.Cluster()
    assert _preempt(cluster, 4, "a") == {}
