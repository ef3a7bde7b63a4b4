"""``partage slurm nodes``: what Slurm's programs print, in all the forms that versions have."""

from __future__ import annotations

import json
import pathlib
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.slurm import slurm_programs
from partage.slurm.jobs import cluster_cards
from tests.local import sites

# As 22.05.8 printed it; 24.11 has the parts of each card in GresUsed.
OLD = (
    "NodeName=n1 Arch=x86_64 CPUTot=8 Gres=gpu:a30:1,gpu:t4:1,shard:a30:24,shard:t4:16 "
    "GresDrain=N/A GresUsed=gpu:a30:0(IDX:N/A),gpu:t4:0(IDX:N/A),shard:a30:1(IDX:0) "
    "NodeAddr=127.0.0.1 State=MIXED Comment=Gres=gpu:99\n"
)
NEW = (
    "NodeName=n1 Gres=gpu:x:2,shard:x:33 GresUsed=gpu:x:0(IDX:N/A),shard:x:20(16/17,4/16) "
    "State=IDLE\nNodeName=login Gres=(null) State=IDLE\n"
)


def queue(*jobs: dict[str, Any]) -> str:
    """What squeue prints, with fields that nobody reads here."""
    return json.dumps({"meta": {}, "errors": [], "jobs": [*jobs]})


def job(number: int, nodes: str, *details: str) -> dict[str, Any]:
    """A job of alice's."""
    return {
        "job_id": number,
        "job_state": "RUNNING",
        "user_name": "alice",
        "name": "train",
        "nodes": nodes,
        "gres_detail": [*details],
        "time_limit": {"set": True, "number": 5},
    }


def shown(cards: cluster_cards.Cards) -> list[tuple[str, int, str, int, int | None, list[int]]]:
    """The columns."""
    return [
        (card.node, card.index, card.type, card.used, card.total, [job.id for job in card.jobs])
        for card in cards.cards
    ]


def test_shards_of_each_card() -> None:
    """From the jobs: the node's own count is of cards."""
    cards = cluster_cards.assembled(
        OLD,
        queue(job(3, "n1", "shard:20(IDX:0)"), job(4, "n1", "shard:10(IDX:1)"), job(5, "", *())),
    )

    assert shown(cards) == [
        ("n1", 0, "a30", 20, 24, [3]),
        ("n1", 1, "t4", 10, 16, [4]),
    ]
    assert cards.cards[0].state == "mixed"
    assert cards.problems == ()


def test_whole_cards() -> None:
    """All of a card is in use, whatever it is counted in."""
    cards = cluster_cards.assembled(
        OLD + OLD.replace("n1", "n2"),
        queue(
            job(9, "n1", "gpu:a30:1(IDX:0),gpu:t4:1(IDX:1)"),
            job(10, "n2", "gpu:2(IDX:0-1)"),
        ),
    )

    assert [(row[3], row[4], row[5]) for row in shown(cards)] == [
        (24, 24, [9]),
        (16, 16, [9]),
        (24, 24, [10]),
        (16, 16, [10]),
    ]


def test_one_job_on_several_cards_and_nodes() -> None:
    """Newer versions tell the part of each card, and how much each has."""
    cards = cluster_cards.assembled(
        NEW + NEW.replace("n1", "n2"),
        queue(job(7, "n[1-2]", "shard:20(16/17,4/16)", "shard:x:3(0/17,3/16)")),
    )

    assert shown(cards) == [
        ("n1", 0, "x", 16, 17, [7]),
        ("n1", 1, "x", 4, 16, [7]),
        ("n2", 0, "x", 0, 17, []),
        ("n2", 1, "x", 3, 16, [7]),
    ]


def test_mps_and_cards_that_are_not_shared() -> None:
    """Each in its own unit; what Slurm does not tell is not guessed."""
    nodes = (
        "NodeName=m Gres=gpu:x:2,mps:x:200 State=IDLE\n"
        "NodeName=g Gres=gpu:2(S:0) State=IDLE\n"
        "NodeName=u Gres=gpu:x:2,shard:x:33 State=IDLE\n"
    )

    cards = cluster_cards.assembled(nodes, queue(job(1, "m", "mps:60(IDX:1)"))).cards

    assert [(card.resource, card.used, card.total) for card in cards] == [
        *[("mps", 0, 100), ("mps", 60, 100)],
        *[("gpu", 0, 1), ("gpu", 0, 1)],
        *[("shard", 0, None), ("shard", 0, None)],
    ]


@pytest.mark.parametrize(
    ("nodes", "detail"),
    [
        ("n1", "shard:8(IDX:5)"),
        ("n1", "shard:8(IDX:N/A)"),
        ("other", "shard:8(IDX:0)"),
        ("n[1-", "shard:8(IDX:0)"),
        ("n1", "shard:8(IDX:0-99999999)"),
    ],
)
def test_a_job_on_no_card(nodes: str, detail: str) -> None:
    """It is told, and the others are shown."""
    cards = cluster_cards.assembled(
        OLD, queue(job(1, nodes, detail), job(2, "n1", "shard:2(IDX:0)"))
    )

    assert [row[5] for row in shown(cards)] == [[2], []]
    assert cards.problems == (f"job 1: nobody can say on which card {detail!r} is",)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"jobs": [{"job_id": "x"}]}', "[" * 10_000])
def test_a_queue_that_cannot_be_read(text: str) -> None:
    """One error, with what to look at."""
    with pytest.raises(slurm_programs.SlurmError, match="squeue --json"):
        cluster_cards.assembled(OLD, text)


@given(st.text(max_size=200), st.text(max_size=60), st.text(max_size=60))
def test_no_answer_is_too_strange(nodes: str, names: str, detail: str) -> None:
    """Cards and problems, and no exception."""
    for text in (nodes, f"NodeName=n Gres={nodes}", OLD + nodes):
        cluster_cards.assembled(text, queue(job(1, names, detail), job(2, "n1", detail)))


def _program(folder: pathlib.Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_no_slurm_on_this_machine(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Who asks is told where to ask."""
    done = site.partage("slurm", "nodes", env={"PATH": str(tmp_path)})

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "partage: there is no program scontrol; "
        "run this where Slurm's commands are installed (on Debian: slurm-client)\n"
    )


def test_a_program_that_fails(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Its own words, in one line."""
    _program(tmp_path, "scontrol", "echo 'scontrol: error: a\nfatal: b' >&2; exit 1")

    done = site.partage("slurm", "nodes", env={"PATH": f"{tmp_path}:/bin:/usr/bin"})

    assert done.returncode == 1
    assert "scontrol failed: scontrol: error: a fatal: b; see `scontrol ping`" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_program_that_waits_for_ever(tmp_path: pathlib.Path) -> None:
    """Nobody waits with it."""
    _program(tmp_path, "scontrol", "exec sleep 600")
    begun = time.monotonic()

    with pytest.raises(slurm_programs.SlurmError, match=r"no answer .* within 0.2 s"):
        slurm_programs.answer(str(tmp_path / "scontrol"), timeout_s=0.2)

    assert time.monotonic() - begun < sites.PATIENCE_S
