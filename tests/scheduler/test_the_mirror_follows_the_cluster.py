"""Nodes, pods and unhealthy cards come and go in any order, and the fleet stays equal to them."""

from __future__ import annotations

import random

import msgspec
import pytest

from partage.core import fleet, grants
from partage.dialects import contract, cordons, node_readings, nodes, pods, registry
from partage.scheduler.mirror import health_sink
from tests.scheduler import small_cluster
from tests.scheduler.small_cluster import GIB


def _unhealthy(node: str, gpus: str) -> health_sink.UnhealthyList:
    return health_sink.UnhealthyList(
        health_sink.UnhealthyList.Metadata(f"unhealthy-gpu-{node}"), {"gpus": gpus}
    )


def _bound(cluster: small_cluster.Cluster, name: str, units: int, node: str) -> pods.Pod:
    """A pod that Partage bound: its record is on it."""
    asking = small_cluster.pod(name, {small_cluster.MEMORY: units})
    demand = cluster.mirror.demand(asking)
    assert demand is not None
    held = cluster.fleet.hold(asking.identity, demand, node, expires_at=0)
    assert isinstance(held, fleet.Hold)
    cluster.fleet.release(asking.metadata.uid)
    state = cluster.fleet.state(node)
    assert state is not None
    marks = registry.marks(
        held.grant, asking, state.node, now_ns=1, settings=cluster.mirror.settings
    )
    return small_cluster.pod(
        name, {small_cluster.MEMORY: units}, on=node, annotations=marks.annotations
    )


def test_pods_of_gpushare_count_where_it_put_them() -> None:
    """State is rebuilt from the annotations of the old system."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 3},
            on="n1",
            annotations=small_cluster.gpushare_record(3, 1),
        )
    )
    assert cluster.free_mib("n1") == [16 * GIB, 13 * GIB]


@pytest.mark.parametrize(
    ("capacity", "node_annotations", "limits", "annotations", "free"),
    [
        (
            {},
            {
                "hami.io/node-nvidia-register": '[{"id":"GPU-0","index":0,"devmem":16384},'
                '{"id":"GPU-1","index":1,"devmem":16384}]'
            },
            {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3072, "nvidia.com/gpucores": 30},
            {"hami.io/vgpu-node": "n1", "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,3072,30:;"},
            [16384, 13312],
        ),
        (
            {"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 128},
            {},
            {"tencent.com/vcuda-core": 30, "tencent.com/vcuda-memory": 12},
            {
                "tencent.com/predicate-gpu-idx-0": "1",
                "tencent.com/predicate-node": "n1",
                "tencent.com/predicate-time": "1",
                "tencent.com/gpu-assigned": "true",
            },
            [16384, 13312],
        ),
        (
            {"elasticgpu.io/gpu-core": 200, "elasticgpu.io/gpu-memory": 32768},
            {},
            {"elasticgpu.io/gpu-memory": 3072},
            {"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": "1"},
            [16384, 13312],
        ),
    ],
    ids=["hami", "gaia", "elastic"],
)
def test_pods_of_other_systems_count_on_the_nodes_that_those_describe(
    capacity: dict[str, pods.Amount],
    node_annotations: dict[str, str],
    limits: dict[str, pods.Amount],
    annotations: dict[str, str],
    free: list[int],
) -> None:
    """Without an agent, from what their own plugins and schedulers wrote."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(capacity=capacity, annotations=node_annotations))
    cluster.mirror.pods.put(small_cluster.pod("a", limits, on="n1", annotations=annotations))
    assert cluster.free_mib("n1") == free
    assert len(cluster.mirror.problems) == 0


def test_a_pod_whose_node_is_unknown_counts_when_the_node_appears() -> None:
    """A pod of a vanished node neither stops the start nor is forgotten."""
    cluster = small_cluster.Cluster()
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 3},
            on="n1",
            annotations=small_cluster.gpushare_record(3, 0),
        )
    )
    cluster.mirror.nodes.put(small_cluster.node())
    assert cluster.free_mib("n1") == [13 * GIB, 16 * GIB]


def test_a_damaged_record_counts_on_every_card_and_is_reported() -> None:
    """Nobody knows where the pod is, so nothing is given away that it may have."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 3},
            on="n1",
            annotations=small_cluster.gpushare_record(3, 7),
        )
    )
    assert cluster.free_mib("n1") == [13 * GIB, 13 * GIB]
    ((what, text),) = cluster.mirror.problems
    assert what == "pod default/a"
    assert "no card 7" in text
    cluster.mirror.pods.drop("uid-a")
    assert cluster.free_mib("n1") == [16 * GIB, 16 * GIB]
    assert len(cluster.mirror.problems) == 0


def test_a_bound_pod_with_an_illegal_request_takes_the_whole_node() -> None:
    """What it asks for cannot be read, so it may have anything."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(small_cluster.pod("a", {small_cluster.MEMORY: "2500m"}, on="n1"))
    assert cluster.free_mib("n1") == [0, 0]


def test_a_damaged_record_is_read_again_when_its_node_gets_the_card() -> None:
    """A card may be reported later than the pod on it."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(count=1))
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 3},
            on="n1",
            annotations=small_cluster.gpushare_record(3, 1),
        )
    )
    cluster.mirror.nodes.put(small_cluster.node(count=2))
    assert cluster.free_mib("n1") == [16 * GIB, 13 * GIB]
    assert len(cluster.mirror.problems) == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_memory_back(phase: str) -> None:
    """Finished pods stay in the cluster for long."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    running = _bound(cluster, "a", 3, "n1")
    cluster.mirror.pods.put(running)
    assert sum(cluster.free_mib("n1")) == 29 * GIB
    cluster.mirror.pods.put(msgspec.structs.replace(running, status=pods.Status(phase)))
    assert sum(cluster.free_mib("n1")) == 32 * GIB
    assert "n1" in cluster.freed


def _terminating(pod: pods.Pod, *states: pods.State) -> pods.Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    statuses = tuple(pods.ContainerStatus(state) for state in states)
    return msgspec.structs.replace(pod, metadata=meta, status=pods.Status("Running", statuses))


def test_memory_comes_back_when_containers_have_stopped_not_when_deletion_is_asked_for() -> None:
    """Through its grace period a container has all it had."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    running = _bound(cluster, "a", 3, "n1")
    cluster.mirror.pods.put(running)
    alive, over = pods.State(running={}), pods.State(terminated={})
    for states in ((alive,), (over, alive), (), (pods.State(),)):
        cluster.mirror.pods.put(_terminating(running, *states))
        assert sum(cluster.free_mib("n1")) == 29 * GIB, states
    cluster.mirror.pods.put(_terminating(running, over, over))
    assert sum(cluster.free_mib("n1")) == 32 * GIB


def test_a_failed_pod_with_a_running_container_keeps_its_memory() -> None:
    """A phase can be written by others than the kubelet."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    running = _bound(cluster, "a", 3, "n1")
    statuses = (pods.ContainerStatus(pods.State(running={})),)
    cluster.mirror.pods.put(
        msgspec.structs.replace(running, status=pods.Status("Failed", statuses))
    )
    assert sum(cluster.free_mib("n1")) == 29 * GIB


def test_an_old_word_about_a_bound_pod_does_not_unbind_it() -> None:
    """A watch may tell what was before our own bind."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    running = _bound(cluster, "a", 3, "n1")
    cluster.mirror.pods.put(running)
    cluster.mirror.pods.put(small_cluster.pod("a", {small_cluster.MEMORY: 3}))
    assert sum(cluster.free_mib("n1")) == 29 * GIB
    assert not cluster.mirror.waiting


def test_what_we_bound_and_never_saw_is_among_the_keys() -> None:
    """Else a pod that was bound and deleted in a gap of the watch would keep its memory."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    pod = small_cluster.pod("a", {small_cluster.MEMORY: 3})
    demand = cluster.mirror.demand(pod)
    assert demand is not None
    cluster.fleet.hold(pod.identity, demand, "n1", expires_at=0)
    cluster.fleet.confirm("uid-a")
    assert "uid-a" in set(cluster.mirror.pods.keys())
    cluster.mirror.pods.drop("uid-a")
    assert sum(cluster.free_mib("n1")) == 32 * GIB


def test_same_name_new_uid_is_another_pod() -> None:
    """A StatefulSet re-creates a pod under its name before the old one's end is told."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    old = small_cluster.pod(
        "a",
        {small_cluster.MEMORY: 3},
        on="n1",
        uid="1",
        annotations=small_cluster.gpushare_record(3, 0),
    )
    new = small_cluster.pod(
        "a",
        {small_cluster.MEMORY: 3},
        on="n1",
        uid="2",
        annotations=small_cluster.gpushare_record(3, 0),
    )
    cluster.mirror.pods.put(old)
    cluster.mirror.pods.put(new)
    assert cluster.free_mib("n1") == [10 * GIB, 16 * GIB]
    cluster.mirror.pods.drop("1")
    assert cluster.free_mib("n1") == [13 * GIB, 16 * GIB]


def test_cards_come_go_and_change_their_size() -> None:
    """The node's present facts count, with all that was granted on it."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(count=2))
    cluster.mirror.pods.put(
        small_cluster.pod(
            "a",
            {small_cluster.MEMORY: 3},
            on="n1",
            annotations=small_cluster.gpushare_record(3, 1),
        )
    )
    cluster.mirror.nodes.put(small_cluster.node(count=3))
    assert cluster.free_mib("n1") == [16 * GIB, 13 * GIB, 16 * GIB]
    cluster.mirror.nodes.put(small_cluster.node(count=3, units_per_card=24))
    assert cluster.free_mib("n1") == [24 * GIB, 21 * GIB, 24 * GIB]
    cluster.mirror.nodes.put(small_cluster.node(count=1))
    assert cluster.free_mib("n1") == [16 * GIB]
    cluster.mirror.nodes.put(small_cluster.node(count=2))
    assert cluster.free_mib("n1") == [16 * GIB, 13 * GIB]


def test_a_node_that_is_made_anew_keeps_its_pods_until_they_are_gone() -> None:
    """Under the same name the same processes may run."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(_bound(cluster, "a", 3, "n1"))
    cluster.mirror.nodes.drop("n1")
    assert cluster.fleet.state("n1") is None
    cluster.mirror.nodes.put(small_cluster.node())
    assert sum(cluster.free_mib("n1")) == 29 * GIB
    cluster.mirror.nodes.drop("n1")
    cluster.mirror.pods.drop("uid-a")
    cluster.mirror.nodes.put(small_cluster.node())
    assert sum(cluster.free_mib("n1")) == 32 * GIB


def test_an_agent_that_names_the_cards_loses_no_grant_and_neither_does_its_removal() -> None:
    """Before there is an agent a card is known by its index only."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(count=2))
    bound = _bound(cluster, "a", 3, "n1")
    cluster.mirror.pods.put(bound)
    before = cluster.free_mib("n1")
    cluster.mirror.nodes.put(small_cluster.carded("n1", 16 * GIB, 16 * GIB))
    assert cluster.free_mib("n1") == before
    cluster.mirror.pods.put(bound)  # a heartbeat of the pod, with its old record
    assert cluster.free_mib("n1") == before
    cluster.mirror.nodes.put(small_cluster.node(count=2))
    assert cluster.free_mib("n1") == before


def test_a_cluster_that_changes_from_gib_to_mib_keeps_what_was_granted() -> None:
    """The plugin reports other numbers; a record in MiB, and one with its unit, stay true."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(count=2, units_per_card=15))
    ours = _bound(cluster, "a", 3, "n1")
    theirs = small_cluster.pod(
        "b",
        {small_cluster.MEMORY: 4},
        on="n1",
        annotations=small_cluster.gpushare_record(4, 1, card=15),
    )
    for pod in (ours, theirs):
        cluster.mirror.pods.put(pod)
    taken = [15 * GIB - free for free in cluster.free_mib("n1")]
    cluster.mirror.nodes.put(small_cluster.node(count=2, units_per_card=15 * GIB))
    assert cluster.mirror.settings.memory_unit_mib == 1
    for pod in (ours, theirs):
        cluster.mirror.pods.put(pod)
    assert [15 * GIB - free for free in cluster.free_mib("n1")] == taken
    assert len(cluster.mirror.problems) == 0
    demand = cluster.mirror.demand(small_cluster.pod("c", {small_cluster.MEMORY: 512}))
    assert demand is not None
    assert demand.containers[0].demand.memory_mib == 512


def test_nodes_that_disagree_about_the_unit_are_reported_and_the_majority_counts() -> None:
    """In the middle of a change both are there."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node("n1"))
    cluster.mirror.nodes.put(small_cluster.node("n2"))
    cluster.mirror.nodes.put(small_cluster.node("n3", units_per_card=16 * GIB))
    assert cluster.mirror.settings.memory_unit_mib == 1024
    ((what, text),) = cluster.mirror.problems
    assert what.startswith("node n3")
    assert "MiB" in text
    cluster.mirror.nodes.put(small_cluster.node("n2", units_per_card=16 * GIB))
    assert [what for what, _ in cluster.mirror.problems] == ["node n1 (unit)"]
    cluster.mirror.nodes.drop("n1")
    assert len(cluster.mirror.problems) == 0


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_a_draw_between_units_does_not_depend_on_who_came_first(order: tuple[str, str]) -> None:
    """A new leader must read the same numbers from the same nodes."""
    nodes = {
        "n1": small_cluster.node("n1"),
        "n2": small_cluster.node("n2", units_per_card=16 * GIB),
    }
    cluster = small_cluster.Cluster()
    for name in order:
        cluster.mirror.nodes.put(nodes[name])
    assert cluster.mirror.settings.memory_unit_mib == 1024


def test_a_node_whose_plugin_has_ended_has_no_vote_and_the_last_one_leaves_the_unit() -> None:
    """Its capacity stays for minutes, and a pod's 3 GiB must not be read as 3 MiB by that."""
    cluster = small_cluster.Cluster()
    left = small_cluster.node("n1", units_per_card=16 * GIB)
    ended = msgspec.structs.replace(
        left, status=msgspec.structs.replace(left.status, allocatable={small_cluster.MEMORY: 0})
    )
    cluster.mirror.nodes.put(ended)
    assert cluster.mirror.settings.memory_unit_mib == 1024
    cluster.mirror.nodes.put(left)
    assert cluster.mirror.settings.memory_unit_mib == 1
    cluster.mirror.nodes.put(ended)  # its agent is restarted
    assert cluster.mirror.settings.memory_unit_mib == 1


def test_a_fixed_unit_stays_whatever_nodes_say() -> None:
    """An administrator who names it is believed."""
    cluster = small_cluster.Cluster(unit="MiB")
    cluster.mirror.nodes.put(small_cluster.node())
    assert cluster.mirror.settings.memory_unit_mib == 1


def test_unhealthy_cards_are_left_out_and_come_back() -> None:
    """The list of unhealthy cards is a ConfigMap, and may be there before its node."""
    cluster = small_cluster.Cluster()
    cluster.mirror.unhealthy.put(_unhealthy("n1", "0"))
    cluster.mirror.nodes.put(small_cluster.node())
    state = cluster.fleet.state("n1")
    assert state is not None
    assert [room.open for room in state.rooms] == [False, True]
    cluster.freed.clear()
    cluster.mirror.unhealthy.drop("unhealthy-gpu-n1")
    assert [room.open for room in state.rooms] == [True, True]
    assert cluster.freed == ["n1"]


def test_cordoned_cards_are_closed_and_opened_with_the_node() -> None:
    """Pods that wait are tried again when a card is opened; who is there is counted all along."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(_bound(cluster, "a", 3, "n1"))
    cordon = {cordons.CORDONED: cordons.encode({"0": "fan"}) or ""}
    cluster.mirror.nodes.put(small_cluster.node(annotations=cordon))
    state = cluster.fleet.state("n1")
    assert state is not None
    assert [room.open for room in state.rooms] == [False, True]
    assert cluster.free_mib("n1") == [13 * GIB, 16 * GIB]
    cluster.freed.clear()
    cluster.mirror.nodes.put(small_cluster.node())
    assert [room.open for room in state.rooms] == [True, True]
    assert cluster.freed == ["n1"]


@pytest.mark.parametrize("gpus", ["x,1", " ,1", "0x0,1", "-1, 1", "1,99999999999"])
def test_a_token_that_is_no_index_is_reported_and_ignored(gpus: str) -> None:
    """gpushare took every one of these for card 0."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.unhealthy.put(_unhealthy("n1", gpus))
    state = cluster.fleet.state("n1")
    assert state is not None
    assert [room.card.healthy for room in state.rooms] == [True, False]
    assert [what for what, _ in cluster.mirror.problems] == [
        "configmap kube-system/unhealthy-gpu-n1"
    ]


def test_a_list_for_a_node_that_is_not_there_is_reported_while_it_is_not() -> None:
    """A slip in its name would leave an unhealthy card in use."""
    cluster = small_cluster.Cluster()
    cluster.mirror.unhealthy.put(_unhealthy("n1", "0"))
    assert list(cluster.mirror.problems) == [
        ("configmap kube-system/unhealthy-gpu-n1", "there is no node n1")
    ]
    cluster.mirror.nodes.put(small_cluster.node())
    assert len(cluster.mirror.problems) == 0
    cluster.mirror.nodes.drop("n1")
    assert len(cluster.mirror.problems) == 1
    cluster.mirror.unhealthy.drop("unhealthy-gpu-n1")
    assert len(cluster.mirror.problems) == 0


def test_configmaps_of_others_are_none_of_our_business() -> None:
    """kube-system is full of them."""
    cluster = small_cluster.Cluster()
    cluster.mirror.unhealthy.put(
        health_sink.UnhealthyList(health_sink.UnhealthyList.Metadata("coredns"), {"gpus": "0"})
    )
    assert not cluster.mirror.unhealthy.keys()


def test_cards_that_cannot_be_read_are_not_there_and_reported() -> None:
    """Nothing new is placed on what nobody understands."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(annotations={nodes.CARDS: "[1"}))
    assert cluster.free_mib("n1") == []
    ((what, text),) = cluster.mirror.problems
    assert (what, "partage.dev/cards" in text) == ("node n1", True)


def test_cpu_of_all_pods_is_known_of_a_node() -> None:
    """A policy avoids stranding cards on a node that has no CPU left for them."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node(cpu="8"))
    cluster.mirror.pods.put(small_cluster.pod("a", {}, on="n1", cpu="1500m"))
    state = cluster.fleet.state("n1")
    assert state is not None
    assert state.node.free_cpu_milli == 6500
    cluster.mirror.pods.drop("uid-a")
    assert state.node.free_cpu_milli == 8000


def test_a_heartbeat_of_a_node_changes_nothing() -> None:
    """Thousands of nodes send one every few minutes; answers that are kept must stay."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.freed.clear()
    state = cluster.fleet.state("n1")
    assert state is not None
    before = state.node
    cluster.mirror.nodes.put(small_cluster.node())
    assert state.node is before
    assert cluster.freed == []


def test_any_order_of_events_ends_in_the_same_fleet() -> None:
    """Nodes, pods and lists come through three watches, whose order nobody promises."""
    source = random.Random(7)
    facts: list[tuple[str, object]] = [("nodes", small_cluster.node(f"n{i}")) for i in range(3)]
    facts += [("unhealthy", _unhealthy("n1", "1"))]
    facts += [
        (
            "pods",
            small_cluster.pod(
                f"p{i}",
                {small_cluster.MEMORY: 1 + i % 3},
                on=f"n{i % 4}",
                annotations=small_cluster.gpushare_record(1 + i % 3, i % 3),
            ),
        )
        for i in range(24)
    ]
    looks = []
    for _ in range(20):
        source.shuffle(facts)
        cluster = small_cluster.Cluster()
        for kind, fact in facts:
            getattr(cluster.mirror, kind).put(fact)
        looks.append(_look(cluster))
    assert all(look == looks[0] for look in looks)


def _look(cluster: small_cluster.Cluster) -> dict[str, tuple[list[int], set[grants.Grant]]]:
    return {
        state.node.name: (cluster.free_mib(state.node.name), set(state.grants.values()))
        for state in cluster.fleet.states()
    }


def test_a_grant_that_somebody_else_made_is_reported() -> None:
    """Two extenders without a lease would give the same card away twice."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(_bound(cluster, "before", 3, "n1"))
    cluster.mirror.pods.is_only_extender = True
    assert len(cluster.mirror.problems) == 0
    cluster.mirror.pods.put(_bound(cluster, "a", 3, "n1"))
    ((what, text),) = cluster.mirror.problems
    assert what == "another extender"
    assert "pod default/a" in text


def test_a_label_that_is_changed_later_makes_no_room() -> None:
    """What a pod was granted counts as long as it lives, whatever its owner writes on it."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    bound = _bound(cluster, "a", 16, "n1")
    cluster.mirror.pods.put(bound)
    before = cluster.free_mib("n1")
    changes: tuple[dict[str, dict[str, str]], ...] = (
        {"labels": {"aliyun.com/gpu-count": "16"}},
        {"labels": {"aliyun.com/gpu-count": "nope"}},
        {"annotations": {}},
        {"annotations": {"partage.dev/grant": "x"}},
        {"annotations": {**bound.metadata.annotations, **_moved(bound)}},
    )
    for change in changes:
        meta = msgspec.structs.replace(bound.metadata, **change)
        cluster.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
        assert cluster.free_mib("n1") == before, change
        assert [what for what, _ in cluster.mirror.problems] == ["pod default/a"]
    cluster.mirror.pods.put(bound)
    assert len(cluster.mirror.problems) == 0
    cluster.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    cluster.mirror.pods.drop("uid-a")
    assert len(cluster.mirror.problems) == 0  # nothing is wrong with a pod that is gone


def _moved(bound: pods.Pod) -> dict[str, str]:
    record = bound.metadata.annotations["partage.dev/grant"]
    return {"partage.dev/grant": record.replace("index-0", "index-9").replace('x":0', 'x":9')}


@pytest.mark.parametrize(
    "change",
    [
        {"labels": {"aliyun.com/gpu-count": "16"}},
        {"labels": {"aliyun.com/gpu-count": "nope"}},
        {"annotations": {"partage.dev/grant": "x", "partage.dev/qos": "offline"}},
        {"annotations": {}},
    ],
    ids=["divided", "unreadable", "forged", "taken away"],
)
def test_after_a_restart_a_changed_pod_counts_undivided_on_every_card(
    change: dict[str, dict[str, str]],
) -> None:
    """Limits cannot be changed, labels and annotations can: the most they can mean counts."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    bound = _bound(cluster, "a", 10, "n1")
    meta = msgspec.structs.replace(bound.metadata, **change)
    cluster.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    assert cluster.free_mib("n1") == [6 * GIB, 6 * GIB]


def test_after_a_restart_a_record_of_a_card_that_is_not_there_counts_everywhere() -> None:
    """Else its room would be taken from nobody."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    bound = _bound(cluster, "a", 10, "n1")
    forged = {**bound.metadata.annotations, **_moved(bound)}
    meta = msgspec.structs.replace(bound.metadata, annotations=forged)
    cluster.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    assert cluster.free_mib("n1") == [6 * GIB, 6 * GIB]


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [({"cpu": 1}, {"partage.dev/cards": "all"}), ({"partage.dev/foo": 0}, {}), ({}, {})],
)
def test_a_pod_without_any_amount_of_a_card_holds_nothing(
    limits: dict[str, pods.Amount], annotations: dict[str, str]
) -> None:
    """kube-scheduler does not ask about it, and nobody may block cards by a word."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    cluster.mirror.pods.put(small_cluster.pod("a", limits, on="n1", annotations=annotations))
    assert cluster.free_mib("n1") == [16 * GIB, 16 * GIB]


def test_a_hold_moves_with_the_names_of_its_cards_and_stays_a_hold() -> None:
    """An agent may name the cards of a node while a bind is under way."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    body = small_cluster.args(small_cluster.wire_pod("p", {small_cluster.MEMORY: "10"}), ["n1"])
    assert cluster.filter(body)["NodeNames"] == ["n1"]
    cluster.mirror.nodes.put(small_cluster.carded("n1", 16 * GIB, 16 * GIB))
    assert sorted(cluster.free_mib("n1")) == [6 * GIB, 16 * GIB]
    assert cluster.fleet.holds == 1
    cluster.clock.now += 20
    cluster.binds.expire()
    assert cluster.free_mib("n1") == [16 * GIB, 16 * GIB]


@pytest.mark.parametrize("device", [{"id": "GPU-1", "devmem": 0}, {"id": "", "devmem": 5}])
def test_cards_that_another_plugin_describes_impossibly_are_a_problem(
    device: dict[str, object],
) -> None:
    """Not the end of the process."""
    cluster = small_cluster.Cluster()
    register = {"hami.io/node-nvidia-register": msgspec.json.encode([device]).decode()}
    cluster.mirror.nodes.put(small_cluster.node(annotations=register))
    assert [what for what, _ in cluster.mirror.problems] == ["node n1"]


def test_an_object_that_breaks_our_reading_does_not_break_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound pod counts as everything then, and a node as it was."""
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())

    def broken(*_args: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(registry, "demand", broken)
    monkeypatch.setattr(node_readings, "read", broken)
    cluster.mirror.pods.put(small_cluster.pod("a", {small_cluster.MEMORY: 1}, on="n1"))
    cluster.mirror.nodes.put(small_cluster.node(count=3))
    assert cluster.free_mib("n1") == [0, 0]
    assert [what for what, _ in cluster.mirror.problems] == ["node n1", "pod default/a"]


def test_what_is_kept_of_an_unsettled_pod_is_small() -> None:
    """A tenant can write 256 KiB on a pod, and damage its record on purpose."""
    large = {"mine": "x" * 200_000, "partage.dev/grant": "\U0001f680" * 60_000}
    kept = registry.trimmed(small_cluster.pod("a", {small_cluster.MEMORY: 1}, annotations=large))
    assert sum(map(len, kept.metadata.annotations.values())) < 100


def test_settings_have_a_unit_before_any_node_is_known() -> None:
    """GiB is what the plugin counts unless it is told otherwise."""
    assert small_cluster.Cluster().mirror.settings == contract.Settings()
