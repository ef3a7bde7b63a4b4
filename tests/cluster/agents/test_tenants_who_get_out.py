"""A tenant that gets around its fence is seen, told and ended, and its neighbour gets its share."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from partage.agent import watch
from tests.cluster import escapes, making
from tests.cluster.agents.site import Site, shares

PARTAGE = Path(sys.executable).with_name("partage")
MEMORY = "aliyun.com/gpu-mem"
EXCESS_MIB = 13_000
KILLED = 128 + 9

Way = Callable[[int], tuple[str, ...]]


class Escape:
    """A program that takes memory without its fence, in a pod of 2 GiB."""

    def __init__(self, site: Site, pod: str, way: Way = escapes.renamed) -> None:
        self._site = site
        self._pod = pod
        self._way = way
        self.done: Any = None
        self.took_s = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        started_s = time.monotonic()
        self.done = self._site.exec(self._pod, *self._way(EXCESS_MIB))
        self.took_s = time.monotonic() - started_s

    def ended(self) -> bool:
        """Whether it has come to its end."""
        return not self._thread.is_alive()

    def wait(self) -> Any:
        """How it ended."""
        self._thread.join(60)
        assert self.ended()
        return self.done


@pytest.fixture
def pair(site: Site, tmp_path: Path) -> Iterator[str]:
    """Two pods on one card, one of 2 GiB that wants more, and one of 8 GiB; their node."""
    site.client.create(escapes.config_map(tmp_path))
    where = site.nodes[0].name  # its cards have 16 GiB
    on_one_node: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": where}}
    site.create(
        escapes.pod("greedy", {MEMORY: 2}, **on_one_node),
        objects.running_pod("neighbour", objects.container(limits={MEMORY: 8}), **on_one_node),
    )
    first, second = site.running("greedy", "neighbour")
    assert shares(first).keys() == shares(second).keys()
    yield where
    _label(site, where, None)
    site.client.delete("ConfigMap", escapes.NAME)


def _label(site: Site, node: str, then: str | None) -> None:
    change: api.Object = {"metadata": {"labels": {watch.LABEL: then}}}
    site.client.patch("Node", node, change)


def _row(site: Site, node: str) -> dict[str, Any]:
    """The greedy pod as the agent reports it."""
    rows = site.agent(node).report()["containers"]
    return next(row for row in rows if row["pod"] == "greedy")


def _say(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """A number that whoever runs the tests should see."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


@pytest.mark.parametrize("way", [escapes.renamed, escapes.covered])
def test_it_is_ended_and_its_neighbour_gets_its_share(
    site: Site, pair: str, way: Way, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a setting: the process, and nobody else; with the reason in the pod's events."""
    assert site.exec("greedy", "gpu", "try", "3000").returncode == 1
    escape = Escape(site, "greedy", way)
    assert escape.wait().returncode == KILLED
    assert escape.done.stdout == "held\n"
    _say(capsys, f"from its start with {EXCESS_MIB} MiB to its end: {escape.took_s:.2f} s")
    assert site.said("neighbour", "gpu", "try", "7900") == "held\n"
    making.eventually(lambda: any("it was ended" in text for text in site.events("greedy")))
    (message,) = [text for text in site.events("greedy") if "outside its fence" in text]
    assert "13256 MiB" in message
    assert not any("fence" in text for text in site.events("neighbour"))
    assert site.pod("greedy")["status"]["containerStatuses"][0]["restartCount"] == 0
    counted = 'partage_outside_fence_total{found="excess",then="end"} '
    assert counted in site.agent(pair).metrics()
    assert site.said("greedy", "gpu", "try", "1500") == "held\n"


@pytest.mark.parametrize("way", [escapes.renamed, escapes.covered])
def test_to_be_rid_of_the_preload_is_not_enough(
    site: Site, pair: str, way: Callable[[int, str], tuple[str, ...]]
) -> None:
    """What the program finds as the driver is the fence."""
    refused = site.exec("greedy", *way(EXCESS_MIB, ""))
    # In a user namespace the files of the fence are nobody's that it could believe: it is closed.
    assert refused.returncode == 1
    assert refused.stdout in ("CUDA_ERROR_OUT_OF_MEMORY\n", "CUDA_ERROR_NOT_PERMITTED\n")
    assert site.said("neighbour", "gpu", "try", "7900") == "held\n"


def test_it_is_told_where_that_was_chosen(
    site: Site, pair: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown with all it holds, and its neighbour gets nothing, until it is to be ended."""
    _label(site, pair, "tell")
    started_s = time.monotonic()
    escape = Escape(site, "greedy")
    making.eventually(lambda: _row(site, pair)["fence"] == "outside")
    _say(capsys, f"from its start to being shown: {time.monotonic() - started_s:.2f} s")
    row = _row(site, pair)
    assert row["used_bytes"] == (EXCESS_MIB + 256) << 20
    assert row["outside_bytes"] == (EXCESS_MIB + 256 - 2048) << 20
    agent = site.agent(pair)
    top = subprocess.run(
        [PARTAGE, "top", "--once", "--agent", agent.url],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "outside" in top.stdout
    assert f"process {row['outside_pid']} is outside its fence" in top.stdout
    assert "partage_card_memory_unaccounted_bytes" in agent.metrics()
    assert site.exec("neighbour", "gpu", "try", "4000").stdout == "CUDA_ERROR_OUT_OF_MEMORY\n"
    assert not escape.ended()
    _label(site, pair, "end")
    assert escape.wait().returncode == KILLED
    making.eventually(lambda: _row(site, pair)["fence"] == "hook")


def test_its_fenced_processes_are_paused_where_that_was_chosen(site: Site, pair: str) -> None:
    """Their launches wait; the process itself is left alone."""
    _label(site, pair, "pause")
    escape = Escape(site, "greedy")
    making.eventually(lambda: _row(site, pair)["paused"])
    assert not escape.ended()
    making.eventually(lambda: any("is paused" in text for text in site.events("greedy")))
    _label(site, pair, "end")
    escape.wait()
