"""Nodes without an agent, of which only a status tells, through the real kube-scheduler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import making

WHOLE = "nvidia.com/gpu"
PARTAGE = Path(sys.executable).with_name("partage")


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> Iterator[ControlPlane]:
    """A cluster whose nodes report whole cards, if anything."""
    extender.start()
    making.schedule(clean_cluster, extender.port, advertised=(WHOLE,))
    yield clean_cluster
    clean_cluster.stop_scheduler()


def inspected(plane: ControlPlane) -> Any:
    """What ``partage inspect`` says of the cluster."""
    done = subprocess.run(
        [PARTAGE, "inspect", "-o", "json"],
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
        capture_output=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_a_number_that_somebody_patched_is_whole_cards(plane: ControlPlane) -> None:
    """No agent, no labels: as many whole cards are granted, shares are refused with the reason."""
    plane.client.create(objects.node("patched", cards=0))
    amounts = {WHOLE: "1"}
    status = {"status": {"capacity": amounts, "allocatable": amounts}}
    plane.client.patch("Node", "patched", status, subresource="status")

    plane.client.create(objects.pod("whole", {WHOLE: 1}))
    record = making.grant(making.bound(plane, "whole"))
    (share,) = record["containers"][0]["shares"]
    assert (share["index"], share["memory_mib"], share["exclusive"]) == (0, 0, True)
    plane.client.create(objects.pod("share", {making.MEMORY: 1}))
    making.told(plane, "share", "unknown memory, so they are given whole")
    plane.client.create(objects.pod("second", {WHOLE: 1}))
    making.told(plane, "second", "Insufficient nvidia.com/gpu", "another pod has the GPU")
    (node,) = inspected(plane)["nodes"]
    (card,) = node["cards"]
    assert (card["memory_mib"], card["free_mib"]) == (None, None)
    assert [tenant["pod"] for tenant in card["tenants"]] == ["whole"]
