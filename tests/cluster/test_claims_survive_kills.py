"""The life of a claim on a real API server, whose controller dies at each of its writes.

One card of 16 GiB, and claims for 10: if a controller forgets what another one has sent, both
claims get a share.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.faults import fault_proxy, faults
from cluster.partage_processes import extender_process
from tests.cluster import claiming, installing, making, service_accounts

CARD_GIB, CLAIM_MIB = 16, 10 << 10
LEAST_WRITES = 8  # of one life; a test that strikes fewer has not struck what it should
SHARES_OF_CLAIMS = faults.Requests("patch", "elasticgpus")


class _Writes(faults.Requests):
    """All that changes claims, and what they are bound to."""

    def include(self, request: faults.Request) -> bool:
        changes = request.verb in ("create", "patch", "delete")
        return changes and request.resource.startswith("elasticgpu")


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> Iterator[None]:
    """The kinds are there, as long as these tests last."""
    with claiming.defined(control_plane):
        yield


@pytest.fixture
def plane(clean_cluster: ControlPlane, defined: None) -> ControlPlane:
    """With one card, and a class."""
    claiming.clear(clean_cluster)
    clean_cluster.client.create(objects.node("n1", cards=1, card_units=CARD_GIB))
    clean_cluster.client.create(claiming.gpu_class())
    return clean_cluster


@pytest.fixture
def between(plane: ControlPlane, tmp_path: Path) -> Iterator[fault_proxy.FaultProxy]:
    """What the extender's writes pass."""
    with fault_proxy.FaultProxy(plane, tmp_path) as started:
        yield started


@pytest.fixture
def behind(between: fault_proxy.FaultProxy, tmp_path: Path) -> Iterator[extender_process.Extender]:
    """An extender that reaches the API server through the proxy."""
    extender = extender_process.Extender(tmp_path, between.kubeconfig)
    extender.start()
    yield extender
    extender.close()


@pytest.mark.parametrize("strike", [faults.hold_back, faults.swallow], ids=["late", "unanswered"])
def test_a_claim_outlives_its_controller_at_every_step(
    plane: ControlPlane,
    between: fault_proxy.FaultProxy,
    behind: extender_process.Extender,
    strike: Callable[..., faults.Fault],
) -> None:
    """The write on which it dies happens after the next one has begun, or happened unseen."""
    for step in itertools.count(1):
        fault = between.add(strike(_Writes(), one_in=step, times=1))
        _life(plane, lambda fault=fault: _die_of(behind, fault))  # type: ignore[misc]
        if not fault.hits:
            break
        fault.end()
    assert step > LEAST_WRITES


def _die_of(extender: extender_process.Extender, fault: faults.Fault) -> None:
    """Kill the controller once it was struck, and let the write through when another one leads."""
    if fault.hits and not fault.ended.done():
        extender.kill()
        extender.start()
        fault.end()


def _life(plane: ControlPlane, between_looks: Callable[[], None] = lambda: None) -> None:
    """Two claims want the card: one is bound, the other is told why not; then nothing is left."""

    def until(check: Callable[[], bool]) -> None:
        def look() -> bool:
            between_looks()
            assert _taken_mib(plane) <= CARD_GIB << 10
            return check()

        making.eventually(look, why=lambda: str(_claims(plane)))

    for name in ("a", "b"):
        plane.client.create(claiming.claim(name, CLAIM_MIB))
    until(lambda: _is_shared_out(plane))
    [bound] = [claim for claim in _claims(plane) if claiming.reason(claim) == "Bound"]
    until(lambda: _phases(plane) == ["Bound", "Pending"])
    assert _taken_mib(plane) == CLAIM_MIB
    plane.client.delete(claiming.CLAIM, bound["metadata"]["name"])
    until(lambda: list(map(claiming.reason, _claims(plane))) == ["Bound"])
    plane.client.delete(claiming.CLAIM, _claims(plane)[0]["metadata"]["name"])
    until(lambda: not _claims(plane) and not _phases(plane))


def test_a_leader_that_slept_does_no_harm(
    plane: ControlPlane, between: fault_proxy.FaultProxy, tmp_path: Path
) -> None:
    """It is stopped with shares on their way, and wakes up when another one has given the card."""
    replicas = [
        extender_process.Extender(
            tmp_path, between.kubeconfig, name=f"extender-{number}", options=("--leader-elect",)
        )
        for number in range(2)
    ]
    late = between.add(faults.hold_back(SHARES_OF_CLAIMS, times=1))
    try:
        replicas[0].start()
        replicas[1].start(ready=False)
        plane.client.create(claiming.claim("a", CLAIM_MIB))
        making.eventually(lambda: late.hits)
        _signal(replicas[0], signal.SIGSTOP)
        plane.client.create(claiming.claim("b", CLAIM_MIB))
        making.eventually(lambda: _is_shared_out(plane))
        late.end()
        _signal(replicas[0], signal.SIGCONT)
        making.eventually(lambda: between.count(SHARES_OF_CLAIMS, server_status=409))
        assert _is_shared_out(plane)
        assert _taken_mib(plane) == CLAIM_MIB
    finally:
        for replica in replicas:
            replica.close()


def test_the_rights_of_the_manifest_are_enough(plane: ControlPlane, tmp_path: Path) -> None:
    """For the whole life of a claim."""
    installing.apply(plane, installing.manifests("extender.yaml"))
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(service_accounts.kubeconfig(plane, "partage-extender"))
    extender = extender_process.Extender(tmp_path, kubeconfig)
    try:
        extender.start()
        _life(plane)
        assert "forbidden" not in extender.log(lines=1000)
    finally:
        extender.close()


def _signal(extender: extender_process.Extender, number: signal.Signals) -> None:
    assert extender.pid is not None
    os.kill(extender.pid, number)


def _is_shared_out(plane: ControlPlane) -> bool:
    return sorted(map(claiming.reason, _claims(plane))) == ["Bound", "NoRoom"]


def _claims(plane: ControlPlane) -> list[api.Object]:
    return plane.client.list_all(claiming.CLAIM)


def _phases(plane: ControlPlane) -> list[str]:
    made = plane.client.list_all(claiming.ELASTIC_GPU)
    return sorted(this.get("status", {}).get("phase", "") for this in made)


def _taken_mib(plane: ControlPlane) -> int:
    """What the records say that is taken of the card."""
    made = plane.client.list_all(claiming.ELASTIC_GPU)
    texts = [this["metadata"].get("annotations", {}).get("partage.dev/grant") for this in made]
    granted = [json.loads(text) for text in texts if text is not None]
    shares = [s for grant in granted for c in grant["containers"] for s in c["shares"]]
    return sum(share["memory_mib"] for share in shares)
