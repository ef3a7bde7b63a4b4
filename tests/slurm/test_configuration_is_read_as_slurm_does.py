"""Slurm's files: comments, joined lines, includes, ranges; and what nobody should have to read."""

from __future__ import annotations

import contextlib
import os
import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.slurm.configuration import config_files, gres, host_ranges, node_paths, statements
from tests.slurm import configurations


def read(folder: pathlib.Path, **texts: str) -> config_files.Configuration:
    """Files in a folder, read."""
    for name, text in texts.items():
        (folder / f"{name}.conf").write_text(text)
    return config_files.read(folder / "slurm.conf")


def test_keys_and_values() -> None:
    """Keys in any case, quotes, blanks around the sign, and the last value wins."""
    text = 'TASKplugin = task/cgroup\nMailProg="/bin/my mail"\nA=1 b=2  C=3\nTaskPlugin=task/none\n'
    document = configurations.document("slurm", text)

    assert document.setting("taskplugin") == ("task/none", statements.Place(document.path, 4))
    assert document.setting("MailProg")[0] == "/bin/my mail"
    assert document.statements[2].pairs == {"a": "1", "b": "2", "c": "3"}
    assert document.setting("Nothing") == ("", statements.Place(document.path, 0))


def test_comments_and_joined_lines() -> None:
    """A line is known by the number at which it begins."""
    text = "# a comment\n\nA=1 \\\n  B=2 # and \\\nC=x\\#y # z\n#D=4\nE=5\\"
    document = configurations.document("slurm", text)

    places = [(statement.place.line, statement.text) for statement in document.statements]
    assert places == [(3, "A=1   B=2"), (5, "C=x#y"), (7, "E=5")]


def test_what_is_no_pair_is_told() -> None:
    """Slurm does not start with it."""
    (statement,) = statements.of_text("f", 'A=1 what B=2 C="open')

    assert statement.pairs == {"a": "1", "b": "2"}
    assert statement.unreadable == 'what C="open'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-4,7]", ["n1", "n2", "n3", "n4", "n7"]),
        ("a[08-10]b,c", ["a08b", "a09b", "a10b", "c"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("/dev/nvidia[0-1],/dev/nvidia7", ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia7"]),
        ("", []),
    ],
)
def test_ranges(text: str, names: list[str]) -> None:
    """As Slurm writes lists of names."""
    assert [*host_ranges.expanded(text)] == names


@pytest.mark.parametrize(
    "text",
    ["n[1-", "n1]", "n[[1]]", "n[2-1]", "n[a]", "n[1-999999999]", "n[1-300]m[1-300]", "n[]"],
)
def test_ranges_that_are_none(text: str) -> None:
    """And those that would fill the memory."""
    with pytest.raises(host_ranges.BadRange):
        host_ranges.expanded(text)


@given(st.text("n[]-,0123456789", max_size=40))
def test_ranges_are_bounded(text: str) -> None:
    """Whatever is written."""
    with contextlib.suppress(host_ranges.BadRange):
        assert len(host_ranges.expanded(text)) <= host_ranges.MOST_NAMES


@pytest.mark.parametrize(
    ("text", "amounts"),
    [
        ("gpu:a30:2,shard:48", [("gpu", "a30", 2), ("shard", "", 48)]),
        ("GPU", [("gpu", "", 1)]),
        ("gpu:a30", [("gpu", "a30", 1)]),
        ("gpu:4(S:0-1),bandwidth:lustre:2K", [("gpu", "", 4), ("bandwidth", "lustre", 2048)]),
        ("(null)", []),
    ],
)
def test_sums_of_resources(text: str, amounts: list[tuple[str, str, int]]) -> None:
    """As a node of slurm.conf has them, and scontrol prints them."""
    assert [(part.name, part.type, part.count) for part in gres.amounts(text)] == amounts


def test_nodes_of_this_machine() -> None:
    """By their name or that of their host; lines about other nodes are not theirs."""
    slurm = configurations.document(
        "slurm",
        "NodeName=gpu[1-9] Gres=gpu:1\nNodeName=n[1-2] NodeHostname=gpu7 Gres=gpu:2\n"
        "NodeName=a,b NodeHostname=x,GPU7 Gres=gpu:3\nNodeName=other Gres=gpu:4\n",
    )
    lines = configurations.document(
        "gres", "NodeName=n[1,5] Name=gpu File=/dev/nvidia[0-1]\nName=gpu File=/dev/nvidia5\n"
    )

    nodes = gres.nodes(slurm, lines, ["gpu7", "gpu7.example.org"])

    assert [(node.name, node.amounts[0].count) for node in nodes] == [
        ("gpu7", 1),
        ("n1", 2),
        ("n2", 2),
        ("b", 3),
    ]
    assert nodes[1].files == ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia5"]
    assert nodes[0].files == ["/dev/nvidia5"]


def test_included_files(tmp_path: pathlib.Path) -> None:
    """Their statements stand where they are included, with their own file and line."""
    (tmp_path / "nodes").write_text("\nNodeName=x\n")
    (tmp_path / "parts").mkdir()
    for name in ("b", "a"):
        (tmp_path / "parts" / f"{name}.conf").write_text(f"required {name}.so\n")
    configuration = read(
        tmp_path, slurm="A=1\ninclude nodes\nB=2\n", plugstack="include parts/*.conf\n"
    )

    assert configuration.findings == ()
    places = [
        (pathlib.Path(statement.place.file).name, statement.place.line)
        for statement in configuration.slurm.statements
    ]
    assert places == [("slurm.conf", 1), ("nodes", 2), ("slurm.conf", 3)]
    assert [s.text for s in configuration.plugstack.statements] == [
        "required a.so",
        "required b.so",
    ]


def test_a_file_that_includes_itself(tmp_path: pathlib.Path) -> None:
    """Directly, through another, or by a link: it ends, and the line is named."""
    (tmp_path / "again").symlink_to("slurm.conf")
    (tmp_path / "other").write_text("Include again\nB=2\n")

    configuration = read(tmp_path, slurm="A=1\nInclude other\nInclude slurm.conf\nC=3\n")

    assert [statement.text for statement in configuration.slurm.statements] == ["A=1", "B=2", "C=3"]
    assert [(finding.code, finding.line) for finding in configuration.findings] == [
        ("unreadable", 1),
        ("unreadable", 3),
    ]
    assert "includes itself" in configuration.findings[0].problem


def test_endless_includes(tmp_path: pathlib.Path) -> None:
    """Chains and fans are cut off, within a moment."""
    for number in range(300):
        (tmp_path / f"c{number}").write_text(f"Include c{number + 1}\n")
        (tmp_path / f"f{number}").write_text("".join(f"Include f{n}\n" for n in range(300)))

    chain = read(tmp_path, slurm="Include c0\n")
    fan = read(tmp_path, slurm="Include f0\n")

    assert "files deep" in chain.findings[0].problem
    assert 0 < len(fan.findings) <= 200


def test_what_is_no_text(tmp_path: pathlib.Path) -> None:
    """Nothing hangs, nothing fails, and each file is named."""
    (tmp_path / "slurm.conf").write_bytes(b"A=1\n\0\n")
    (tmp_path / "cgroup.conf").mkdir()
    os.mkfifo(tmp_path / "gres.conf")
    (tmp_path / "plugstack.conf").symlink_to("plugstack.conf")

    configuration = config_files.read(tmp_path / "slurm.conf")

    told_of = {pathlib.Path(finding.file).name for finding in configuration.findings}
    assert told_of == {"slurm.conf", "cgroup.conf", "gres.conf", "plugstack.conf"}
    assert all(finding.code == "unreadable" for finding in configuration.findings)


def test_a_file_that_is_too_large(tmp_path: pathlib.Path) -> None:
    """Its size is not believed to be right."""
    with (tmp_path / "slurm.conf").open("wb") as file:
        file.truncate(1 << 40)

    (finding,) = config_files.read(tmp_path / "slurm.conf").findings

    assert "has more than 8 MiB" in finding.problem


def test_more_lines_than_anybody_writes(tmp_path: pathlib.Path) -> None:
    """The first of them are read, and the rest is told of."""
    line = "NodeName=n[1-9000] Gres=gpu:1\n"

    configuration = read(tmp_path, slurm=line * 60_000)

    assert len(configuration.slurm.statements) == 50_000
    assert "the rest was not read" in configuration.findings[0].problem


def test_letters_of_other_times(tmp_path: pathlib.Path) -> None:
    """A comment in Latin-1 does not make a file unreadable."""
    (tmp_path / "slurm.conf").write_bytes(b"A=1 # r\xe9seau\nB=2\n")

    configuration = config_files.read(tmp_path / "slurm.conf")

    assert configuration.findings == ()
    assert [statement.text for statement in configuration.slurm.statements] == ["A=1", "B=2"]


def test_where_the_files_are(tmp_path: pathlib.Path) -> None:
    """As named, then as SLURM_CONF says, whatever the file is called there."""
    named = tmp_path / "other.conf"
    environ = {"SLURM_CONF": str(named)}

    assert node_paths.main_file(tmp_path / "x", environ) == tmp_path / "x" / "slurm.conf"
    assert node_paths.main_file(None, environ) == named
    named.write_text("A=1\n")
    (tmp_path / "gres.conf").write_text("Name=gpu\n")
    configuration = config_files.read(named)
    assert configuration.slurm.setting("A")[0] == "1"
    assert configuration.gres.setting("Name")[0] == "gpu"


def test_only_slurm_conf_has_to_be_there(tmp_path: pathlib.Path) -> None:
    """The others are optional, for Slurm too."""
    (finding,) = config_files.read(tmp_path / "slurm.conf").findings

    assert finding.problem == f"there is no file {tmp_path}/slurm.conf"
    assert read(tmp_path, slurm="A=1\n").findings == ()
