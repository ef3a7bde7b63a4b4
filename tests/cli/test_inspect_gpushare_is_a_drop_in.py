"""``kubectl inspect gpushare`` prints what the original prints, byte for byte.

Three of the golden files are published outputs. The other two were printed by Go's own tabwriter
for the cluster below, in which everything that can be odd is.
"""

from __future__ import annotations

import pathlib

import msgspec
import pytest

from partage.cli.cluster import gpushare_rows
from partage.cli.display import gpushare_table
from partage.core import cards
from partage.dialects import nodes, pods
from tests.cli import fake_cluster
from tests.cli.fake_cluster import Object, node, pod, shared

GOLDEN = pathlib.Path(__file__).with_name("golden")
MEMORY, ALLOCATION = "aliyun.com/gpu-mem", "scheduler.framework.gpushare.allocation"
PROGRAM = "kubectl-inspect-gpushare"

Scene = tuple[list[Object], list[Object]]

USER_GUIDE: Scene = (
    [
        node("cn-shanghai.i-uf61h64dz1tmlob9hmtc", memory=15, count=1, address="192.168.0.70"),
        node("cn-shanghai.i-uf61h64dz1tmlob9hmtb", memory=15, count=1, address="192.168.0.71"),
        node("without-cards"),
    ],
    [
        shared("binpack-1-0", "cn-shanghai.i-uf61h64dz1tmlob9hmtb", 3, 0),
        shared("binpack-1-1", "cn-shanghai.i-uf61h64dz1tmlob9hmtc", 3, 0),
        shared("binpack-1-2", "cn-shanghai.i-uf61h64dz1tmlob9hmtb", 3, 0),
        pod("web", "without-cards", {"cpu": "1"}),
    ],
)
WITHOUT_CARD: Scene = (
    [
        node("master", memory=44712, count=4, address="192.168.4.15"),
        node("node6", memory=44712, count=4, address="192.168.4.16"),
    ],
    [shared(f"train-{i}", "master", 9480, None) for i in range(2)],
)
DETAILS: Scene = (
    [
        node("10.0.33.21", memory=77, count=7, address="10.0.33.21"),
        node("10.0.20.250", memory=88, count=4, address="10.0.20.250"),
    ],
    [shared("binpack-1-767bddd4b5-gzqk7", "10.0.20.250", 1, 0)],
)
ODD: Scene = (
    [
        node("a", memory=31, count=2, address="10.0.0.1"),
        node("b", memory=100, count=8),
        node("c", memory=40, count=0, address="10.0.0.3"),
    ],
    [
        shared("bad-index", "a", 1, "first"),
        shared("far", "a", 1, 9),
        shared("gone-card", "a", 2, 5),
        shared("lost", "a", 5, None),
        shared("two", "a", 4, None, annotations={ALLOCATION: '{"0":{"0":2,"1":2}}'}),
        shared("unreadable", "a", 1, 1, annotations={ALLOCATION: '{"0":{"0":"2"}}'}),
        shared("waits", "", 7, None, phase="Pending"),
        shared("dying", "a", 3, 1, namespace="lab", deleted=True),
        shared("done", "a", 8, 1, namespace="lab", phase="Succeeded"),
        shared("failed", "a", 8, 1, namespace="lab", phase="Failed"),
        pod(
            "two-containers",
            "b",
            *({MEMORY: 9}, {MEMORY: 20}, {"cpu": "1"}),
            annotations={"ALIYUN_COM_GPU_MEM_IDX": "0"},
        ),
    ],
)
SCENES = {
    "gpushare-summary": USER_GUIDE,
    "gpushare-summary-pending": WITHOUT_CARD,
    "gpushare-details": DETAILS,
    "gpushare-summary-odd": ODD,
    "gpushare-details-odd": ODD,
}


def golden(name: str) -> str:
    """What the original prints."""
    return (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def rows(scene: Scene) -> list[gpushare_table.NodeRow]:
    """The rows of a scene's tables."""
    tenants = gpushare_rows.Tenants()
    for item in scene[1]:
        tenants.put(msgspec.convert(item, pods.Pod))
    read_nodes = (msgspec.convert(item, nodes.Node) for item in scene[0])
    return [gpushare_rows.row(read_node, tenants) for read_node in read_nodes]


def carded(name: str, memory: int, *sizes_mib: int, count: int | None = None) -> Object:
    """A node on which Partage's agent wrote down cards of these sizes."""
    written_cards = [
        cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=size) for i, size in enumerate(sizes_mib)
    ]
    annotations = {nodes.CARDS: nodes.encode(written_cards)}
    cards_there = len(sizes_mib) if count is None else count
    return node(name, memory=memory, count=cards_there, annotations=annotations)


@pytest.mark.parametrize("name", SCENES)
def test_the_tables_are_the_originals(name: str) -> None:
    """Nodes and pods in, text out."""
    printed = gpushare_table.details if "details" in name else gpushare_table.summary

    assert printed(rows(SCENES[name])) + "\n" == golden(name)


@pytest.mark.parametrize("name", ["gpushare-summary", "gpushare-details-odd"])
async def test_the_command_prints_them(
    name: str, cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """From an API server that gives its lists in pages; nothing but the table, exit code 0."""
    cluster.objects[fake_cluster.NODES], cluster.objects[fake_cluster.PODS] = SCENES[name]

    flags = ["-d"] if "details" in name else []
    result = await cluster.run(PROGRAM, *flags, folder=tmp_path)

    assert result == fake_cluster.Result(0, golden(name), "")


async def test_one_node_is_read_alone(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Its row has its own columns only, and the other nodes and pods are not asked for."""
    cluster.objects[fake_cluster.NODES], cluster.objects[fake_cluster.PODS] = ODD

    result = await cluster.run(PROGRAM, "b", folder=tmp_path)

    lines = result.out.splitlines()
    assert lines[1].split() == ["b", "unknown", "29/12", *["0/12"] * 7, "29/100"]
    assert lines[-1] == "29/100 (28%)  "
    assert cluster.requests == [("/api/v1/nodes/b", ""), ("/api/v1/pods", "spec.nodeName=b")]


async def test_a_node_that_shares_nothing_is_an_empty_table(
    cluster: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Asked for by name it has no row, and its columns; the line of dashes is empty."""
    cluster.objects[fake_cluster.NODES] = [node("plain", memory=0, count=2)]

    result = await cluster.run(PROGRAM, "plain", folder=tmp_path)

    assert result.out == (
        "NAME  IPADDRESS  GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU Memory()\n\n"
        "Allocated/Total GPU Memory In Cluster:\n0/0 (0%)  \n"
    )


def test_no_node_at_all() -> None:
    """Both tables end in nothing of nothing."""
    assert gpushare_table.summary([]).endswith(
        "\n\nAllocated/Total GPU Memory In Cluster:\n0/0 (0%)  "
    )
    assert gpushare_table.details([]) == "\n\nAllocated/Total GPU Memory In Cluster:  0/0 (0%)  "


def test_what_can_be_allocated_counts_and_not_the_capacity() -> None:
    """Unlike gpushare's extender: its command never looked at the capacity."""
    half = {MEMORY: "15", "aliyun.com/gpu-count": "1"}
    halved_node = node("n", memory=30, count=2, allocatable=half)

    (row,) = rows(([halved_node], []))

    assert (row.total, row.all_total) == ((15,), 15)


def test_cards_of_different_size_have_their_own() -> None:
    """Where Partage's agent wrote them down; the original would say 23 of each."""
    mixed_node = carded("n", 15 + 15 + 39, 16276, 16276, 40960 - 1)

    (row,) = rows(([mixed_node], [shared("p", "n", 30, 2)]))

    assert (row.used, row.total, row.all_total) == ((0, 0, 30), (15, 15, 39), 69)


def test_an_unhealthy_card_does_not_shrink_the_others() -> None:
    """The kubelet offers less; the cards that are there keep their size."""
    (row,) = rows(([carded("n", 23, 23552, 23552)], []))

    assert (row.total, row.all_total) == ((23, 23), 23)


def test_equal_cards_are_shown_alike_with_and_without_an_agent() -> None:
    """Installing Partage does not change the table of a plain gpushare cluster."""
    tenants = [shared("p", "n", 3, 1)]
    plain, written = node("n", memory=46, count=2), carded("n", 46, 24187, 24187)

    assert gpushare_table.summary(rows(([plain], tenants))) == gpushare_table.summary(
        rows(([written], tenants))
    )


def test_the_unit_is_known_where_cards_are() -> None:
    """The original takes the 141 GiB of a large card for MiB."""
    plain, written = node("n", memory=141, count=1), carded("n", 141, 144384)

    assert "GPU Memory(MiB)" in gpushare_table.summary(rows(([plain], [])))
    assert "GPU Memory(GiB)" in gpushare_table.summary(rows(([written], [])))


@pytest.mark.parametrize(
    "text",
    [
        "no json",
        '{"version": 1, "cards": [{"uuid": "G", "index": 1000000000, "memory_mib": 8}]}',
        '{"version": 1, "cards": []}',
    ],
)
def test_cards_that_make_no_sense_are_left_aside(text: str) -> None:
    """Such a node is shown as the original shows it, and a huge index makes no huge table."""
    odd_node = node("n", memory=30, count=2, annotations={nodes.CARDS: text})

    (row,) = rows(([odd_node], []))

    assert row.total == (15, 15)


def test_a_card_with_an_index_beyond_the_count_has_a_column() -> None:
    """The agent knows that card 1 is gone and card 2 is there."""
    written_cards = [cards.Card(uuid=f"GPU-{i}", index=i, memory_mib=8192) for i in (0, 2)]
    annotations = {nodes.CARDS: nodes.encode(written_cards)}

    (row,) = rows(([node("n", memory=16, count=2, annotations=annotations)], []))

    assert row.total == (8, 0, 8)
