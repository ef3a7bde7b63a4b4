"""The cluster of this user: the one that stays up until it is taken down.

``make cluster`` brings it up: a control plane with its controllers, some nodes with cards, real
ones with Partage's agent or objects alone, and Partage's extender behind the scheduler. With a
network nothing of Partage runs: it can be installed there as on every cluster, in pods. The cluster
lives in the cache folder, so that every checkout finds the same one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cluster import child_processes, locks, objects
from cluster.control_plane import control_plane, scheduler_config
from cluster.network import network
from cluster.node import node, node_settings
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
    running: dict[str, int | None] = {**_plane().pids(), EXTENDER: _extender().pid}
    for real_node in real_nodes():
        programs = {**real_node.pids(), AGENT: _agent(real_node).pid}
        running |= {program_on(name, real_node): pid for name, pid in programs.items()}
    return {name: pid for name, pid in running.items() if pid is not None}


def real_nodes() -> list[node.Node]:
    """The nodes that have a kubelet."""
    numbers = sorted(int(path.name) for path in (folder() / _NODES).glob("*"))
    return [_node(number) for number in numbers]


def is_networked() -> bool:
    """Whether its pods have a network, and Partage is not part of it."""
    return (folder() / control_plane.NETWORK).exists()


def names() -> list[str]:
    """All programs that the cluster has while it is complete."""
    partage = not is_networked()
    on_nodes = [
        program_on(name, real_node)
        for real_node in real_nodes()
        for name in (*real_node.programs, *([AGENT] if partage and real_node.has_cards else []))
    ]
    return [*_plane().names(), *([EXTENDER] if partage else []), *on_nodes]


def program_on(name: str, where: node.Node) -> str:
    """What a program of a node is called among those of the cluster."""
    return f"{name} {where.name}"


def up(*, nodes: int, kubelets: int, cards: int, card_gib: int, networked: bool) -> bool:
    """Bring the cluster up; False if it was up already."""
    kubernetes_build.ensure()
    if kubelets:
        node.check_machine()
        kubernetes_build.ensure_runc()
    if networked:
        network.check_machine()
        kubernetes_build.ensure_kube_proxy()
        kubernetes_build.ensure_coredns()
    with locks.exclusive(folder().with_name("cluster.lock"), on_wait=lambda: None):
        if pids():
            return False
        _up(nodes, kubelets, cards, card_gib, networked)
        return True


def down() -> None:
    """Take the cluster down, and remove all it kept."""
    _stop()
    shutil.rmtree(folder(), ignore_errors=True)


def _up(nodes: int, kubelets: int, cards: int, card_gib: int, networked: bool) -> None:
    """Bring the cluster up; if that fails, nothing is left of it but the logs."""
    shutil.rmtree(folder(), ignore_errors=True)  # of a cluster that went down with the machine
    plane = _plane(networked=networked).start()
    try:
        plane.client.create_all(objects.nodes(nodes, cards=cards, card_units=card_gib))
        form = f"{cards}x{card_gib}GiB" if cards else ""
        started = [_node(number + 1, plane, form) for number in range(kubelets)]
        node.start_all(started)
        if networked:
            plane.client.create(objects.runtime_class(node_settings.RUNTIME_CLASS))
            plane.start_scheduler()
        else:
            _start_partage(plane, started)
    except BaseException:
        _stop()
        raise
    finally:
        plane.client.close()


def _start_partage(plane: control_plane.ControlPlane, started: Sequence[node.Node]) -> None:
    for real_node in started:
        if real_node.has_cards:
            _agent(real_node).start()
    plane.start_scheduler(_configuration(plane, counted=_counted(len(started))))


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


def _plane(*, networked: bool | None = None) -> control_plane.ControlPlane:
    """The control plane; unless ``networked`` says it, it has a network if it was started so."""
    return control_plane.ControlPlane(
        folder(),
        controllers=True,
        networked=is_networked() if networked is None else networked,
        ends_with_parent=False,
    )


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
