"""A leader that is merely slow, or whose API server is, does not lose the lease back and forth."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import fault_proxy, faults
from cluster.partage_processes import extender_process
from tests.cluster import making
from tests.cluster.making import MEMORY

LEASE = "partage-slow"
RENEWALS = faults.Requests("update", "leases")  # by the leader
LOOKS = faults.Requests("get", "leases")  # by the other
SETTINGS = f'[leader]\nelect = true\nname = "{LEASE}"\nlease_s = 10\nrenew_s = 1\n'


@pytest.fixture
def between(clean_cluster: ControlPlane, tmp_path: Path) -> Iterator[fault_proxy.FaultProxy]:
    """A proxy in front of the API server."""
    with fault_proxy.FaultProxy(clean_cluster, tmp_path) as started:
        yield started


@pytest.fixture
def replicas(
    clean_cluster: ControlPlane, between: fault_proxy.FaultProxy, tmp_path: Path
) -> Iterator[list[extender_process.Extender]]:
    """Two replicas, of which the first leads."""
    config = tmp_path / "extender.toml"
    config.write_text(SETTINGS)
    both = [
        extender_process.Extender(
            tmp_path, between.kubeconfig, name=f"replica-{i}", options=("--config", str(config))
        )
        for i in range(2)
    ]
    both[0].start()
    both[1].start(ready=False)
    yield both
    clean_cluster.stop_scheduler()
    for replica in both:
        replica.close()


def _changes_of_holder(plane: ControlPlane) -> int:
    spec = plane.client.get("Lease", LEASE, "kube-system")["spec"]
    return int(spec.get("leaseTransitions") or 0)


def test_slow_answers_to_everything_change_no_leader(
    clean_cluster: ControlPlane,
    between: fault_proxy.FaultProxy,
    replicas: list[extender_process.Extender],
) -> None:
    """Renewals take two seconds, Bindings longer than their time-out, and pods keep coming."""
    plane = clean_cluster
    plane.client.create(objects.node("n1", cards=4, card_units=80))
    making.schedule(plane, replicas[0].port)
    before = _changes_of_holder(plane)
    between.add(faults.delay(RENEWALS, 2.0))
    between.add(faults.delay(LOOKS, 2.0))
    slow = between.add(faults.delay(faults.BINDINGS, 4.0))
    renewals = between.count(RENEWALS, client_status=200)
    plane.client.create_all(objects.pod(f"p{i}", {MEMORY: 1}) for i in range(60))

    def five_renewals() -> bool:  # three seconds each: together longer than the lease
        assert replicas[0].is_ready()
        assert not replicas[1].is_ready()
        return between.count(RENEWALS, client_status=200) >= renewals + 5

    making.eventually(five_renewals)
    slow.end()
    between.end_all()
    making.eventually(lambda: all(p["spec"].get("nodeName") for p in plane.client.list_all("Pod")))
    assert _changes_of_holder(plane) == before


def test_a_leader_that_stands_still_for_a_while_leads_on(
    clean_cluster: ControlPlane,
    between: fault_proxy.FaultProxy,
    replicas: list[extender_process.Extender],
) -> None:
    """Shorter than its lease, while the other looks at it once a second."""
    before = _changes_of_holder(clean_cluster)
    pid = replicas[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    looks = between.count(LOOKS)
    try:
        making.eventually(lambda: between.count(LOOKS) >= looks + 5, patience_s=8)
    finally:
        os.kill(pid, signal.SIGCONT)
    making.eventually(replicas[0].is_ready, patience_s=5)
    assert _changes_of_holder(clean_cluster) == before
