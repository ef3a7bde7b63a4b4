"""``make cluster ARGS="--kubelets 2"``: a share can be tried at once, as docs/cluster.md shows."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from cluster import child_processes
from cluster.network import network
from cluster.node import node
from cluster.programs import kubernetes_build
from tests.cluster import making
from tests.docs import blocks
from tests.leaving_out import leave_out

PYTHON = pathlib.Path(sys.executable)
SHOWN = [
    command
    for block in blocks.of("console")
    if block.page == "docs/cluster.md"
    for command in blocks.commands(block)
]


@pytest.fixture
def cache() -> Iterator[pathlib.Path]:
    """A folder for builds and the cluster; those of pytest are too long for sockets of kubelets."""
    with tempfile.TemporaryDirectory(prefix="partage-") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def environment(programs: pathlib.Path, cache: pathlib.Path) -> Iterator[dict[str, str]]:
    """That of a shell in which the printed lines were typed, with a standing cluster of our own."""
    try:
        node.check_machine()
        alone = [
            kubernetes_build.ensure_runc(),
            kubernetes_build.ensure_kube_proxy(),
            kubernetes_build.ensure_coredns(),
        ]
    except (node.CannotRun, kubernetes_build.CannotBuild) as error:
        leave_out("real nodes", error)
    for folder in (programs.parent, *(program.parent.parent for program in alone)):
        (cache / folder.name).symlink_to(folder)
    environment = os.environ | {
        "PARTAGE_CACHE": str(cache),
        "KUBECONFIG": str(cache / "cluster" / "kubeconfig"),
        "PATH": os.pathsep.join([str(programs), str(PYTHON.parent), os.environ["PATH"]]),
    }
    try:
        yield environment
    finally:
        _cluster(environment, "down")


def test_the_commands_that_it_prints_show_what_the_page_shows(environment: dict[str, str]) -> None:
    """All nodes have agents; the commands are those of docs/cluster.md, with their output."""
    printed = _cluster(environment, "up", "--kubelets", "2")
    to_try = [line.partition("#")[0].strip() for line in printed.splitlines() if " # " in line]
    assert to_try == [command.text for command in SHOWN[: len(to_try)]]
    for command in SHOWN:
        _shows(command, environment)
    assert "agent 127.0.0.2" in _cluster(environment, "status")


def test_with_a_network_it_is_for_partage_in_pods(environment: dict[str, str]) -> None:
    """All programs run but those of Partage, and all are gone when it is taken down."""
    try:
        network.check_machine()
    except network.CannotConnect as error:
        leave_out("a network of pods", error)
    printed = _cluster(environment, "up", "--kubelets", "1", "--network")
    assert "Nothing of Partage runs" in printed
    pids = [int(pid) for pid in re.findall(r"pid (\d+)", _cluster(environment, "status"))]
    assert len(pids) == 10  # six beside the node, and four of it
    _cluster(environment, "down")
    assert not [pid for pid in pids if child_processes.runs(pid)]


def test_a_network_without_real_nodes_is_refused(environment: dict[str, str]) -> None:
    """It says what to add."""
    done = _run([str(PYTHON), "-m", "cluster", "up", "--network"], environment)
    assert (done.returncode, "add --kubelets 2" in done.stderr) == (2, True)


def _shows(command: blocks.Command, environment: dict[str, str]) -> None:
    """The command prints what is shown, once what was typed before has taken effect."""
    shown = _lines(command.output)
    if "apply" in command.text:
        assert _lines(_output(command, environment)) == shown
        return
    outputs = [""]

    def is_as_shown() -> bool:
        outputs.append(_output(command, environment))
        return _lines(outputs[-1]) == shown

    making.eventually(is_as_shown, why=lambda: f"{command}\n{outputs[-1]}")


def _output(command: blocks.Command, environment: dict[str, str]) -> str:
    done = _run(shlex.split(command.text), environment)
    return done.stdout + done.stderr


def _lines(text: str) -> list[str]:
    """Without blanks at the ends of lines, which gpushare's tables have and pages do not."""
    return [line.rstrip() for line in text.strip().splitlines()]


def _cluster(environment: dict[str, str], *words: str) -> str:
    done = _run([str(PYTHON), "-m", "cluster", *words], environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(words: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, env=environment, cwd=blocks.ROOT, capture_output=True, text=True, check=False
    )
