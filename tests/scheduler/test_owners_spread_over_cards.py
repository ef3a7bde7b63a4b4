"""Pods of one owner that ask for it are bound to different cards, also by an extender reborn."""

from __future__ import annotations

from typing import Any

import pytest

from partage.dialects import pods, registry
from tests.scheduler import small_cluster

SPREAD = {"partage.dev/spread": "owner"}
MEMORY = {small_cluster.MEMORY: 2}
SAME_OWNER = "the GPU has a pod of the same owner (partage.dev/spread)"


def _asked(
    cluster: small_cluster.Cluster, name: str, owner: str, *, namespace: str = "default"
) -> dict[str, Any]:
    """The answer to the filter of a pod that an owner made."""
    owners = [{"kind": "Job", "name": "j", "uid": owner, "controller": True}] if owner else []
    pod = small_cluster.wire_pod(
        name, MEMORY, annotations=SPREAD, ownerReferences=owners, namespace=namespace
    )
    return cluster.filter(small_cluster.args(pod, ["n1"]))


def _bound(cluster: small_cluster.Cluster, name: str, owner: str) -> pods.Pod:
    """The pod as the API server has it after its bind."""
    grant = cluster.fleet.confirm(f"uid-{name}")
    state = cluster.fleet.state("n1")
    assert state is not None
    bare = small_cluster.pod(name, MEMORY, on="n1", annotations=SPREAD)
    marks = registry.marks(
        grant, bare, state.node, now_ns=1, settings=cluster.mirror.settings
    ).annotations
    return pods.Pod(
        pods.Metadata(
            name,
            "default",
            f"uid-{name}",
            {**SPREAD, **marks},
            owner_references=(pods.Owner(uid=owner, controller=True),),
        ),
        bare.spec,
    )


def _cluster() -> small_cluster.Cluster:
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1", count=2))
    return cluster


def test_the_third_waits_with_the_reason() -> None:
    """Two cards, two pods; others of no owner of theirs go where they like."""
    cluster = _cluster()
    for name in "ab":
        assert _asked(cluster, name, "job")["NodeNames"] == ["n1"]

    assert _asked(cluster, "c", "job")["FailedNodes"] == {"n1": SAME_OWNER}
    assert _asked(cluster, "d", "other")["NodeNames"] == ["n1"]
    assert cluster.free_mib("n1") in ([12 * 1024, 14 * 1024], [14 * 1024, 12 * 1024])


def test_the_same_owner_in_another_namespace_is_another_one() -> None:
    """A tenant who writes the uid of others does not keep them away."""
    cluster = _cluster()
    for name in "ab":
        _asked(cluster, name, "job", namespace="club")

    assert _asked(cluster, "c", "job")["NodeNames"] == ["n1"]


def test_it_is_known_after_a_restart() -> None:
    """By the records on the pods, whatever became of their owner; until they are gone."""
    before = _cluster()
    for name in "ab":
        _asked(before, name, "job")
    bound = [_bound(before, "a", "job"), _bound(before, "b", "")]

    reborn = _cluster()
    for pod in bound:
        reborn.mirror.pods.put(pod)

    assert _asked(reborn, "c", "job")["FailedNodes"] == {"n1": SAME_OWNER}
    reborn.mirror.pods.drop(bound[1].metadata.uid)
    assert _asked(reborn, "c", "job")["NodeNames"] == ["n1"]


@pytest.mark.parametrize("again", [1, 2])
def test_a_pod_that_is_asked_about_again_keeps_its_card(again: int) -> None:
    """Its own hold is not that of another pod of its group."""
    cluster = _cluster()
    for _ in range(1 + again):
        assert _asked(cluster, "a", "job")["NodeNames"] == ["n1"]


def test_without_an_owner_it_is_refused_with_what_to_do() -> None:
    """Where nobody asked admission."""
    answer = _asked(_cluster(), "a", "")

    (text,) = answer["FailedAndUnresolvableNodes"].values()
    assert "the pod has no owner and no group; let a Job," in text
