"""The cluster of this user: the one that stays up until it is taken down.

``make cluster`` brings it up: a control plane with its controllers, some nodes with cards, real
ones with Partage's agent or objects alone, and Partage's extender behind the scheduler. It lives in
the cache folder, so that every checkout finds the same one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import child_processes, locks, objects
from cluster.control_plane import control_plane, scheduler_config
from cluster.node import node
from cluster.partage_processes import agent_process, extender_process
from cluster.programs import kubernetes_build

AGENT = "agent"
EXTENDER = "extender"
_ADDRESS = "address"  # a file
_NODES = "nodes"  # a folder, with one for each real node


def folder() -> Path:
    """Where the cluster keeps its state."""
    return kubernetes_build.cache_folder() / "cluster"


def kubectl() -> Path:
    """The kubectl of the cluster's version."""
    return kubernetes_build.programs_folder() / "kubectl"


def kubeconfig() -> Path:
    """How to reach the cluster."""
    return _plane().kubeconfig


def commands() -> Path:
    """Where ``partage`` and kubectl's plugin are installed."""
    return Path(sys.executable).parent


def address() -> str:
    """Where the extender listens."""
    return (folder() / _ADDRESS).read_text()


def pids() -> dict[str, int]:
    """The programs of the cluster that run; none if it is down."""
    running = {**_plane().pids(), EXTENDER: _extender().pid}
    for real_node in real_nodes():
        programs = {**real_node.pids(), AGENT: _agent(real_node).pid}
        running |= {program_on(name, real_node): pid for name, pid in programs.items()}
    return {name: pid for name, pid in running.items() if pid is not None}


def real_nodes() -> list[node.Node]:
    """The nodes that have a kubelet."""
    numbers = sorted(int(path.name) for path in (folder() / _NODES).glob("*"))
    return [_node(number) for number in numbers]


def names() -> list[str]:
    """All programs that the cluster has while it is complete."""
    on_nodes = [
        program_on(name, real_node)
        for real_node in real_nodes()
        for name in (*node.PROGRAMS, *([AGENT] if real_node.has_cards else []))
    ]
    return [*control_plane.NAMES, EXTENDER, *on_nodes]


def program_on(name: str, where: node.Node) -> str:
    """What a program of a node is called among those of the cluster."""
    return f"{name} {where.name}"


def up(*, nodes: int, kubelets: int, cards: int, card_gib: int) -> bool:
    """Bring the cluster up; False if it was up already."""
    kubernetes_build.ensure()
    if kubelets:
        node.check_machine()
        kubernetes_build.ensure_runc()
    with locks.exclusive(folder().with_name("cluster.lock"), on_wait=lambda: None):
        if pids():
            return False
        _up(nodes, kubelets, cards, card_gib)
        return True


def down() -> None:
    """Take the cluster down, and remove all it kept."""
    _stop()
    shutil.rmtree(folder(), ignore_errors=True)


def _up(nodes: int, kubelets: int, cards: int, card_gib: int) -> None:
    """Bring the cluster up; if that fails, nothing is left of it but the logs."""
    shutil.rmtree(folder(), ignore_errors=True)  # of a cluster that went down with the machine
    plane = _plane().start()
    try:
        plane.client.create_all(objects.nodes(nodes, cards=cards, card_units=card_gib))
        form = f"{cards}x{card_gib}GiB" if cards else ""
        started = [_node(number + 1, plane, form) for number in range(kubelets)]
        node.start_all(started)
        for real_node in started:
            if real_node.has_cards:
                _agent(real_node).start()
        plane.start_scheduler(_configuration(plane, counted=_counted(kubelets)))
    except BaseException:
        _stop()
        raise
    finally:
        plane.client.close()


def _counted(kubelets: int) -> Sequence[str]:
    """The resources that the scheduler counts by sum; it must not count what no node reports.

    Nodes that are objects alone report gpushare's. Beside real nodes they take only pods that ask
    in its words; all others go where an agent can start them.
    """
    return scheduler_config.offered() if kubelets else (objects.MEMORY, objects.COUNT)


def _stop() -> None:
    _extender().stop()
    for real_node in real_nodes():
        _agent(real_node).stop()
        real_node.stop()
    _plane().stop()


def _plane() -> control_plane.ControlPlane:
    return control_plane.ControlPlane(folder(), controllers=True, ends_with_parent=False)


def _node(
    number: int, plane: control_plane.ControlPlane | None = None, cards: str = ""
) -> node.Node:
    """A node; the control plane and the cards matter only to one that is to be started."""
    where = folder() / _NODES / str(number)
    return node.Node(plane or _plane(), where, number, cards=cards, ends_with_parent=False)


def _extender() -> extender_process.Extender:
    plane = _plane()
    return extender_process.Extender(
        folder() / "run", plane.kubeconfig, name=EXTENDER, ends_with_parent=False
    )


def _agent(real_node: node.Node) -> agent_process.Agent:
    return agent_process.Agent(real_node, _plane().kubeconfig, name=AGENT, ends_with_parent=False)


def _configuration(plane: control_plane.ControlPlane, *, counted: Sequence[str]) -> str:
    """The scheduler's configuration, with the extender that is started for it."""
    extender = _extender()
    extender.start()
    (folder() / _ADDRESS).write_text(f"http://{child_processes.LOOPBACK}:{extender.port}")
    return scheduler_config.partage(
        plane.kubeconfig, port=extender.port, advertised=counted, second_name="t9k-scheduler"
    )
