"""Definitions of claims that are removed or installed while an extender runs."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from partage.core import grants
from partage.dialects import node_readings, nodes
from partage.dialects.claims import objects as claim_objects
from tests.cluster import claiming, making

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
NAME = "partage-extender"
SERVED = "claims of Elastic GPU are served"


def test_the_next_leader_does_not_wait_for_them(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """It has to read all again, and of claims there is nothing to read; other pods go on."""
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
            making.eventually(lambda: SERVED in replicas[1].log())
        replicas[0].kill()
        making.eventually(replicas[1].is_ready, patience_s=90.0, why=replicas[1].log)
    finally:
        for replica in replicas:
            replica.close()


def test_the_next_leader_looks_for_them_before_it_decides(
    clean_cluster: ControlPlane, tmp_path: Path
) -> None:
    """By itself it looks once a minute, and would give away what ElasticGPUs hold until then."""
    plane = clean_cluster
    plane.client.create(objects.node("n1", cards=1, card_units=16))
    _lead(plane, "somebody")
    replica = extender_process.Extender(tmp_path, plane.kubeconfig, options=("--leader-elect",))
    try:
        replica.start(ready=False)
        making.eventually(lambda: "read 1 nodes" in replica.log())
        with claiming.defined(plane):
            plane.client.create(_whole_card(plane))
            _lead(plane, "")
            making.eventually(replica.is_ready, why=replica.log)
            assert SERVED not in replica.log(), "it has looked by itself, so nothing was shown"
            pod = objects.pod("p", {making.MEMORY: 16})
            pod["metadata"]["uid"] = "uid-p"
            answer = replica.post("/scheduler/filter", {"Pod": pod, "NodeNames": ["n1"]})
            assert not answer["NodeNames"]
    finally:
        replica.close()


def _lead(plane: ControlPlane, holder: str) -> None:
    """Somebody has the lease for an hour, or has given it back."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 3600 if holder else 1}
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME},
        "spec": spec,
    }
    with contextlib.suppress(api.ApiError):  # there was none
        plane.client.call("DELETE", f"{LEASES}/{NAME}")
    plane.client.call("POST", LEASES, body)


def _whole_card(plane: ControlPlane) -> api.Object:
    """An ElasticGPU that has all of the only card, as another replica would have written it."""
    name = "taken"
    node = msgspec.convert(plane.client.get("Node", "n1"), nodes.Node)
    [card] = node_readings.read(node).node.cards
    whole = grants.Share(
        uuid=card.uuid, index=card.index, memory_mib=card.memory_mib, exclusive=True
    )
    container = grants.ContainerGrant(name="", shares=(whole,))
    owner = claim_objects.owner(name)
    grant = grants.Grant(pod=owner, node="n1", containers=(container,), dialect="elastic")
    written = claim_objects.allocated(claim_objects.ElasticGPU(), grant)
    made = claiming.made(claiming.ELASTIC_GPU, name, spec=written["spec"])
    made["metadata"] |= written["metadata"]
    return made
