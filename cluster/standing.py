"""Standing: the one cluster of this user that stays up until it is taken down.

``make cluster`` brings it up: a control plane with its controllers, some nodes with cards, real
ones or objects alone, and Partage's extender behind the scheduler. It lives in the cache folder, so
that every checkout finds the same one.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cluster import (
    building,
    control_plane,
    extending,
    locking,
    node,
    objects,
    processes,
    scheduling,
)

EXTENDER = "extender"
_ADDRESS = "address"  # a file
_NODES = "nodes"  # a folder, with one for each real node


def folder() -> Path:
    """Where the cluster keeps its state."""
    return building.cache_folder() / "cluster"


def kubectl() -> Path:
    """The kubectl of the cluster's version."""
    return building.programs_folder() / "kubectl"


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
    extender = _extender().pid
    found = _plane().pids() | ({} if extender is None else {EXTENDER: extender})
    for each in real_nodes():
        found |= {program_on(name, each): pid for name, pid in each.pids().items()}
    return found


def real_nodes() -> list[node.Node]:
    """The nodes that have a kubelet."""
    numbers = sorted(int(path.name) for path in (folder() / _NODES).glob("*"))
    return [_node(number) for number in numbers]


def names() -> list[str]:
    """All programs that the cluster has while it is complete."""
    on_nodes = [program_on(name, each) for each in real_nodes() for name in node.PROGRAMS]
    return [*control_plane.NAMES, EXTENDER, *on_nodes]


def program_on(name: str, where: node.Node) -> str:
    """What a program of a node is called among those of the cluster."""
    return f"{name} {where.name}"


def up(*, nodes: int, kubelets: int, cards: int, card_gib: int) -> bool:
    """Bring the cluster up; False if it was up already."""
    building.ensure()
    if kubelets:
        node.check_machine()
        building.ensure_runc()
    with locking.exclusive(folder().with_name("cluster.lock"), on_wait=lambda: None):
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
        node.start_all([_node(number + 1, plane, form) for number in range(kubelets)])
        plane.start_scheduler(_configuration(plane))
    except BaseException:
        _stop()
        raise
    finally:
        plane.client.close()


def _stop() -> None:
    _extender().stop()
    for each in real_nodes():
        each.stop()
    _plane().stop()


def _plane() -> control_plane.ControlPlane:
    return control_plane.ControlPlane(folder(), controllers=True, leashed=False)


def _node(
    number: int, plane: control_plane.ControlPlane | None = None, cards: str = ""
) -> node.Node:
    """A node; the control plane and the cards matter only to one that is to be started."""
    where = folder() / _NODES / str(number)
    return node.Node(plane or _plane(), where, number, cards=cards, leashed=False)


def _extender() -> extending.Extender:
    plane = _plane()
    return extending.Extender(folder() / "run", plane.kubeconfig, name=EXTENDER, leashed=False)


def _configuration(plane: control_plane.ControlPlane) -> str:
    """The scheduler's configuration, with the extender that is started for it."""
    extender = _extender()
    extender.start()
    (folder() / _ADDRESS).write_text(f"http://{processes.LOOPBACK}:{extender.port}")
    advertised = (objects.MEMORY, objects.COUNT)
    return scheduling.partage(
        plane.kubeconfig, port=extender.port, advertised=advertised, second_name="t9k-scheduler"
    )
