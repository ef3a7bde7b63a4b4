"""``partage cordon`` and ``uncordon``: one card of a node is closed, emptied and opened again."""

from __future__ import annotations

import json
import pathlib

import pytest

from partage.core import cards
from partage.dialects import cordons, nodes
from tests.cli import fake_cluster
from tests.cli.fake_cluster import node, shared

UUIDS = [f"GPU-{i}" for i in range(2)]
CARDS = tuple(cards.Card(uuid=uuid, index=i, memory_mib=16384) for i, uuid in enumerate(UUIDS))
CORDONED = cordons.CORDONED
OWNER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "r", "uid": "r", "controller": True}]}


@pytest.fixture
def gpus(cluster: fake_cluster.Cluster) -> fake_cluster.Cluster:
    """A node with named cards and two pods on its card 1, one that somebody made by hand."""
    marks = {nodes.CARDS: nodes.encode(CARDS)}
    cluster.objects[fake_cluster.NODES] = [
        node("gpu-1", memory=32, count=2, annotations=marks),
        node("t4-1", memory=30, count=2),
    ]
    pods = [
        shared("made", "gpu-1", 4, 1),
        shared("bare", "gpu-1", 2, 1),
        shared("on-0", "gpu-1", 2, 0),
    ]
    for pod in pods[::2]:
        pod["metadata"] |= OWNER
    cluster.objects[fake_cluster.PODS] = pods
    return cluster


def annotation(cluster: fake_cluster.Cluster, index: int = 0) -> object:
    """What is written on a node."""
    text = cluster.objects[fake_cluster.NODES][index]["metadata"]["annotations"].get(CORDONED)
    return None if text is None else json.loads(text)["cards"]


async def test_a_card_is_closed_shown_and_opened(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """By index or uuid; again is no mistake; everybody sees it."""

    async def said(*words: str) -> tuple[int | None, str, str]:
        result = await gpus.run("partage", *words, folder=tmp_path)
        return result.code, result.out, result.err

    card = "card 1 (GPU-1) of node gpu-1"
    assert await said("cordon", "gpu-1", "1", "--reason", "fan") == (0, f"{card} is cordoned\n", "")
    assert annotation(gpus) == {"GPU-1": "fan"}
    assert await said("cordon", "gpu-1", "GPU-1") == (0, f"{card} was cordoned already\n", "")
    assert annotation(gpus) == {"GPU-1": "fan"}
    code, out, _ = await said("inspect", "gpu-1")
    assert (code, [line.split()[3] for line in out.splitlines()[1:3]]) == (
        0,
        ["healthy", "cordoned"],
    )
    shown = json.loads((await said("inspect", "gpu-1", "-o", "json"))[1])["nodes"][0]["cards"]
    assert [(c.get("cordoned"), c.get("cordon_reason")) for c in shown] == [
        (None, None),
        (True, "fan"),
    ]
    assert await said("uncordon", "gpu-1", "1") == (0, f"{card} is open to new pods again\n", "")
    assert annotation(gpus) is None
    assert await said("uncordon", "gpu-1", "GPU-1") == (0, f"{card} was not cordoned\n", "")


async def test_explain_says_that_a_card_is_cordoned(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """To who waits for it."""
    await gpus.run("partage", "cordon", "gpu-1", "0", folder=tmp_path)
    await gpus.run("partage", "cordon", "gpu-1", "1", folder=tmp_path)
    gpus.objects[fake_cluster.PODS].append(shared("late", "", 16, None, phase="Pending"))
    result = await gpus.run("partage", "explain", "late", folder=tmp_path)
    assert result.out.splitlines()[0] == (
        "default/late: not now: container c0: card 0 is cordoned on node gpu-1"
    )


async def test_cards_that_nobody_named_go_by_their_index(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """On nodes without an agent."""
    result = await gpus.run("partage", "cordon", "t4-1", "0", "-o", "json", folder=tmp_path)
    outcome = json.loads(result.out)
    assert (outcome["kind"], outcome["index"], outcome["uuid"]) == ("CardCordon", 0, None)
    assert annotation(gpus, 1) == {"0": ""}


async def test_somebody_else_writes_at_the_same_time(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It is read again, and nobody's cordon is lost."""
    gpus.conflicts = 3
    result = await gpus.run("partage", "cordon", "gpu-1", "0", folder=tmp_path)
    assert (result.code, annotation(gpus)) == (0, {"GPU-0": ""})


CHOICES = "write the index or the uuid of one of its cards: 0 (GPU-0), 1 (GPU-1)"
NO_CARDS = "Partage knows of no card there; 'partage inspect' lists nodes with cards"


@pytest.mark.parametrize("command", ["cordon", "uncordon"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("gone 0", (1, "there is no node 'gone'; 'kubectl get nodes' lists them")),
        ("gpu-1 7", (2, f"node gpu-1 has no card '7'; {CHOICES}")),
        ("plain 0", (2, f"node plain has no card '0'; {NO_CARDS}")),
    ],
)
async def test_what_is_not_there(
    gpus: fake_cluster.Cluster,
    tmp_path: pathlib.Path,
    command: str,
    words: str,
    expected: tuple[int, str],
) -> None:
    """A wrong node, a wrong card, a node without cards: one line each."""
    gpus.objects[fake_cluster.NODES].append(node("plain"))
    result = await gpus.run("partage", command, *words.split(), folder=tmp_path)
    code, says = expected
    assert result == fake_cluster.Result(code, "", f"partage: {says}\n")


async def test_a_card_that_is_gone_can_be_opened(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It was swapped; its cordon would be reported for ever."""
    marks = gpus.objects[fake_cluster.NODES][0]["metadata"]["annotations"]
    marks[CORDONED] = cordons.encode({"GPU-old": "", "GPU-1": ""})
    result = await gpus.run("partage", "uncordon", "gpu-1", "GPU-old", folder=tmp_path)
    assert result.out == "card 'GPU-old' of node gpu-1 is open to new pods again\n"
    assert annotation(gpus) == {"GPU-1": ""}


async def test_an_annotation_that_cannot_be_read_is_not_overwritten(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """It says what to do; until then the node counts as closed."""
    gpus.objects[fake_cluster.NODES][0]["metadata"]["annotations"][CORDONED] = "1"
    result = await gpus.run("partage", "cordon", "gpu-1", "1", folder=tmp_path)
    assert result.code == 1
    assert "kubectl annotate node gpu-1 partage.dev/cordoned-cards-" in result.err


async def test_a_card_is_drained_but_for_pods_that_nobody_makes_again(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Budgets are waited for; other cards are left alone; --force takes the rest."""
    gpus.budgets["made"] = 1
    result = await gpus.run("partage", "cordon", "gpu-1", "1", "--drain", folder=tmp_path)
    assert (result.code, result.err) == (1, "")
    assert result.out.splitlines() == [
        "card 1 (GPU-1) of node gpu-1 is cordoned",
        "pod default/made: not yet: it would violate the disruption budget",
        "pod default/made: evicted; it ends",
        "pod default/made: gone",
        "pod default/bare: left: no controller would make it again; --force evicts it",
    ]
    forced = ("cordon", "gpu-1", "1", "--drain", "--force", "-o", "json")
    result = await gpus.run("partage", *forced, folder=tmp_path)
    outcome = json.loads(result.out)
    assert (result.code, outcome["evicted"], outcome["left"]) == (0, ["default/bare"], [])
    assert [pod["metadata"]["name"] for pod in gpus.objects[fake_cluster.PODS]] == ["on-0"]


async def test_the_time_for_a_drain_is_over(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """Who is left, and what was waited for."""
    gpus.budgets["made"] = 1000
    words = ("cordon", "gpu-1", "1", "--drain", "--timeout", "0.5")
    result = await gpus.run("partage", *words, folder=tmp_path)
    assert result.code == 1
    assert result.out.splitlines()[-1] == (
        "pod default/made: left: the time is over; it would violate the disruption budget"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--force",), "--force and --timeout are for --drain."),
        (("--reason", "x" * 201), "--reason has 201 characters; write at most 200"),
    ],
)
async def test_options_are_checked_before_anything_is_written(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path, words: tuple[str, ...], says: str
) -> None:
    """Exit code 2."""
    result = await gpus.run("partage", "cordon", "gpu-1", "1", *words, folder=tmp_path)
    assert (result.code, result.out) == (2, "")
    assert says in result.err
    assert annotation(gpus) is None


async def test_rights_that_are_missing_are_told(
    gpus: fake_cluster.Cluster, tmp_path: pathlib.Path
) -> None:
    """By the words of the API server."""
    path = f"{fake_cluster.NODES}/gpu-1"
    gpus.objects[fake_cluster.NODES][0]["metadata"]["annotations"][CORDONED] = "{}"
    gpus.refused[path] = (403, "Forbidden", "no")
    result = await gpus.run("partage", "cordon", "gpu-1", "1", folder=tmp_path)
    assert result.code == 1
    assert "403 Forbidden: no" in result.err
