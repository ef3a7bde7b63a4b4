"""Commands of README and docs that one machine is enough for: they are run, on simulated cards.

The exit code is as shown (0, where a page shows nothing else), tables have the headings that the
page shows, and where the output is the same each time it is compared word for word.
"""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from partage.fence.store import limits, roots, tenants
from tests.docs import blocks
from tests.local import sites
from tests.sim import small_traces

BIN = pathlib.Path(sys.executable).parent
PROGRAMS = ("train.py", "bench.py", "notebook.py")
# Commands that are not run here, and why; that they exist is checked in test_commands_exist.
ELSEWHERE = {
    "agent": "needs a kubelet: tests/cluster/agents runs it",
    "--cluster": "needs an API server: tests/cli and tests/cluster run the doctor",
    "adopt": "needs an API server: tests/cli and tests/cluster run it",
    "cleanup": "needs an API server, or a node: tests/cli, tests/agent and tests/cluster run it",
    "cordon": "needs an API server: tests/cli and tests/cluster/agents run it",
    "uncordon": "needs an API server: tests/cli and tests/cluster/agents run it",
    "claims": "needs an API server: tests/cli runs it on a server that plays one",
    "scheduler-config": "needs an API server: tests/cli and tests/cluster run it",
    "explain": "needs an API server: tests/cli runs it on a server that plays one",
    "check": "needs a configuration of Slurm: tests/slurm runs it",
    "nodes": "needs a controller of Slurm: tests/slurm runs it",
    "install": "needs a configuration of Slurm, and changes it: tests/slurm runs it",
    "prepare": "needs a configuration of Slurm, and changes the machine: tests/slurm runs it",
    "usage": "needs a job of Slurm that has ended: tests/slurm runs it",
    "--under-slurm": "needs a job of Slurm: tests/slurm runs it",
    "inspect": "needs an API server: tests/cluster/test_make_cluster and tests/cli run it",
    "setup": "needs root, and changes the machine: tests/local runs it in a folder",
}
# Where a page shows another machine than ours, its tables are not compared.
OTHER_MACHINES = {"docs/agent-metrics.md": "shows an agent; tests/cli/test_top_shows_what_is_used"}
CARD = "GPU-01234567-89ab-cdef-0123-456789abcdef"
EXACT = ("partage fit", ".venv/bin/partage fit")
EXIT_CODES = {"partage fit --cards 3 --memory 10GiB": 1}
CARDS = {"partage fit --cards 3 --memory 10GiB": "3x16GiB"}
SIMULATED = " (simulated)"  # which our cards are, and those of the pages are not


def _runs_here(command: blocks.Command) -> bool:
    words = shlex.split(command.text, comments=True)
    return pathlib.Path(words[0]).name == "partage" and ELSEWHERE.keys().isdisjoint(words)


HERE = {
    # Once, where several pages show the same.
    (command.text.removeprefix(".venv/bin/"), command.output): command
    for block in blocks.of("console", "sh")
    for command in blocks.commands(block)
    if not block.text.startswith("openssl") and _runs_here(command)
}


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where a user is who types the commands: with the files and programs that they name."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "examples").symlink_to(blocks.ROOT / "examples")
    for name in PROGRAMS:
        (folder / name).write_text("")
    (folder / "torchrun").write_text("#!/bin/sh\n")
    (folder / "torchrun").chmod(0o755)
    small_traces.cluster(folder).rename(folder / "openb_node_list_gpu_node.csv")
    small_traces.workload(folder).rename(folder / "openb_pod_list_default.csv")
    root = roots.prepare(tmp_path / "root")
    card = limits.CardLimits(uuid=CARD, memory_bytes=1 << 30)
    tenants.create(root, "job-17", limits.Limits((card,)))
    return folder


@pytest.mark.parametrize("command", HERE.values(), ids=str)
def test_a_command_does_what_the_page_shows(
    command: blocks.Command, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """On a machine of its own."""
    site = sites.Site(tmp_path, cards=CARDS.get(command.text, "2x16GiB"))
    try:
        if command.output:
            _fill(site)
        done = _run(command, site, folder)
    finally:
        site.end()
    assert done.returncode == EXIT_CODES.get(command.text, 0), done.stdout + done.stderr
    if command.text.startswith(EXACT) and command.output:
        assert done.stdout.replace(SIMULATED, "") == command.output
    if command.block.page not in OTHER_MACHINES:
        for heading in _headings(command.output):
            assert heading in _headings(done.stdout), done.stdout


def test_there_are_commands() -> None:
    """The patterns find them, and what they leave out is there."""
    assert len(HERE) > 10
    words = {word for block in blocks.of("console", "sh") for word in block.text.split()}
    assert ELSEWHERE.keys() <= words


def _fill(site: sites.Site) -> None:
    """What there is to see: a program that reserves memory, one that uses it, one that waits."""
    site.holding("--name", "sweep", "--card", "1", "--memory", "12GiB")
    site.using(756, "--name", "job-17", "--card", "0", "--memory", "1GiB", "--compute", "30%:80%")
    if site.environment["PARTAGE_SIMULATE"] not in CARDS.values():
        site.run("--name", "large", "--exclusive", "--cards", "2", command=["true"])
        sites.eventually(lambda: site.names("waiting") == ["large"])


def _run(
    command: blocks.Command, site: sites.Site, folder: pathlib.Path
) -> subprocess.CompletedProcess[str]:
    words = shlex.split(command.text, comments=True)
    environment = site.environment | {
        "PATH": os.pathsep.join([str(folder), str(BIN), os.environ["PATH"]])
    }
    if "set" in words:  # of tenants that were made without `partage run`
        environment["PARTAGE_ROOT"] = str(folder.with_name("root"))
    return subprocess.run(
        [BIN / "partage", *words[1:]],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )


def _headings(text: str) -> list[list[str]]:
    """The words of lines that name columns."""
    return [line.split() for line in text.splitlines() if re.match(r"[A-Z]+\S*(  +[A-Z]|$)", line)]
