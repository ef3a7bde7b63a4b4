"""The rule that slurmctld asks about submissions: what it is made from, and what it says."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.slurm import slurm_programs
from partage.slurm.configuration import config_files, gres, submit_rule
from tests.slurm import configurations, lua_programs
from tests.slurm.configurations import NEW, OLD

PLAIN = "SelectTypeParameters=CR_Core\n"
SEVERAL = "SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ\n"
NODES = """\
NodeName=a[1-2000] Gres=gpu:t4:2,shard:32
NodeName=b1 Gres=gpu:a30:1,gpu:t4:1,shard:40
NodeName=login
"""
LINES = """\
NodeName=a[1-2000] Name=gpu Type=t4 File=/dev/nvidia[0-1]
NodeName=a[1-2000] Name=shard Count=32
NodeName=b1 Name=gpu Type=a30 File=/dev/nvidia0
NodeName=b1 Name=gpu Type=t4 File=/dev/nvidia1
NodeName=b1 Name=shard Count=24 File=/dev/nvidia0
NodeName=b1 Name=shard Count=16 File=/dev/nvidia1
"""


def rule(
    slurm: str = PLAIN + NODES,
    lines: str = LINES,
    version: slurm_programs.Version | None = OLD,
) -> str:
    """From these files."""
    empty = configurations.document("cgroup", "")
    configuration = config_files.Configuration(
        configurations.document("slurm", slurm),
        configurations.document("gres", lines),
        empty,
        empty,
    )
    return submit_rule.rule(configuration, version)


def largest(slurm: str, lines: str = "") -> dict[str, int]:
    """The bound, from these files."""
    documents = configurations.document("slurm", slurm), configurations.document("gres", lines)
    return submit_rule.largest(gres.kinds(*documents))


def test_the_largest_card_of_any_node_is_the_bound() -> None:
    """Nodes may differ, and so may the cards of a node."""
    assert largest(NODES, LINES) == {"shard": 24}
    assert largest(NODES, LINES.replace("b1", "b2")) == {"shard": 40}  # nothing is known of b1


@pytest.mark.parametrize(
    ("node", "lines", "most"),
    [
        ("gpu:t4:2,mps:200", "Name=gpu File=/dev/nvidia[0-1]\nName=mps Count=200", {"mps": 100}),
        ("gpu:t4:2,shard:32", "AutoDetect=nvml\nName=shard Count=32", {"shard": 16}),
        ("gpu:2,shard:32", "Name=gpu File=/dev/nvidia[0-1]", {"shard": 16}),
        ("gpu:2,shard:33", "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=33", {"shard": 17}),
        ("gpu:2,shard:32", "", {"shard": 32}),
        ("gpu:2,shard:0", "Name=gpu File=/dev/nvidia[0-1]\nName=shard Count=0", {}),
        ("gpu:2", "Name=gpu File=/dev/nvidia[0-1]", {}),
    ],
)
def test_what_is_not_told_is_not_refused(node: str, lines: str, most: dict[str, int]) -> None:
    """The bound is never below what a card has."""
    assert largest(f"NodeName=n1 Gres={node}\n", lines) == most


def test_a_default_for_nodes_counts() -> None:
    """As for the check."""
    assert largest("NodeName=DEFAULT Gres=gpu:1,shard:8\nNodeName=n[1-3]\n") == {"shard": 8}


def test_several_cards_have_no_bound() -> None:
    """Where Slurm gives a job parts of several, it knows itself what is too much."""
    assert "LARGEST = {shard = 24}" in rule(version=NEW)
    assert "LARGEST = {}" in rule(SEVERAL + NODES, version=NEW)
    assert "LARGEST = {}" in rule(SEVERAL + NODES, version=None)
    assert "LARGEST = {shard = 24}" in rule(SEVERAL + NODES)


@pytest.mark.parametrize(
    ("field", "request_", "says"),
    [
        ("tres_per_node", "gres:shard:25", "shard:25 is more than the largest card has"),
        ("tres_per_node", "gres/shard:25", "shard:25 is more than the largest card has"),
        ("tres_per_task", "cpu:1,gres/shard=25", "shard=25 is more than the largest card has"),
        ("tres_per_socket", "gres:SHARD:25", "SHARD:25 is more than the largest card has"),
        ("tres_per_node", "gres:shard:1m", "shard:1m is more than the largest card has"),
        ("tres_per_node", "gres:shard:" + "9" * 400, "is more than the largest card has"),
        ("tres_per_job", "gres:shard:0", "shard:0 asks for no shards; leave it out"),
        ("tres_per_node", "gres:shard:", "shard: is not a number of shards"),
        ("tres_per_node", "gres:shard:a:b:4", "shard:a:b:4 is not a number of shards"),
        ("tres_per_node", "gres:shard:a30", "shard:a30 names a type"),
        ("tres_per_node", "gres:gpu:1,shard:4", "a job has whole cards or shards, not both"),
        ("tres_per_node", "gres:gpu:a30,gres:shard:4", "a job has whole cards or shards, not both"),
        ("tres_per_node", "gres:shard:\x1b[2J", "shard:??2J is not a number of shards"),
    ],
)
def test_what_is_refused(field: str, request_: str, says: str) -> None:
    """However a version of Slurm writes it."""
    code, text = lua_programs.answer(rule(), {field: request_})

    assert code == -1
    assert text.startswith("Partage: ")
    assert says in text


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tres_per_node": ""},
        {"tres_per_node": "gres:shard:24"},
        {"tres_per_node": "gres:shard"},
        {"tres_per_node": "gres:gpu:0,gres:shard:4"},
        {"tres_per_node": "gres:gpu:8", "tres_per_task": "gres:gpu:2"},
        {"tres_per_node": "gres:craynetwork:1,license:shard"},
        {"tres_per_job": "gres:shard:30"},  # over several nodes
    ],
)
def test_what_passes(fields: dict[str, str]) -> None:
    """Slurm decides."""
    assert lua_programs.answer(rule(), fields) == (0, "")


def test_whole_cards_and_shards_in_different_options() -> None:
    """As --gpus and --gres."""
    fields = {"tres_per_job": "gres:gpu:1", "tres_per_node": "gres:mps:50"}

    code, text = lua_programs.answer(rule(), fields)

    assert (code, text) == (
        -1,
        "Partage: a job has whole cards or mps, not both; leave gpu out, or mps",
    )


def test_percents_are_refused_likewise() -> None:
    """A card has a hundred."""
    slurm = f"{PLAIN}NodeName=n1 Gres=gpu:t4:2,mps:200\n"
    lines = "Name=gpu Type=t4 File=/dev/nvidia[0-1]\nName=mps Count=200 Flags=all_sharing\n"
    percents = rule(slurm, lines)

    code, text = lua_programs.answer(percents, {"tres_per_node": "gres:mps:101"})

    assert code == -1
    assert "mps:101 is more than the largest card has" in text
    assert "ask for 1 to 100 of one card, such as --gres=mps:4" in text
    assert lua_programs.answer(percents, {"tres_per_node": "gres:mps:100"}) == (0, "")


def test_types_are_for_newer_versions() -> None:
    """Their steps fail before."""
    fields = {"tres_per_node": "gres:shard:a30:4"}

    assert lua_programs.answer(rule(version=NEW), fields) == (0, "")
    assert lua_programs.answer(rule(version=None), fields) == (0, "")
    assert "write --gres=shard:4" in lua_programs.answer(rule(), fields)[1]


_words = st.sampled_from(
    [
        "gres",
        "shard",
        "mps",
        "gpu",
        ":",
        "/",
        "=",
        ",",
        "0",
        "17",
        "1k",
        "a30",
        "-1",
        "%s",
        " ",
        ".",
    ]
)
_requests = st.text(max_size=40) | st.lists(_words, max_size=12).map("".join)


@given(st.dictionaries(st.sampled_from(["tres_per_node", "tres_per_job"]), _requests))
def test_no_request_is_too_strange(fields: dict[str, str]) -> None:
    """It is answered, and the text is one plain line."""
    code, text = lua_programs.answer(rule(), fields)

    assert (code, bool(text)) in ((0, False), (-1, True))
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("SlurmctldHost=ctl(10.0.0.1)\nSlurmctldHost=GPU7\n", True),
        ("ControlMachine=gpu7\n", True),
        ("SlurmctldHost=localhost(127.0.0.1)\n", True),
        ("SlurmctldHost=ctl(gpu7)\n", False),
        ("NodeName=gpu7\n", False),
    ],
)
def test_which_machine_is_the_controller(text: str, answer: bool) -> None:
    """By the names of its host, or of a second controller."""
    slurm = configurations.document("slurm", text)
    assert submit_rule.is_controller(slurm, ("gpu7", "gpu7.example.org")) is answer


def test_a_path_with_quotes() -> None:
    """It cannot end the string that it is in."""
    script = submit_rule.script(pathlib.Path('/a"b\\c/slurm.conf'))

    assert 'dofile("/a\\"b\\\\c/partage_job_submit.lua")' in script
