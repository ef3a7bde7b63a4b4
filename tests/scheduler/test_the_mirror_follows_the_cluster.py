"""Nodes, pods and sick cards come and go in any order, and the fleet stays equal to them."""

from __future__ import annotations

import random

import msgspec
import pytest

from partage.core import fleet, grants
from partage.dialects import base, nodes, pods, registry
from partage.scheduler import sick_sink
from tests.scheduler import making
from tests.scheduler.making import GIB


def _sick(node: str, gpus: str) -> sick_sink.SickList:
    return sick_sink.SickList(sick_sink.SickList.Metadata(f"unhealthy-gpu-{node}"), {"gpus": gpus})


def _bound(world: making.World, name: str, units: int, node: str) -> pods.Pod:
    """A pod that Partage bound: its record is on it."""
    asking = making.pod(name, {making.MEMORY: units})
    demand = world.mirror.demand(asking)
    assert demand is not None
    held = world.fleet.hold(asking.identity, demand, node, expires_at=0)
    assert isinstance(held, fleet.Hold)
    world.fleet.release(asking.metadata.uid)
    state = world.fleet.state(node)
    assert state is not None
    marks = registry.marks(held.grant, asking, state.node, now_ns=1, settings=world.mirror.settings)
    return making.pod(name, {making.MEMORY: units}, on=node, annotations=marks.annotations)


def test_pods_of_gpushare_count_where_it_put_them() -> None:
    """State is rebuilt from the annotations of the old system."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 3}, on="n1", annotations=making.gpushare_record(3, 1))
    )
    assert world.free_mib("n1") == [16 * GIB, 13 * GIB]


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
    world = making.World()
    world.mirror.nodes.put(making.node(capacity=capacity, annotations=node_annotations))
    world.mirror.pods.put(making.pod("a", limits, on="n1", annotations=annotations))
    assert world.free_mib("n1") == free
    assert len(world.mirror.problems) == 0


def test_a_pod_whose_node_is_unknown_counts_when_the_node_appears() -> None:
    """A pod of a vanished node neither stops the start nor is forgotten."""
    world = making.World()
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 3}, on="n1", annotations=making.gpushare_record(3, 0))
    )
    world.mirror.nodes.put(making.node())
    assert world.free_mib("n1") == [13 * GIB, 16 * GIB]


def test_a_damaged_record_counts_on_every_card_and_is_reported() -> None:
    """Nobody knows where the pod is, so nothing is given away that it may have."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 3}, on="n1", annotations=making.gpushare_record(3, 7))
    )
    assert world.free_mib("n1") == [13 * GIB, 13 * GIB]
    ((what, text),) = world.mirror.problems
    assert what == "pod default/a"
    assert "no card 7" in text
    world.mirror.pods.drop("uid-a")
    assert world.free_mib("n1") == [16 * GIB, 16 * GIB]
    assert len(world.mirror.problems) == 0


def test_a_bound_pod_with_an_illegal_request_takes_the_whole_node() -> None:
    """What it asks for cannot be read, so it may have anything."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(making.pod("a", {making.MEMORY: "2500m"}, on="n1"))
    assert world.free_mib("n1") == [0, 0]


def test_a_damaged_record_is_read_again_when_its_node_gets_the_card() -> None:
    """A card may be reported later than the pod on it."""
    world = making.World()
    world.mirror.nodes.put(making.node(count=1))
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 3}, on="n1", annotations=making.gpushare_record(3, 1))
    )
    world.mirror.nodes.put(making.node(count=2))
    assert world.free_mib("n1") == [16 * GIB, 13 * GIB]
    assert len(world.mirror.problems) == 0


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_gives_its_memory_back(phase: str) -> None:
    """Finished pods stay in the cluster for long."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    running = _bound(world, "a", 3, "n1")
    world.mirror.pods.put(running)
    assert sum(world.free_mib("n1")) == 29 * GIB
    world.mirror.pods.put(msgspec.structs.replace(running, status=pods.Status(phase)))
    assert sum(world.free_mib("n1")) == 32 * GIB
    assert "n1" in world.freed


def _terminating(pod: pods.Pod, *states: pods.State) -> pods.Pod:
    meta = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    statuses = tuple(pods.ContainerStatus(state) for state in states)
    return msgspec.structs.replace(pod, metadata=meta, status=pods.Status("Running", statuses))


def test_memory_comes_back_when_containers_have_stopped_not_when_deletion_is_asked_for() -> None:
    """Through its grace period a container has all it had."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    running = _bound(world, "a", 3, "n1")
    world.mirror.pods.put(running)
    alive, over = pods.State(running={}), pods.State(terminated={})
    for states in ((alive,), (over, alive), (), (pods.State(),)):
        world.mirror.pods.put(_terminating(running, *states))
        assert sum(world.free_mib("n1")) == 29 * GIB, states
    world.mirror.pods.put(_terminating(running, over, over))
    assert sum(world.free_mib("n1")) == 32 * GIB


def test_a_failed_pod_with_a_running_container_keeps_its_memory() -> None:
    """A phase can be written by others than the kubelet."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    running = _bound(world, "a", 3, "n1")
    statuses = (pods.ContainerStatus(pods.State(running={})),)
    world.mirror.pods.put(msgspec.structs.replace(running, status=pods.Status("Failed", statuses)))
    assert sum(world.free_mib("n1")) == 29 * GIB


def test_an_old_word_about_a_bound_pod_does_not_unbind_it() -> None:
    """A watch may tell what was before our own bind."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    running = _bound(world, "a", 3, "n1")
    world.mirror.pods.put(running)
    world.mirror.pods.put(making.pod("a", {making.MEMORY: 3}))
    assert sum(world.free_mib("n1")) == 29 * GIB
    assert not world.mirror.waiting


def test_what_we_bound_and_never_saw_is_among_the_keys() -> None:
    """Else a pod that was bound and deleted in a gap of the watch would keep its memory."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    pod = making.pod("a", {making.MEMORY: 3})
    demand = world.mirror.demand(pod)
    assert demand is not None
    world.fleet.hold(pod.identity, demand, "n1", expires_at=0)
    world.fleet.confirm("uid-a")
    assert "uid-a" in set(world.mirror.pods.keys())
    world.mirror.pods.drop("uid-a")
    assert sum(world.free_mib("n1")) == 32 * GIB


def test_same_name_new_uid_is_another_pod() -> None:
    """A StatefulSet re-creates a pod under its name before the old one's end is told."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    old = making.pod(
        "a", {making.MEMORY: 3}, on="n1", uid="1", annotations=making.gpushare_record(3, 0)
    )
    new = making.pod(
        "a", {making.MEMORY: 3}, on="n1", uid="2", annotations=making.gpushare_record(3, 0)
    )
    world.mirror.pods.put(old)
    world.mirror.pods.put(new)
    assert world.free_mib("n1") == [10 * GIB, 16 * GIB]
    world.mirror.pods.drop("1")
    assert world.free_mib("n1") == [13 * GIB, 16 * GIB]


def test_cards_come_go_and_change_their_size() -> None:
    """The node's present facts count, with all that was granted on it."""
    world = making.World()
    world.mirror.nodes.put(making.node(count=2))
    world.mirror.pods.put(
        making.pod("a", {making.MEMORY: 3}, on="n1", annotations=making.gpushare_record(3, 1))
    )
    world.mirror.nodes.put(making.node(count=3))
    assert world.free_mib("n1") == [16 * GIB, 13 * GIB, 16 * GIB]
    world.mirror.nodes.put(making.node(count=3, units_per_card=24))
    assert world.free_mib("n1") == [24 * GIB, 21 * GIB, 24 * GIB]
    world.mirror.nodes.put(making.node(count=1))
    assert world.free_mib("n1") == [16 * GIB]
    world.mirror.nodes.put(making.node(count=2))
    assert world.free_mib("n1") == [16 * GIB, 13 * GIB]


def test_a_node_that_is_made_anew_keeps_its_pods_until_they_are_gone() -> None:
    """Under the same name the same processes may run."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(_bound(world, "a", 3, "n1"))
    world.mirror.nodes.drop("n1")
    assert world.fleet.state("n1") is None
    world.mirror.nodes.put(making.node())
    assert sum(world.free_mib("n1")) == 29 * GIB
    world.mirror.nodes.drop("n1")
    world.mirror.pods.drop("uid-a")
    world.mirror.nodes.put(making.node())
    assert sum(world.free_mib("n1")) == 32 * GIB


def test_an_agent_that_names_the_cards_loses_no_grant_and_neither_does_its_removal() -> None:
    """Before there is an agent a card is known by its index only."""
    world = making.World()
    world.mirror.nodes.put(making.node(count=2))
    bound = _bound(world, "a", 3, "n1")
    world.mirror.pods.put(bound)
    before = world.free_mib("n1")
    world.mirror.nodes.put(making.carded("n1", 16 * GIB, 16 * GIB))
    assert world.free_mib("n1") == before
    world.mirror.pods.put(bound)  # a heartbeat of the pod, with its old record
    assert world.free_mib("n1") == before
    world.mirror.nodes.put(making.node(count=2))
    assert world.free_mib("n1") == before


def test_a_cluster_that_changes_from_gib_to_mib_keeps_what_was_granted() -> None:
    """The plugin reports other numbers; a record in MiB, and one with its unit, stay true."""
    world = making.World()
    world.mirror.nodes.put(making.node(count=2, units_per_card=15))
    ours = _bound(world, "a", 3, "n1")
    theirs = making.pod(
        "b", {making.MEMORY: 4}, on="n1", annotations=making.gpushare_record(4, 1, card=15)
    )
    for pod in (ours, theirs):
        world.mirror.pods.put(pod)
    taken = [15 * GIB - free for free in world.free_mib("n1")]
    world.mirror.nodes.put(making.node(count=2, units_per_card=15 * GIB))
    assert world.mirror.settings.memory_unit_mib == 1
    for pod in (ours, theirs):
        world.mirror.pods.put(pod)
    assert [15 * GIB - free for free in world.free_mib("n1")] == taken
    assert len(world.mirror.problems) == 0
    asked = world.mirror.demand(making.pod("c", {making.MEMORY: 512}))
    assert asked is not None
    assert asked.containers[0].demand.memory_mib == 512


def test_nodes_that_disagree_about_the_unit_are_reported_and_the_majority_counts() -> None:
    """In the middle of a change both are there."""
    world = making.World()
    world.mirror.nodes.put(making.node("n1"))
    world.mirror.nodes.put(making.node("n2"))
    world.mirror.nodes.put(making.node("n3", units_per_card=16 * GIB))
    assert world.mirror.settings.memory_unit_mib == 1024
    ((what, text),) = world.mirror.problems
    assert what.startswith("node n3")
    assert "MiB" in text
    world.mirror.nodes.put(making.node("n2", units_per_card=16 * GIB))
    assert [what for what, _ in world.mirror.problems] == ["node n1 (unit)"]
    world.mirror.nodes.drop("n1")
    assert len(world.mirror.problems) == 0


@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")])
def test_a_draw_between_units_does_not_depend_on_who_came_first(order: tuple[str, str]) -> None:
    """A new leader must read the same numbers from the same nodes."""
    found = {"n1": making.node("n1"), "n2": making.node("n2", units_per_card=16 * GIB)}
    world = making.World()
    for name in order:
        world.mirror.nodes.put(found[name])
    assert world.mirror.settings.memory_unit_mib == 1024


def test_a_node_whose_plugin_has_ended_has_no_vote_and_the_last_one_leaves_the_unit() -> None:
    """Its capacity stays for minutes, and a pod's 3 GiB must not be read as 3 MiB by that."""
    world = making.World()
    left = making.node("n1", units_per_card=16 * GIB)
    ended = msgspec.structs.replace(
        left, status=msgspec.structs.replace(left.status, allocatable={making.MEMORY: 0})
    )
    world.mirror.nodes.put(ended)
    assert world.mirror.settings.memory_unit_mib == 1024
    world.mirror.nodes.put(left)
    assert world.mirror.settings.memory_unit_mib == 1
    world.mirror.nodes.put(ended)  # its agent is restarted
    assert world.mirror.settings.memory_unit_mib == 1


def test_a_fixed_unit_stays_whatever_nodes_say() -> None:
    """An administrator who names it is believed."""
    world = making.World(unit="MiB")
    world.mirror.nodes.put(making.node())
    assert world.mirror.settings.memory_unit_mib == 1


def test_sick_cards_are_left_out_and_come_back() -> None:
    """The list of sick cards is a ConfigMap, and may be there before its node."""
    world = making.World()
    world.mirror.sick.put(_sick("n1", "0"))
    world.mirror.nodes.put(making.node())
    state = world.fleet.state("n1")
    assert state is not None
    assert [room.open for room in state.rooms] == [False, True]
    world.freed.clear()
    world.mirror.sick.drop("unhealthy-gpu-n1")
    assert [room.open for room in state.rooms] == [True, True]
    assert world.freed == ["n1"]


@pytest.mark.parametrize("gpus", ["x,1", " ,1", "0x0,1", "-1, 1", "1,99999999999"])
def test_a_token_that_is_no_index_is_reported_and_ignored(gpus: str) -> None:
    """gpushare took every one of these for card 0."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.sick.put(_sick("n1", gpus))
    state = world.fleet.state("n1")
    assert state is not None
    assert [room.card.healthy for room in state.rooms] == [True, False]
    assert [what for what, _ in world.mirror.problems] == ["configmap kube-system/unhealthy-gpu-n1"]


def test_a_list_for_a_node_that_is_not_there_is_reported_while_it_is_not() -> None:
    """A slip in its name would leave a sick card in use."""
    world = making.World()
    world.mirror.sick.put(_sick("n1", "0"))
    assert list(world.mirror.problems) == [
        ("configmap kube-system/unhealthy-gpu-n1", "there is no node n1")
    ]
    world.mirror.nodes.put(making.node())
    assert len(world.mirror.problems) == 0
    world.mirror.nodes.drop("n1")
    assert len(world.mirror.problems) == 1
    world.mirror.sick.drop("unhealthy-gpu-n1")
    assert len(world.mirror.problems) == 0


def test_configmaps_of_others_are_none_of_our_business() -> None:
    """kube-system is full of them."""
    world = making.World()
    world.mirror.sick.put(sick_sink.SickList(sick_sink.SickList.Metadata("coredns"), {"gpus": "0"}))
    assert not world.mirror.sick.keys()


def test_cards_that_cannot_be_read_are_not_there_and_reported() -> None:
    """Nothing new is placed on what nobody understands."""
    world = making.World()
    world.mirror.nodes.put(making.node(annotations={nodes.CARDS: "[1"}))
    assert world.free_mib("n1") == []
    ((what, text),) = world.mirror.problems
    assert (what, "partage.dev/cards" in text) == ("node n1", True)


def test_cpu_of_all_pods_is_known_of_a_node() -> None:
    """A policy avoids stranding cards on a node that has no CPU left for them."""
    world = making.World()
    world.mirror.nodes.put(making.node(cpu="8"))
    world.mirror.pods.put(making.pod("a", {}, on="n1", cpu="1500m"))
    state = world.fleet.state("n1")
    assert state is not None
    assert state.node.free_cpu_milli == 6500
    world.mirror.pods.drop("uid-a")
    assert state.node.free_cpu_milli == 8000


def test_a_heartbeat_of_a_node_changes_nothing() -> None:
    """Thousands of nodes send one every few minutes; answers that are kept must stay."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.freed.clear()
    state = world.fleet.state("n1")
    assert state is not None
    before = state.node
    world.mirror.nodes.put(making.node())
    assert state.node is before
    assert world.freed == []


def test_any_order_of_events_ends_in_the_same_fleet() -> None:
    """Nodes, pods and lists come through three watches, whose order nobody promises."""
    source = random.Random(7)
    facts: list[tuple[str, object]] = [("nodes", making.node(f"n{i}")) for i in range(3)]
    facts += [("sick", _sick("n1", "1"))]
    facts += [
        (
            "pods",
            making.pod(
                f"p{i}",
                {making.MEMORY: 1 + i % 3},
                on=f"n{i % 4}",
                annotations=making.gpushare_record(1 + i % 3, i % 3),
            ),
        )
        for i in range(24)
    ]
    looks = []
    for _ in range(20):
        source.shuffle(facts)
        world = making.World()
        for kind, fact in facts:
            getattr(world.mirror, kind).put(fact)
        looks.append(_look(world))
    assert all(look == looks[0] for look in looks)


def _look(world: making.World) -> dict[str, tuple[list[int], set[grants.Grant]]]:
    return {
        state.node.name: (world.free_mib(state.node.name), set(state.grants.values()))
        for state in world.fleet.states()
    }


def test_a_grant_that_somebody_else_made_is_reported() -> None:
    """Two extenders without a lease would give the same card away twice."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(_bound(world, "before", 3, "n1"))
    world.mirror.alone = True
    assert len(world.mirror.problems) == 0
    world.mirror.pods.put(_bound(world, "a", 3, "n1"))
    ((what, text),) = world.mirror.problems
    assert what == "another extender"
    assert "pod default/a" in text


def test_a_label_that_is_changed_later_makes_no_room() -> None:
    """What a pod was granted counts as long as it lives, whatever its owner writes on it."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    bound = _bound(world, "a", 16, "n1")
    world.mirror.pods.put(bound)
    before = world.free_mib("n1")
    changes: tuple[dict[str, dict[str, str]], ...] = (
        {"labels": {"aliyun.com/gpu-count": "16"}},
        {"labels": {"aliyun.com/gpu-count": "nope"}},
        {"annotations": {}},
        {"annotations": {"partage.dev/grant": "x"}},
        {"annotations": {**bound.metadata.annotations, **_moved(bound)}},
    )
    for change in changes:
        meta = msgspec.structs.replace(bound.metadata, **change)
        world.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
        assert world.free_mib("n1") == before, change
        assert [what for what, _ in world.mirror.problems] == ["pod default/a"]
    world.mirror.pods.put(bound)
    assert len(world.mirror.problems) == 0
    world.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    world.mirror.pods.drop("uid-a")
    assert len(world.mirror.problems) == 0  # nothing is wrong with a pod that is gone


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
    world = making.World()
    world.mirror.nodes.put(making.node())
    bound = _bound(world, "a", 10, "n1")
    meta = msgspec.structs.replace(bound.metadata, **change)
    world.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    assert world.free_mib("n1") == [6 * GIB, 6 * GIB]


def test_after_a_restart_a_record_of_a_card_that_is_not_there_counts_everywhere() -> None:
    """Else its room would be taken from nobody."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    bound = _bound(world, "a", 10, "n1")
    forged = {**bound.metadata.annotations, **_moved(bound)}
    meta = msgspec.structs.replace(bound.metadata, annotations=forged)
    world.mirror.pods.put(msgspec.structs.replace(bound, metadata=meta))
    assert world.free_mib("n1") == [6 * GIB, 6 * GIB]


@pytest.mark.parametrize(
    ("limits", "annotations"),
    [({"cpu": 1}, {"partage.dev/cards": "all"}), ({"partage.dev/foo": 0}, {}), ({}, {})],
)
def test_a_pod_without_any_amount_of_a_card_holds_nothing(
    limits: dict[str, pods.Amount], annotations: dict[str, str]
) -> None:
    """kube-scheduler does not ask about it, and nobody may block cards by a word."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    world.mirror.pods.put(making.pod("a", limits, on="n1", annotations=annotations))
    assert world.free_mib("n1") == [16 * GIB, 16 * GIB]


def test_a_hold_moves_with_the_names_of_its_cards_and_stays_a_hold() -> None:
    """An agent may name the cards of a node while a bind is under way."""
    world = making.World()
    world.mirror.nodes.put(making.node())
    body = making.args(making.wire_pod("p", {making.MEMORY: "10"}), ["n1"])
    assert world.filter(body)["NodeNames"] == ["n1"]
    world.mirror.nodes.put(making.carded("n1", 16 * GIB, 16 * GIB))
    assert sorted(world.free_mib("n1")) == [6 * GIB, 16 * GIB]
    assert world.fleet.holds == 1
    world.clock.now += 20
    world.binds.expire()
    assert world.free_mib("n1") == [16 * GIB, 16 * GIB]


@pytest.mark.parametrize("device", [{"id": "GPU-1", "devmem": 0}, {"id": "", "devmem": 5}])
def test_cards_that_another_plugin_describes_impossibly_are_a_problem(
    device: dict[str, object],
) -> None:
    """Not the end of the process."""
    world = making.World()
    register = {"hami.io/node-nvidia-register": msgspec.json.encode([device]).decode()}
    world.mirror.nodes.put(making.node(annotations=register))
    assert [what for what, _ in world.mirror.problems] == ["node n1"]


def test_an_object_that_breaks_our_reading_does_not_break_the_watch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A bound pod counts as everything then, and a node as it was."""
    world = making.World()
    world.mirror.nodes.put(making.node())

    def broken(*_args: object) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr(registry, "demand", broken)
    monkeypatch.setattr(registry, "found", broken)
    world.mirror.pods.put(making.pod("a", {making.MEMORY: 1}, on="n1"))
    world.mirror.nodes.put(making.node(count=3))
    assert world.free_mib("n1") == [0, 0]
    assert [what for what, _ in world.mirror.problems] == ["node n1", "pod default/a"]


def test_what_is_kept_of_an_unsettled_pod_is_small() -> None:
    """A tenant can write 256 KiB on a pod, and damage its record on purpose."""
    large = {"mine": "x" * 200_000, "partage.dev/grant": "\U0001f680" * 60_000}
    kept = registry.trimmed(making.pod("a", {making.MEMORY: 1}, annotations=large))
    assert sum(map(len, kept.metadata.annotations.values())) < 100


def test_settings_have_a_unit_before_any_node_is_known() -> None:
    """GiB is what the plugin counts unless it is told otherwise."""
    assert making.World().mirror.settings == base.Settings()
