"""Whose a process is, its cgroup says: the pod, and the container in it."""

from __future__ import annotations

from typing import Any

import pytest

from partage.agent import process_owners
from partage.agent.containers import cdi
from partage.agent.pods import node_pods
from partage.dialects import pods
from partage.fence import processes

UID = "0f1c2d3e-aaaa-bbbb-cccc-0123456789ab"
OTHER = "ffffffff-aaaa-bbbb-cccc-0123456789ab"
MAIN, SIDE = "a" * 64, "b" * 64


def process(*cgroups: str) -> processes.Facts:
    """One that is in these cgroups."""
    return processes.Facts(pid=40, started_ticks=1, inner_pid=7, cgroups=cgroups)


def pod(uid: str = UID, **containers: str) -> node_pods.Pod:
    """One whose containers have these IDs, as far as the kubelet has said."""
    statuses = tuple(
        node_pods.ContainerStatus(name=name, container_id=f"containerd://{container_id}")
        for name, container_id in containers.items()
    )
    return node_pods.Pod(
        metadata=pods.Metadata(uid=uid), status=node_pods.Status(container_statuses=statuses)
    )


def started(name: str = "main", uid: str = UID, tenant: str | None = None) -> cdi.Started:
    """A container that was given cards, behind a fence if nothing is said."""
    terms: dict[str, Any] = {"resource": "r", "device": f"{uid}-{name}", "grant": ""}
    fence = f"{uid}.{name}" if tenant is None else tenant
    return cdi.Started(uid=uid, container=name, fence="hook", tenant=fence, **terms)


def whose(facts: processes.Facts, running: list[node_pods.Pod], *began: cdi.Started) -> str:
    """The tenant of a process."""
    return process_owners.owners({pod.metadata.uid: pod for pod in running}, began).whose(facts)


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/{MAIN}",
        f"/kubepods/pod{UID}/{MAIN}/of/its/own",
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{MAIN}.scope",
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/crio-{MAIN}.scope/container",
        f"/../../pod{UID}/{MAIN}",
        f"/kubepods/pod{OTHER}/{'c' * 64}/node/kubepods/pod{UID}/{MAIN}",
        f"/kubepods/pod{UID}/{MAIN}/kubepods/pod{OTHER}/{'c' * 64}",
    ],
    ids=["cgroupfs", "below", "systemd", "cri-o", "from-a-pod", "node-in-a-pod", "pretended"],
)
def test_the_cgroup_names_pod_and_container(path: str) -> None:
    """In the forms that kubelets write, whatever is around it or made inside."""
    tenant = whose(process("/", path), [pod(main=MAIN)], started())
    assert tenant == f"{UID}.main"


def test_containers_of_a_pod_are_told_apart() -> None:
    """By their IDs, which the kubelet tells."""
    running = [pod(main=MAIN, side=SIDE)]
    began = started(), started("side")
    assert whose(process(f"/pod{UID}/{SIDE}"), running, *began) == f"{UID}.side"
    assert whose(process(f"/pod{UID}/{MAIN}"), running, *began) == f"{UID}.main"


def test_until_the_kubelet_tells_only_a_container_that_has_cards_alone_is_known() -> None:
    """Nobody is taken for another."""
    of_main = process(f"/pod{UID}/{MAIN}")
    assert whose(of_main, [pod()], started()) == f"{UID}.main"
    assert whose(of_main, [pod()], started(), started("side")) == ""
    assert whose(of_main, [pod()], started(), started("side", tenant="")) == ""


def test_a_container_with_a_card_of_its_own_is_nobodys_tenant() -> None:
    """There is no fence around it."""
    running = [pod(main=MAIN, side=SIDE)]
    began = started(), started("side", tenant="")
    assert whose(process(f"/pod{UID}/{SIDE}"), running, *began) == ""


@pytest.mark.parametrize(
    "path", ["/", "/user.slice", f"/pod{OTHER}/{MAIN}", f"/pod{UID}", f"/pod{UID}/short"]
)
def test_processes_of_others_are_nobodys(path: str) -> None:
    """A shell of the node, a pod without cards, what has no container's name."""
    assert whose(process(path), [pod(main=MAIN)], started()) == ""


def with_cards(uid: str) -> node_pods.Pod:
    """A pod that asks for a card, whoever gives it."""
    asks = pods.Resources(limits={"nvidia.com/gpu": 1})
    container = node_pods.Container(name="main", resources=asks)
    return node_pods.Pod(metadata=pods.Metadata(uid=uid), spec=node_pods.Spec((container,)))


def is_foreign(path: str, *running: node_pods.Pod, own: str = "/") -> bool:
    """Whether a process is, as an agent judges whose own cgroup is ``own``."""
    by_uid = {pod.metadata.uid: pod for pod in running}
    return process_owners.owners(by_uid, (), (own,)).is_foreign(process("/", path))


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/", "/"),
        ("/user.slice/user-1000.slice", "/"),
        ("/docker/" + MAIN, "/"),
        ("/../../../system.slice/gdm.service", "/"),
        (f"/kubepods/pod{OTHER}/{MAIN}/user.slice", f"/kubepods/pod{OTHER}/{MAIN}"),
        (f"/kubepods/pod{OTHER}/{MAIN}/sshd", f"/kubepods/pod{OTHER}/{MAIN}/kubepods/pod{UID}/x"),
    ],
    ids=["root", "user", "docker", "from-a-pod", "node-in-a-pod", "agent-in-a-pod-there"],
)
def test_a_process_in_no_pod_is_foreign(path: str, own: str) -> None:
    """Whatever the node itself is in."""
    assert is_foreign(path, with_cards(UID), own=own)


def test_a_process_of_a_pod_without_cards_is_foreign() -> None:
    """A privileged pod sees all cards of its node, and nobody counts what it takes."""
    assert is_foreign(f"/kubepods/pod{UID}/{MAIN}", pod(main=MAIN))


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/burstable/pod{UID}/{MAIN}",
        f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{MAIN}.scope",
        f"/../../pod{UID}/{MAIN}",
        f"/kubepods/pod{UID}/{MAIN}/kubepods/pod{OTHER}/{SIDE}",
    ],
    ids=["cgroupfs", "systemd", "from-a-pod", "pretended"],
)
def test_a_process_of_a_pod_with_cards_is_not_foreign(path: str) -> None:
    """Its grant is counted, a vendor's whole card among it."""
    assert not is_foreign(path, with_cards(UID), pod(OTHER))


@pytest.mark.parametrize(
    "path",
    [
        f"/kubepods/pod{OTHER}/{MAIN}",
        f"/kubepods/pod{UID}",
        f"/kubepods/burstable/pod{'0f' * 16}/{MAIN}",
        "/kubepods.slice/kubepods-besteffort.slice",
    ],
    ids=["unknown-pod", "no-container", "static-pod", "no-pod"],
)
def test_of_what_is_in_no_pod_that_is_known_nothing_is_proven(path: str) -> None:
    """It has come or gone in this moment, or the API server has another uid for it."""
    assert not is_foreign(path, pod(main=MAIN))


def test_a_pod_that_is_gone_has_no_processes() -> None:
    """What is left of it is ending, and is not accused any more."""
    assert whose(process(f"/pod{UID}/{MAIN}"), [], started()) == ""
