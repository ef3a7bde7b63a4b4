"""Definitions of claims that are removed while an extender runs: all other pods go on."""

from __future__ import annotations

from pathlib import Path

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import claiming, making


def test_the_next_leader_does_not_wait_for_them(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """It has to read all again, and of claims there is nothing to read."""
    replicas = [
        extender_process.Extender(
            tmp_path,
            clean_cluster.kubeconfig,
            name=f"extender-{number}",
            options=("--leader-elect",),
        )
        for number in range(2)
    ]
    clean_cluster.client.create(objects.node("n1", cards=1, card_units=16))
    try:
        with claiming.defined(clean_cluster):
            replicas[0].start()
            replicas[1].start(ready=False)
            making.eventually(lambda: "claims of Elastic GPU are served" in replicas[1].log())
        replicas[0].kill()
        making.eventually(replicas[1].is_ready, patience_s=90.0, why=replicas[1].log)
    finally:
        for replica in replicas:
            replica.close()
