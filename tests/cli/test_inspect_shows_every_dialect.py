"""``partage inspect`` shows every card, every tenant in whatever words, and every problem."""

from __future__ import annotations

import asyncio
import json
import pathlib
from collections.abc import Mapping

import msgspec
import pytest
import yaml

from partage.cli.commands.inspect import inspection
from partage.core import cards, fleet
from partage.core.problems import Problem
from partage.dialects import contract, memory_units, nodes, pods
from partage.dialects.families import t9k
from partage.scheduler.mirror import mirror
from tests.cli import fake_cluster
from tests.cli.fake_cluster import Object, namespace, node, pod, shared
from tests.dialects import dialect_pods

GOLDEN = pathlib.Path(__file__).with_name("golden")
PROGRAM = ("partage", "inspect")
MEMORY = "aliyun.com/gpu-mem"
CARDS = tuple(
    cards.Card(
        uuid=f"GPU-{i}",
        index=i,
        memory_mib=81920,
        model="NVIDIA A100",
        foreign_memory_mib=foreign_mib,
    )
    for i, foreign_mib in enumerate((0, 0, 1024))
)
QGPU = "tke.cloud.tencent.com/qgpu"
A100 = cards.Node(name="a100-1", cards=CARDS)


def placed(name: str, limits: Mapping[str, object], *indexes: int) -> Object:
    """A pod on cards of the node of A100s, with what Partage writes on it."""
    bare_pod = msgspec.convert(pod(name, A100.name, limits, namespace="lab"), pods.Pod)
    marks = dialect_pods.marks(dialect_pods.grant(bare_pod, A100, *indexes), bare_pod, A100)
    return pod(name, A100.name, limits, annotations=marks.annotations, namespace="lab")


def other(name: str, amounts: Mapping[str, object]) -> Object:
    """A node of another vendor, whose own plugin offers this."""
    made = node(name)
    texts = {resource: str(amount) for resource, amount in amounts.items()}
    made["status"] |= {"capacity": texts, "allocatable": texts}
    return made


def populate(cluster: fake_cluster.Cluster) -> None:
    """Nodes with cards, without, and of other vendors; tenants of five dialects; a total."""
    cluster.objects[fake_cluster.NODES] = [
        node("t4-1", memory=30, count=2, address="10.0.0.2"),
        node("plain"),
        node(A100.name, address="10.0.0.1", annotations={nodes.CARDS: nodes.encode(CARDS)}),
        other("mi300-1", {"amd.com/gpu": 8}),
        other("ascend-1", {"huawei.com/Ascend910": 4, "hugepages-2Mi": 0}),
        other("odd-1", {"gpu-vendor.example/example-gpu": 2, "vendor.example/nic": 9}),
    ]
    cluster.objects[fake_cluster.PODS] = [
        shared("binpack-0", "t4-1", 3, 0),
        shared("lost", "t4-1", 14, None),
        placed("percent", {"tensorstack.dev/nvidia-gpu-percent": 30}, 0),
        placed("four", {MEMORY: 8}, 0),
        placed("half", {f"{QGPU}-core": 50, f"{QGPU}-memory": 20}, 0),
        placed("whole", {"nvidia.com/gpu": 1}, 1),
        shared("done", "t4-1", 15, 1, phase="Succeeded"),
        shared("waits", "", 15, None, phase="Pending"),
        pod("web", "plain", {"cpu": "1"}),
        pod("rocm", "mi300-1", {"amd.com/gpu": 2}, {"amd.com/gpu": 1}, namespace="lab"),
        pod("adam", "mi300-1", {"amd.com/gpu": 1}, namespace="lab"),
        pod("past", "mi300-1", {"amd.com/gpu": 4}, namespace="lab", phase="Failed"),
        pod("npus", "ascend-1", {"huawei.com/Ascend910": 4}),
        pod("late", "", {"huawei.com/Ascend910": 1}, phase="Pending"),
    ]
    cluster.objects[fake_cluster.CONFIGMAPS] = [
        {"metadata": {"name": "other"}, "data": {"gpus": "0"}},
        {"metadata": {"name": f"unhealthy-gpu-{A100.name}"}, "data": {"gpus": "2, x"}},
    ]
    cluster.objects[fake_cluster.NAMESPACES] = [
        namespace("default"),
        namespace("lab", cards="8", memory="160Gi"),
    ]


async def test_a_cluster_in_every_form(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Byte for byte, as people and programs know it; nothing on stderr, exit code 0."""
    populate(cluster)
    forms = ("table", "wide", "json", "yaml")

    results = await asyncio.gather(
        *(cluster.run(*PROGRAM, "-o", form, folder=tmp_path) for form in forms)
    )

    for form, result in zip(forms, results, strict=True):
        expected = (GOLDEN / f"inspect.{form}").read_text(encoding="utf-8")
        assert result == fake_cluster.Result(0, expected, "")


async def test_one_node_is_read_alone(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Its cards, its tenants and its problems; nothing else of the cluster is asked for."""
    populate(cluster)

    result = await cluster.run(*PROGRAM, "t4-1", "-o", "json", folder=tmp_path)

    shown = json.loads(result.out)
    whole = json.loads((GOLDEN / "inspect.json").read_text(encoding="utf-8"))
    assert shown["nodes"] == [row for row in whole["nodes"] if row["name"] == "t4-1"]
    assert [problem["object"] for problem in shown["problems"]] == ["pod default/lost", "node t4-1"]
    assert shown["namespaces"] is None  # what its pods have is not all that a namespace has
    assert cluster.requests == [
        ("/api/v1/nodes/t4-1", ""),
        (fake_cluster.CONFIGMAPS, "metadata.name=unhealthy-gpu-t4-1"),
        *[("/api/v1/pods", "spec.nodeName=t4-1")] * 2,
        (fake_cluster.CLASSES, ""),  # there are none, so claims are not looked for
    ]


@pytest.mark.parametrize("named", [(), ("plain",)])
async def test_without_cards_there_is_no_table(
    named: tuple[str, ...], cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """That is said on stderr, as kubectl does, and is no failure."""
    cluster.objects[fake_cluster.NODES] = [node("plain")]

    result = await cluster.run(*PROGRAM, *named, folder=tmp_path)

    said = "No cards found on node plain.\n" if named else "No cards found.\n"
    assert result == fake_cluster.Result(0, "", said)


def read(*written_nodes: Object, tenants: tuple[Object, ...] = ()) -> inspection.Inspection:
    """An inspection of some nodes and pods, in the order in which they are read."""
    cluster_mirror = mirror.Mirror(fleet.standard(), memory_units.Unit(contract.Settings()))
    for item in written_nodes:
        cluster_mirror.nodes.put(msgspec.convert(item, nodes.Node))
    for item in tenants:
        cluster_mirror.pods.put(msgspec.convert(item, pods.Pod))
    return inspection.inspect(cluster_mirror)


def test_cards_that_cannot_be_read_are_a_problem() -> None:
    """The node has no cards then, and the one beside it is shown all the same."""
    broken = node("broken", annotations={nodes.CARDS: "nonsense"})

    inspected = read(broken, node("fine", memory=15, count=1))

    assert [shown_node.name for shown_node in inspected.nodes] == ["fine"]
    assert [problem.object for problem in inspected.problems] == ["node broken"]
    assert "partage.dev/cards" in inspected.problems[0].text


def test_a_card_that_vanished_is_a_problem() -> None:
    """Its tenant still runs, so the node and the pod are named."""
    two = {nodes.CARDS: nodes.encode(CARDS[:2])}
    one = {nodes.CARDS: nodes.encode(CARDS[:1])}
    cluster_mirror = mirror.Mirror(fleet.standard(), memory_units.Unit(contract.Settings()))
    cluster_mirror.nodes.put(msgspec.convert(node(A100.name, annotations=two), nodes.Node))
    cluster_mirror.pods.put(msgspec.convert(placed("whole", {"nvidia.com/gpu": 1}, 1), pods.Pod))
    cluster_mirror.nodes.put(msgspec.convert(node(A100.name, annotations=one), nodes.Node))

    inspected = inspection.inspect(cluster_mirror)

    assert [len(card.tenants) for card in inspected.nodes[0].cards] == [0]
    assert inspected.problems == (
        Problem("node a100-1", "card GPU-1 is missing; it was granted to lab/whole"),
    )


@pytest.mark.parametrize(
    ("limits", "indexes", "kept_away"),
    [
        ({MEMORY: 8}, [0], "no"),
        ({"nvidia.com/gpu": 1}, [0], "card"),
        ({t9k.NODE: 1}, [0, 1, 2], "node"),
    ],
)
def test_how_far_a_tenant_keeps_others_away(
    limits: Mapping[str, object], indexes: list[int], kept_away: str
) -> None:
    """Not at all, from its card, or from the whole node."""
    a100_node = node(A100.name, annotations={nodes.CARDS: nodes.encode(CARDS)})

    inspected = read(a100_node, tenants=(placed("p", limits, *indexes),))

    tenants = [card.tenants[0] for card in inspected.nodes[0].cards[: len(indexes)]]
    assert {tenant.exclusive for tenant in tenants} == {kept_away}
    assert not any(tenant.worst_case for tenant in tenants)


def test_too_much_compute_is_a_problem() -> None:
    """Somebody else promised a card's time twice."""
    limits = {f"{QGPU}-core": 60, f"{QGPU}-memory": 2}
    annotations = {nodes.CARDS: nodes.encode(CARDS[:1])}

    inspected = read(
        node(A100.name, annotations=annotations),
        tenants=(placed("one", limits, 0), placed("other", limits, 0)),
    )

    assert inspected.nodes[0].cards[0].compute_percent == 120
    assert inspected.problems == (
        Problem("node a100-1", "card 0: 20 % more compute is granted than it has"),
    )


async def test_the_unit_of_memory_is_what_most_nodes_count(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Whichever is read first: the one that differs is named, and no other."""
    cluster.objects[fake_cluster.NODES] = [
        node("a-gib", memory=15, count=1),
        node("b-mib", memory=15360, count=1),
        node("c-mib", memory=15360, count=1),
    ]
    cluster.objects[fake_cluster.PODS] = [shared("p", "c-mib", 3072, 0)]

    result = await cluster.run(*PROGRAM, "-o", "yaml", folder=tmp_path)

    shown = yaml.safe_load(result.out)
    assert [problem["object"] for problem in shown["problems"]] == ["node a-gib (unit)"]
    text = shown["problems"][0]["text"]
    assert text.startswith("it counts aliyun.com/gpu-mem in GiB, and the cluster in MiB; ")
    assert text.endswith("start its agent or plugin with --memory-unit MiB")
    assert shown["nodes"][2]["cards"][0]["used_mib"] == 3072


async def test_without_the_right_to_see_unhealthy_cards_the_rest_is_shown(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It is told as a problem, in the server's words."""
    populate(cluster)
    said = 'configmaps is forbidden: User "jane" cannot list resource "configmaps"'
    cluster.refused[fake_cluster.CONFIGMAPS] = (403, "Forbidden", said)

    result = await cluster.run(*PROGRAM, folder=tmp_path)

    lines = result.out.splitlines()
    assert result.code == 0
    assert f"{said}; cards that are listed there as unhealthy are shown as healthy" in result.out
    assert lines[3].split()[4] == "healthy"


async def test_without_the_right_to_see_totals_the_rest_is_shown(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """What is not known is null, and a problem says why."""
    populate(cluster)
    said = 'namespaces is forbidden: User "jane" cannot list resource "namespaces"'
    cluster.refused[fake_cluster.NAMESPACES] = (403, "Forbidden", said)

    result = await cluster.run(*PROGRAM, "-o", "json", folder=tmp_path)

    shown = json.loads(result.out)
    assert (result.code, shown["namespaces"]) == (0, None)
    told_of = {problem["object"]: problem["text"] for problem in shown["problems"]}
    assert told_of["namespaces"] == f"{said}; the totals of namespaces are not known here"


async def test_a_total_that_cannot_be_read_is_a_problem(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Its namespace is shown with what it has."""
    populate(cluster)
    cluster.objects[fake_cluster.NAMESPACES] = [namespace("lab", memory="160GB")]

    result = await cluster.run(*PROGRAM, folder=tmp_path)

    assert "\nlab        4      135168       150%\n" in result.out
    slip = "partage.dev/most-memory: '160GB' is not a quantity; write 160G (decimal) or 160Gi"
    assert f"\nnamespace lab                               {slip}" in result.out


async def test_what_others_wrote_cannot_move_the_cursor(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Nor the columns; in JSON it is escaped."""
    card = msgspec.structs.replace(CARDS[0], model="T4\x1b[2J\tx")
    annotations = {nodes.CARDS: nodes.encode([card])}
    cluster.objects[fake_cluster.NODES] = [node(A100.name, annotations=annotations)]

    table, text = await asyncio.gather(
        cluster.run(*PROGRAM, folder=tmp_path), cluster.run(*PROGRAM, "-o", "json", folder=tmp_path)
    )

    assert "T4?[2J?x" in table.out
    assert json.loads(text.out)["nodes"][0]["cards"][0]["model"] == card.model


async def test_a_list_that_expired_is_read_again(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """And so is a server that was busy: nothing is counted twice, nothing is missing."""
    populate(cluster)
    cluster.expiring = {fake_cluster.PODS}
    cluster.busy = {fake_cluster.CONFIGMAPS}

    result = await cluster.run(*PROGRAM, "-o", "json", folder=tmp_path)

    assert result.out == (GOLDEN / "inspect.json").read_text(encoding="utf-8")
    assert not cluster.expiring
    assert not cluster.busy


async def test_cards_of_unknown_memory(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """How many there are is all that is known, and who has them."""
    patched = node("patched")
    patched["status"]["capacity"] = {"nvidia.com/gpu": "1"}
    cluster.objects[fake_cluster.NODES] = [patched]

    result = await cluster.run(*PROGRAM, folder=tmp_path)

    assert result.out.splitlines()[1].split() == [
        *("patched", "0", "N/A", "healthy", "N/A", "N/A", "N/A", "0%", "0"),
    ]
