"""``partage slurm check`` as a command: its table, its JSON and its exit codes."""

from __future__ import annotations

import json
import os
import pathlib

from tests.local import sites
from tests.slurm import configurations


def _written(folder: pathlib.Path, **texts: str) -> pathlib.Path:
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.conf").write_text(text)
    return folder


def test_problems_end_it_with_one(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Each with its file and line, and what to write."""
    folder = _written(tmp_path / "conf", slurm="SelectType=select/linear\nTaskPlugin=task/cgroup\n")

    done = site.partage("slurm", "check", "--conf", folder)

    assert (done.returncode, done.stderr) == (1, "")
    lines = {line.split()[1]: line for line in done.stdout.splitlines()}
    assert lines[f"{folder}/slurm.conf:1"].startswith("problem  ")
    assert lines[f"{folder}/slurm.conf:1"].endswith("; write SelectType=select/cons_tres")
    assert lines[f"{folder}/cgroup.conf"].endswith("; write ConstrainDevices=yes")


def test_for_programs(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """The same, with codes; SLURM_CONF says where, if no option does."""
    folder = _written(tmp_path / "conf", slurm=configurations.SLURM, cgroup=configurations.CGROUP)
    environment = {"SLURM_CONF": str(folder / "slurm.conf")}

    done = site.partage("slurm", "check", "-o", "json", env=environment)

    answer = json.loads(done.stdout)
    assert (answer["apiVersion"], answer["kind"]) == ("output.partage.dev/v1", "SlurmCheck")
    assert answer["file"] == str(folder / "slurm.conf")
    (machine,) = [finding for finding in answer["findings"] if finding["code"] == "no-node"]
    assert (machine["severity"], machine["line"]) == ("note", 0)
    assert machine["file"] == answer["file"]
    assert machine["remedy"].startswith("write NodeName=")


def test_no_slurm_here(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Which file is missing, and how another is named."""
    done = site.partage("slurm", "check", "--conf", tmp_path / "nowhere")

    assert done.returncode == 1
    assert f"there is no file {tmp_path}/nowhere/slurm.conf; " in done.stdout
    assert "--conf" in done.stdout


def test_what_would_disturb_a_terminal_is_not_printed(
    site: sites.Site, tmp_path: pathlib.Path
) -> None:
    """Nor does a file that is none end in a traceback."""
    folder = _written(tmp_path / "conf", slurm="\x1b[2J is no key\n\x9b31m\n")
    (folder / "gres.conf").write_bytes(os.urandom(5000) + b"\0")
    (folder / "cgroup.conf").symlink_to("/dev/zero")

    done = site.partage("slurm", "check", "--conf", folder)

    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.replace("\n", "").isprintable()
    assert "cgroup.conf is not a regular file" in done.stdout
    assert "gres.conf is not text" in done.stdout
