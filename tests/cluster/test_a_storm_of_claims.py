"""Many claims, and an extender that is killed all the while: no share twice, none lost."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import claiming, making

CLAIMS = int(os.environ.get("PARTAGE_STORM_CLAIMS", "1000"))
NODES, CARDS, CARD_MIB = CLAIMS // 40, 4, 16384
KILLS = 8
PATIENCE_S = 600.0


@pytest.fixture
def plane(clean_cluster: ControlPlane) -> Iterator[ControlPlane]:
    """A cluster that knows the kinds."""
    with claiming.defined(clean_cluster):
        yield clean_cluster


@pytest.fixture
def extender(plane: ControlPlane, tmp_path: Path) -> Iterator[extender_process.Extender]:
    """One that is started by the test."""
    made = extender_process.Extender(tmp_path, plane.kubeconfig)
    yield made
    made.close()


@pytest.mark.slow  # ten thousand writes, and the extender is killed all the while
def test_no_share_is_bound_twice_and_none_stays_behind(
    plane: ControlPlane, extender: extender_process.Extender
) -> None:
    """More is claimed than there is; some claims are deleted meanwhile, and all in the end."""
    source = random.Random(7)
    plane.client.create_all(objects.nodes(NODES, cards=CARDS, card_units=CARD_MIB >> 10))
    for policy in ("Delete", "Retain"):
        plane.client.create(claiming.gpu_class(policy.lower(), reclaimPolicy=policy))
    extender.start()
    plane.client.create_all(_claim(number, source) for number in range(CLAIMS))
    for _ in range(KILLS):
        time.sleep(source.uniform(0.3, 2.0))  # a moment that nobody chose
        extender.kill()
        _check(plane)
        for name in source.sample(sorted(_names(plane, claiming.CLAIM)), 10):
            plane.client.delete(claiming.CLAIM, name)
        extender.start()
    making.eventually(lambda: _is_settled(plane), patience_s=PATIENCE_S, why=lambda: _left(plane))
    _check(plane)
    reasons = collections.Counter(map(claiming.reason, plane.client.list_all(claiming.CLAIM)))
    assert reasons["Bound"] > CLAIMS // 3
    assert set(reasons) == {"Bound", "NoRoom"}
    for kind in (claiming.CLAIM, claiming.ELASTIC_GPU):
        for made in plane.client.list_all(kind):
            with contextlib.suppress(api.ApiError):  # the extender deletes, too
                meta = made["metadata"]
                plane.client.delete(kind, meta["name"], meta.get("namespace", ""))
        making.eventually(lambda: not plane.client.list_all(claiming.CLAIM), patience_s=PATIENCE_S)
    making.eventually(
        lambda: not plane.client.list_all(claiming.ELASTIC_GPU), patience_s=PATIENCE_S
    )


def _claim(number: int, source: random.Random) -> api.Object:
    mib, class_name = source.randint(500, 4000), source.choice(["delete", "delete", "retain"])
    return claiming.claim(f"claim-{number}", mib, class_name)


def _check(plane: ControlPlane) -> None:
    """What the objects say at one moment: no card over its memory, no object with two claims."""
    taken: dict[tuple[str, int], int] = collections.Counter()
    for made in plane.client.list_all(claiming.ELASTIC_GPU):
        record = made["metadata"].get("annotations", {}).get("partage.dev/grant")
        if record is None:
            continue
        grant: dict[str, Any] = json.loads(record)
        for share in (s for c in grant["containers"] for s in c["shares"]):
            taken[grant["node"], share["index"]] += share["memory_mib"]
    assert all(mib <= CARD_MIB for mib in taken.values()), taken
    named = [c["spec"].get("elasticGPUName") for c in plane.client.list_all(claiming.CLAIM)]
    bound = [name for name in named if name]
    assert len(bound) == len(set(bound))


def _is_settled(plane: ControlPlane) -> bool:
    claims = plane.client.list_all(claiming.CLAIM)
    return all(
        claiming.reason(claim) in ("Bound", "NoRoom")
        and "deletionTimestamp" not in claim["metadata"]
        for claim in claims
    )


def _left(plane: ControlPlane) -> str:
    return str(collections.Counter(map(claiming.reason, plane.client.list_all(claiming.CLAIM))))


def _names(plane: ControlPlane, kind: str) -> set[str]:
    return {made["metadata"]["name"] for made in plane.client.list_all(kind)}
