"""Crashes, restarts, two replicas, pods that wait: the extender on the real thing."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from cluster import api, objects, pod_phases
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import making
from tests.cluster.making import MEMORY

Maker = Callable[..., extender_process.Extender]


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> Iterator[ControlPlane]:
    """A cluster with Partage's own configuration and one replica."""
    extender.start()
    making.schedule(clean_cluster, extender.port)
    yield clean_cluster
    clean_cluster.stop_scheduler()


def test_a_pod_is_bound_with_its_grant_in_one_write(plane: ControlPlane) -> None:
    """No version of the pod has a node and no grant, nor a grant and no node."""
    plane.client.create(objects.node("n1", cards=2))
    version = plane.client.call("GET", "/api/v1/pods")["metadata"]["resourceVersion"]
    plane.client.create(objects.pod("p", {MEMORY: 3}))
    making.bound(plane, "p")
    states = [
        (bool(event["object"]["spec"].get("nodeName")), making.GRANT in _written(event["object"]))
        for event in plane.client.events_since("Pod", version)
    ]
    assert (True, True) in states
    assert set(states) == {(False, False), (True, True)}


def _written(pod: api.Object) -> dict[str, str]:
    return making.written(pod)


def test_state_survives_kill_9(plane: ControlPlane, extender: extender_process.Extender) -> None:
    """What was granted before counts after."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    plane.client.create(objects.pod("a", {MEMORY: 10}))
    making.bound(plane, "a")
    extender.kill()
    extender.start()
    plane.client.create(objects.pod("b", {MEMORY: 10}))
    making.told(plane, "b", "Insufficient aliyun.com/gpu-mem", "free memory")
    (card,) = extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["devs"]
    assert card["usedGPU"] == 10


def test_a_repeated_bind_is_a_success_and_changes_nothing(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """kube-scheduler repeats a bind whose answer it did not get; so after a crash of ours, too."""
    plane.client.create(objects.node("n1", cards=4))
    plane.client.create(objects.node("n2", cards=4))
    plane.stop_scheduler()
    plane.client.create(objects.pod("p", {MEMORY: 3}))
    pod = plane.client.get("Pod", "p")
    args = _bind_args(pod, "n1")
    making.eventually(lambda: len(extender.get("/gpushare-scheduler/inspect")["nodes"]) == 2)
    assert extender.post("/scheduler/bind", args) == {"Error": ""}
    first = plane.client.get("Pod", "p")["metadata"]
    assert extender.post("/scheduler/bind", args) == {"Error": ""}
    extender.kill()
    extender.start()
    assert extender.post("/scheduler/bind", args) == {"Error": ""}
    assert plane.client.get("Pod", "p")["metadata"]["resourceVersion"] == first["resourceVersion"]
    elsewhere = extender.post("/scheduler/bind", _bind_args(pod, "n2"))["Error"]
    assert elsewhere == "pod default/p is already bound to node n1, or about to be"


def _bind_args(pod: api.Object, node: str) -> dict[str, str]:
    meta = pod["metadata"]
    return {
        "PodName": meta["name"],
        "PodNamespace": meta["namespace"],
        "PodUID": meta["uid"],
        "Node": node,
    }


def test_a_bind_of_another_pod_of_that_name_fails_and_leaves_no_trace(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """The uid decides; the answer is gpushare's."""
    plane.client.create(objects.node("n1", cards=2))
    plane.stop_scheduler()
    plane.client.create(objects.pod("p", {MEMORY: 3}))
    args = {**_bind_args(plane.client.get("Pod", "p"), "n1"), "PodUID": "another"}
    answer = extender.post("/scheduler/bind", args)["Error"]
    assert answer.startswith("The pod p in ns default's uid is ")
    assert answer.endswith("and it's not equal with expected another")
    assert extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["usedGPU"] == 0
    assert not making.written(plane.client.get("Pod", "p"))


def test_binds_to_one_card_at_once_never_put_it_over(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """Twelve pods of 3 GiB race for a card of 16: five get it, the others hear why not."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    plane.stop_scheduler()
    plane.client.create_all(objects.pod(f"p{i}", {MEMORY: 3}) for i in range(12))
    making.eventually(lambda: extender.get("/gpushare-scheduler/inspect")["nodes"])
    answers: list[str] = []
    racing = [
        threading.Thread(
            target=lambda pod=pod: answers.append(
                extender.post("/scheduler/bind", _bind_args(pod, "n1"))["Error"]
            )
        )
        for pod in plane.client.list_all("Pod")
    ]
    for thread in racing:
        thread.start()
    for thread in racing:
        thread.join()
    assert sorted(map(bool, answers)) == [False] * 5 + [True] * 7
    assert all("card 0 has 1024 MiB" in answer for answer in answers if answer)
    bound = [pod for pod in plane.client.list_all("Pod") if pod["spec"].get("nodeName")]
    assert len(bound) == 5


def test_a_pod_that_was_refused_is_tried_again_when_a_hold_of_nobody_expires(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """Nothing in the cluster changes then, so kube-scheduler has to be told."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    making.eventually(lambda: extender.get("/gpushare-scheduler/inspect")["nodes"])
    ghost = objects.pod("ghost", {MEMORY: 10})
    ghost["metadata"]["uid"] = "ghost"
    answer = extender.post("/scheduler/filter", {"Pod": ghost, "NodeNames": ["n1"]})
    assert answer["NodeNames"] == ["n1"]
    plane.client.create(objects.pod("p", {MEMORY: 10}))
    making.told(plane, "p", "no GPU has enough free memory")
    making.bound(plane, "p")  # a hold lasts 15 s; the flush would come after five minutes


def test_one_patch_for_a_release_and_none_when_nobody_waits(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """Each patch makes kube-scheduler look at every rejected pod."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    for name in ("a", "b"):
        plane.client.create(objects.pod(name, {MEMORY: 8}))
        making.bound(plane, name)
    plane.stop_scheduler()
    patches = extender.metric("partage_kicks_total")
    plane.client.delete("Pod", "a", grace_seconds=0)
    making.eventually(lambda: _used_units(extender) == 8)
    whole = objects.pod("whole", {MEMORY: 16})
    whole["metadata"]["uid"] = "whole"
    answer = extender.post("/scheduler/filter", {"Pod": whole, "NodeNames": ["n1"]})
    assert "n1" in answer["FailedNodes"]
    released_at = dt.datetime.now(dt.UTC)
    plane.client.delete("Pod", "b", grace_seconds=0)
    making.eventually(lambda: _patched_at(plane) > released_at)
    assert extender.metric("partage_kicks_total") == patches + 1


def _used_units(extender: extender_process.Extender) -> int:
    used: int = extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["usedGPU"]
    return used


def _patched_at(plane: ControlPlane) -> dt.datetime:
    """When the extender last told kube-scheduler of room on the node."""
    written = making.written(plane.client.get("Node", "n1"))
    return dt.datetime.fromisoformat(written.get("partage.dev/room-since", "1970-01-01T00:00Z"))


def test_deletion_gives_memory_back_only_when_the_containers_have_stopped(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """A pod in its grace period has its memory."""
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    plane.client.create(objects.pod("a", {MEMORY: 16}))
    making.bound(plane, "a")
    pod_phases.run(plane.client, "a")
    plane.client.delete("Pod", "a")
    plane.client.create(objects.pod("b", {MEMORY: 16}))
    making.eventually(lambda: making.events(plane, "b"))
    assert making.node_of(plane, "b") == ""
    assert extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["usedGPU"] == 16
    pod_phases.finish_deletion(plane.client, "a")
    making.bound(plane, "b")


def test_why_a_pod_waits_is_told_per_node_and_card(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """In the words of filter, with the numbers, and with what would fit."""
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    for i in range(2):
        plane.client.create(objects.pod(f"a{i}", {MEMORY: 10}))
        making.bound(plane, f"a{i}")
    plane.client.create(objects.pod("p", {MEMORY: 9}))
    making.eventually(lambda: making.events(plane, "p"))
    explanation = extender.get("/explain/default/p")
    assert explanation["summary"].startswith(
        "not now: container main: asks for 9216 MiB; card 0 has 6144"
    )
    assert explanation["would_fit"] == "6144 MiB instead of 9216"
    (node,) = explanation["nodes"]
    assert (node["node"], node["reason"]) == ("n1", "no GPU has enough free memory")
    assert [lack["short"] for lack in node["shortages"]] == [3072, 3072]
    assert extender.get("/explain/default/gone") == {"error": "there is no pod default/gone"}
    fits = extender.post("/fit", objects.pod("x", {MEMORY: 6}))
    assert fits["fits"] == ["n1"]


def test_the_second_replica_takes_over_after_kill_9(
    clean_cluster: ControlPlane, new_extender: Maker
) -> None:
    """Only the leader is ready, and the next one counts all that the first one bound."""
    plane = clean_cluster
    name = f"partage-{time.monotonic_ns()}"
    config = plane.folder / f"{name}.toml"
    config.write_text(f'[leader]\nelect = true\nname = "{name}"\nlease_s = 10\nrenew_s = 1\n')
    first, second = (new_extender("--config", str(config)) for _ in range(2))
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    first.start()
    second.start(ready=False)
    args = {"Pod": objects.pod("x", {MEMORY: 1}), "NodeNames": ["n1"]}
    assert "does not lead" in second.post("/scheduler/filter", args)["Error"]
    plane.client.create(objects.pod("a", {MEMORY: 10}))
    assert first.post("/scheduler/bind", _bind_args(plane.client.get("Pod", "a"), "n1")) == {
        "Error": ""
    }
    assert not second.is_ready()
    first.kill()
    making.eventually(second.is_ready, patience_s=40)
    plane.client.create(objects.pod("b", {MEMORY: 10}))
    refused = second.post("/scheduler/bind", _bind_args(plane.client.get("Pod", "b"), "n1"))
    assert "6144 MiB" in refused["Error"]
    first.start(ready=False)
    assert not first.is_ready()


def test_a_damaged_record_counts_on_every_card(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """A tenant who edits his annotation gains nothing by it, and after a restart even less."""
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    plane.client.create(objects.pod("p", {MEMORY: 10}))
    making.bound(plane, "p")
    forged = json.dumps({"version": 1})
    plane.client.patch("Pod", "p", {"metadata": {"annotations": {making.GRANT: forged}}})
    making.eventually(lambda: "its record was changed" in extender.log())
    assert extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["usedGPU"] == 10
    extender.kill()
    extender.start()
    assert extender.get("/gpushare-scheduler/inspect/n1")["nodes"][0]["usedGPU"] == 20


def test_a_more_important_pod_evicts_whoever_stands_on_its_card(plane: ControlPlane) -> None:
    """kube-scheduler proposes by sums, and evicts what Partage leaves of the proposal."""
    for name, value in (("low", 1), ("high", 1000)):
        _priority(plane, name, value)
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    for name, units in (("small", 4), ("large", 12)):
        pod = objects.pod(name, {MEMORY: units}, priority_class="low")
        plane.client.create(pod)
        making.bound(plane, name)
    plane.client.create(objects.pod("urgent", {MEMORY: 12}, priority_class="high"))
    making.eventually(lambda: _is_leaving(plane, "large"))
    assert not _is_leaving(plane, "small")
    with contextlib.suppress(api.ApiError):  # a pod that never ran may be gone at once
        pod_phases.finish_deletion(plane.client, "large")
    making.bound(plane, "urgent")


def _priority(plane: ControlPlane, name: str, value: int) -> None:
    made = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    with contextlib.suppress(api.ApiError):  # it is there from another run
        plane.client.create(made)


def _is_leaving(plane: ControlPlane, name: str) -> bool:
    named = [pod for pod in plane.client.list_all("Pod") if pod["metadata"]["name"] == name]
    return not named or "deletionTimestamp" in named[0]["metadata"]
