"""Totals of namespaces on a real API server and scheduler; and that ResourceQuota works beside."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from partage.core import cards
from partage.dialects import nodes
from tests.cluster import making
from tests.cluster.making import MEMORY

LAB = "team-a"
QGPU = "tke.cloud.tencent.com/qgpu"
ADVERTISED = (MEMORY, objects.COUNT, f"{QGPU}-core", f"{QGPU}-memory")


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> Iterator[ControlPlane]:
    """Two nodes of four cards of 16 GiB, and a namespace that may have 24 GiB of them."""
    installed = clean_cluster
    annotations = {"partage.dev/most-memory": "24Gi"}
    installed.client.create(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": LAB, "annotations": annotations},
        }
    )
    extender.start()
    making.schedule(installed, extender.port, advertised=ADVERTISED)
    for name in ("n1", "n2"):
        installed.client.create(_node(name))
    yield installed
    installed.stop_scheduler()
    _remove(installed)


def _remove(plane: ControlPlane) -> None:
    """Nobody finishes the deletion of a namespace here but us."""
    plane.client.clear()
    plane.client.delete("Namespace", LAB)
    gone = plane.client.get("Namespace", LAB)
    gone["spec"]["finalizers"] = []
    plane.client.call("PUT", f"/api/v1/namespaces/{LAB}/finalize", gone)


def _node(name: str) -> api.Object:
    named = [cards.Card(uuid=f"GPU-{name}-{i}", index=i, memory_mib=16384) for i in range(4)]
    return objects.node(
        name,
        cards=4,
        card_units=16,
        resources={f"{QGPU}-core": 400, f"{QGPU}-memory": 64},
        annotations={nodes.CARDS: nodes.encode(named)},
    )


def _create(
    plane: ControlPlane, name: str, limits: Mapping[str, str | int], namespace: str = LAB
) -> None:
    plane.client.create(objects.pod(name, limits, namespace=namespace))


def _bound(plane: ControlPlane, name: str) -> bool:
    return bool(plane.client.get("Pod", name, LAB)["spec"].get("nodeName"))


def _events(plane: ControlPlane, name: str) -> list[str]:
    events = plane.client.list_all("Event", LAB)
    return [event["message"] for event in events if event["involvedObject"]["name"] == name]


def _run(plane: ControlPlane, *arguments: str) -> str:
    program = Path(sys.executable).with_name("partage")
    environ = {**os.environ, "KUBECONFIG": str(plane.kubeconfig)}
    done = subprocess.run(
        [program, *arguments], env=environ, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout


def _fill(plane: ControlPlane) -> None:
    """Twenty of the 24 GiB, asked for in two dialects."""
    _create(plane, "shared", {MEMORY: 12})
    _create(plane, "slice", {f"{QGPU}-core": 20, f"{QGPU}-memory": 8})
    making.eventually(lambda: _bound(plane, "shared") and _bound(plane, "slice"))


TEXT = "namespace team-a may have 24 GiB of card memory and has 20 GiB; this pod asks for 6 GiB"


@pytest.mark.parametrize("how", ["a pod is deleted", "the total is raised"])
def test_two_dialects_share_one_total(
    plane: ControlPlane, extender: extender_process.Extender, how: str
) -> None:
    """The pod over it waits with the numbers, and is bound within seconds when it may be."""
    _fill(plane)
    _create(plane, "waits", {MEMORY: 6})
    making.eventually(
        lambda: [said for said in _events(plane, "waits") if f"2 {TEXT}" in said],
        why=lambda: str(_events(plane, "waits")),
    )
    _create(plane, "elsewhere", {MEMORY: 6}, namespace=api.DEFAULT)
    making.bound(plane, "elsewhere")
    assert not _bound(plane, "waits")

    assert f"team-a/waits: not now: {TEXT}; " in _run(plane, "explain", "-n", LAB, "waits")
    assert "\nteam-a     2      20480/24576  20%\n" in _run(plane, "inspect")
    label = f'{{namespace="{LAB}"}}'
    assert extender.metric(f"partage_namespace_memory_bytes{label}") == 20 << 30
    assert extender.metric(f"partage_namespace_most_memory_bytes{label}") == 24 << 30
    assert extender.metric(f"partage_namespace_cards{label}") == 2

    began = time.monotonic()
    if how == "a pod is deleted":
        plane.client.delete("Pod", "slice", LAB, grace_seconds=0)
    else:
        raised = {"metadata": {"annotations": {"partage.dev/most-memory": "26Gi"}}}
        plane.client.patch("Namespace", LAB, raised)
    making.eventually(lambda: _bound(plane, "waits"), why=lambda: str(_events(plane, "waits")))
    assert time.monotonic() - began < 20  # kube-scheduler by itself looks again after minutes


def test_a_restart_knows_what_the_namespace_has(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """Killed and started anew, it refuses what it refused before."""
    _fill(plane)
    extender.kill()
    extender.start()
    _create(plane, "waits", {MEMORY: 6})
    making.eventually(
        lambda: [said for said in _events(plane, "waits") if TEXT in said],
        why=lambda: str(_events(plane, "waits")),
    )
    _create(plane, "fits", {MEMORY: 4})
    making.eventually(lambda: _bound(plane, "fits"))
    assert not _bound(plane, "waits")


def test_a_burst_never_exceeds_the_total(plane: ControlPlane) -> None:
    """Thirty pods at once for room for eight; kube-scheduler filters and binds side by side."""
    plane.client.create_all(objects.pod(f"p{i}", {MEMORY: 3}, namespace=LAB) for i in range(30))
    names = [f"p{i}" for i in range(30)]
    making.eventually(lambda: sum(_bound(plane, name) for name in names) >= 8)
    making.eventually(lambda: all(_bound(plane, name) or _events(plane, name) for name in names))
    assert sum(_bound(plane, name) for name in names) == 8


def test_a_slip_closes_the_namespace_until_it_is_repaired(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """The pod says what is wrong with its namespace, and goes on by itself afterwards."""
    slip = {"metadata": {"annotations": {"partage.dev/most-memory": "24GB"}}}
    plane.client.patch("Namespace", LAB, slip)
    making.eventually(lambda: extender.metric("partage_problems") > 0)
    _create(plane, "waits", {MEMORY: 1})
    said = "namespace team-a gets no more cards: partage.dev/most-memory: '24GB' is not a quantity"
    making.eventually(lambda: any(said in text for text in _events(plane, "waits")))
    repaired = {"metadata": {"annotations": {"partage.dev/most-memory": "24G"}}}
    plane.client.patch("Namespace", LAB, repaired)
    making.eventually(lambda: _bound(plane, "waits"))


def test_quotas_by_name_work_as_ever(programs: Path, tmp_path: Path) -> None:
    """ResourceQuota on a dialect's resource: Kubernetes itself refuses the pod that is too much."""
    with ControlPlane(tmp_path, controllers=True) as plane:
        making.eventually(lambda: plane.client.list_all("ServiceAccount", api.DEFAULT))
        hard = {f"requests.{MEMORY}": "12", "requests.partage.dev/memory-mib": "4096"}
        plane.client.create(
            {
                "apiVersion": "v1",
                "kind": "ResourceQuota",
                "metadata": {"name": "gpus", "namespace": api.DEFAULT},
                "spec": {"hard": hard},
            }
        )
        making.eventually(lambda: _quota(plane).get("hard") == hard)
        plane.client.create(objects.pod("first", {MEMORY: 8}))
        plane.client.create(objects.pod("ours", {"partage.dev/memory-mib": 4096}))
        for name, limits in (
            ("second", {MEMORY: 5}),
            ("third", {"partage.dev/memory-mib": 1}),
        ):
            with pytest.raises(api.ApiError, match="exceeded quota: gpus"):
                plane.client.create(objects.pod(name, limits))
        plane.client.create(objects.pod("fits", {MEMORY: 4}))
        used = {f"requests.{MEMORY}": "12", "requests.partage.dev/memory-mib": "4096"}
        making.eventually(lambda: _quota(plane)["used"] == used)


def _quota(plane: ControlPlane) -> dict[str, dict[str, str]]:
    status: dict[str, dict[str, str]] = plane.client.get("ResourceQuota", "gpus").get("status", {})
    return status
