"""Many pods go while many wait: kube-scheduler is woken now and then, not for each of them."""

from __future__ import annotations

import time

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import making
from tests.cluster.making import MEMORY

PODS = 200


def test_deleting_many_while_many_wait_does_not_ask_about_all_of_them_each_time(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> None:
    """All that wait are bound in the end, after a few questions each."""
    plane = clean_cluster
    plane.client.create_all(objects.node(f"n{i}", cards=2, card_units=10) for i in range(PODS // 2))
    extender.start()
    making.schedule(plane, extender.port, advertised=())
    plane.client.create_all(objects.pod(f"old-{i}", {MEMORY: 10}) for i in range(PODS))
    making.eventually(lambda: _bound(plane, "old-") == PODS)
    plane.client.create_all(objects.pod(f"new-{i}", {MEMORY: 10}) for i in range(PODS))
    making.eventually(lambda: _questions(extender) >= 2 * PODS)
    before, kicks = _questions(extender), extender.metric("partage_kicks_total")
    began = time.monotonic()
    for i in range(PODS):
        plane.client.delete("Pod", f"old-{i}", grace_seconds=0)
    making.eventually(lambda: _bound(plane, "new-") == PODS, patience_s=120)
    took_s = time.monotonic() - began
    assert extender.metric("partage_kicks_total") - kicks <= took_s + 2
    assert _questions(extender) - before < 10 * PODS  # and not PODS * PODS


def _bound(plane: ControlPlane, prefix: str) -> int:
    names = [
        pod["metadata"]["name"]
        for pod in plane.client.list_all("Pod")
        if pod["spec"].get("nodeName")
    ]
    return sum(name.startswith(prefix) for name in names)


def _questions(extender: extender_process.Extender) -> float:
    return extender.metric('partage_verb_seconds_count{verb="filter"}')
