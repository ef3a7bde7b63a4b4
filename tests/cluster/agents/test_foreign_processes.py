"""What processes outside Partage hold of a node's cards is not granted, until they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.node.node import Node
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

PARTAGE = Path(sys.executable).with_name("partage")
PROGRAM = Path(__file__).parents[2] / "local" / "gpu_program.py"
MEMORY = "aliyun.com/gpu-mem"
WHOLE = "partage.dev/cards"
CONTEXT_MIB = 256

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(site: Site) -> Iterator[Start]:
    """Starts programs on the first node, in no pod; they are gone in the end, and so told."""
    node, started = site.nodes[0], []

    def using(mib: int, card: int = 0) -> subprocess.Popen[str]:
        """One that has so much of a card, its context not counted, when this returns."""
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), "hold", str(mib)],
            env={**os.environ, **node.environment, "CUDA_VISIBLE_DEVICES": str(card)},
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == f"holds {mib} MiB, 0\n"
        return process

    yield using
    for process in started:
        process.kill()
        process.communicate()
    making.eventually(lambda: _foreign(site, node) == [0, 0])
    _close(site, site.nodes[1], closed=False)


def test_pods_wait_for_what_a_stranger_holds(site: Site, start: Start) -> None:
    """A share that fits beside it starts; more, or a whole card, waits, with the reason."""
    node = site.nodes[0]
    _close(site, site.nodes[1])
    strangers = [start(9 * 1024, card) for card in (0, 1)]
    making.eventually(lambda: _foreign(site, node) == [9 * 1024 + CONTEXT_MIB] * 2)
    site.create(_pod("beside", node, {MEMORY: 6}))
    site.running("beside")
    site.create(_pod("too-much", node, {MEMORY: 8}), _pod("whole", node, {WHOLE: 1}))
    making.eventually(lambda: _refused(site, "too-much", "no GPU has enough free memory"))
    making.eventually(lambda: _refused(site, "whole", "no GPU is unused"))
    assert "processes outside Partage use 9472 MiB of it" in _partage(site, "explain", "too-much")
    assert "processes outside Partage use 9472 MiB of it" in _partage(site, "explain", "whole")
    inspected = json.loads(_partage(site, "inspect", node.name, "-o", "json"))
    assert [card["foreign_mib"] for card in inspected["nodes"][0]["cards"]] == [9472, 9472]
    site.gone("beside")
    for stranger in strangers:
        stranger.kill()
    too_much, whole = site.running("too-much", "whole")
    assert sites.shares(too_much).keys().isdisjoint(sites.shares(whole))


def test_what_was_told_holds_while_no_agent_runs(site: Site, start: Start) -> None:
    """The next one goes on with it, and finds out that the process has ended."""
    node = site.nodes[0]
    stranger = start(3000, card=1)
    making.eventually(lambda: _foreign(site, node) == [0, 3328])
    version = _version(site, node)
    site.agent(node.name).kill()
    site.agent(node.name).start()
    assert (_foreign(site, node), _version(site, node)) == ([0, 3328], version)
    site.agent(node.name).kill()
    stranger.kill()
    stranger.wait()
    assert _foreign(site, node) == [0, 3328]
    site.agent(node.name).start()
    making.eventually(lambda: _foreign(site, node) == [0, 0])


def test_tenants_are_not_taken_for_strangers(site: Site) -> None:
    """From their first moment to their last: a share and a whole card."""
    node, log = site.nodes[0], site.agent(site.nodes[0].name).log
    before = log(lines=10_000).count("processes outside Partage")
    site.create(
        _pod("share", node, {MEMORY: 2}, command=["gpu", "hold", "1000"]),
        _pod("whole", node, {WHOLE: 1}, command=["gpu", "hold", "9000"]),
    )
    site.running("share", "whole")
    for name in ("share", "whole"):
        site.exec(name, "timeout", "2", "gpu", "hold", "500")
    site.gone("share", "whole")
    assert log(lines=10_000).count("processes outside Partage") == before
    assert _foreign(site, node) == [0, 0]


def _version(site: Site, node: Node) -> str:
    """Of what the agent writes on the node."""
    return str(site.client.get("Node", node.name)["metadata"]["annotations"]["partage.dev/cards"])


def _pod(name: str, node: Node, limits: dict[str, int], **container: Any) -> api.Object:
    where = {"kubernetes.io/hostname": node.name}
    main = objects.container(limits=limits) | container
    return objects.running_pod(name, main, nodeSelector=where)


def _close(site: Site, node: Node, *, closed: bool = True) -> None:
    """As `kubectl cordon` does."""
    site.client.patch("Node", node.name, {"spec": {"unschedulable": closed}})


def _foreign(site: Site, node: Node) -> list[int]:
    annotation = site.client.get("Node", node.name)["metadata"]["annotations"]["partage.dev/cards"]
    return [card["foreign_memory_mib"] for card in json.loads(annotation)["cards"]]


def _refused(site: Site, pod: str, reason: str) -> bool:
    return any(reason in text for text in site.events(pod))


def _partage(site: Site, *words: str) -> str:
    done = subprocess.run(
        [PARTAGE, *words, "--kubeconfig", str(site.plane.kubeconfig)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr
    return done.stdout
