"""Containers of real nodes that have their cards by a claim: held by its share, together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cluster import api, objects
from cluster.node import node as node_module
from cluster.node.node import Node
from partage.core import grants
from partage.dialects import grant_record
from partage.fence.store import tenants
from tests.cluster import claiming, making
from tests.cluster.agents.site import Site

CLAIM = "partage.dev/claim"
ELASTIC_GPU = "egpu-1"
ELASTIC_GPUS = "/apis/elasticgpu.io/v1alpha1/elasticgpus"
SHARE_MIB = 4096


@pytest.fixture(scope="module")
def whole_site(
    nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site that knows the kinds from the start: an API server takes its time to remove them."""
    with claiming.defined(nodes[0].plane):
        made = Site(nodes, tmp_path_factory.mktemp("site"))
        try:
            made.start()
            yield made
            node_module.clear(nodes)
            _clear(made)
        finally:
            made.close()


@pytest.fixture
def elastic_gpu(site: Site) -> Iterator[grants.Share]:
    """The share of an ElasticGPU on the first node, of the claim default/big; nobody has it yet."""
    share = grants.Share(uuid=_uuid(site), index=0, memory_mib=SHARE_MIB)
    _create(site, share)
    yield share
    node_module.clear(site.nodes)
    _clear(site)


def _clear(site: Site) -> None:
    claiming.clear(site.plane)
    making.eventually(lambda: site.client.list_all(claiming.ELASTIC_GPU) == [])


def _uuid(site: Site) -> str:
    node = site.client.get("Node", site.nodes[0].name)
    cards = json.loads(node["metadata"]["annotations"]["partage.dev/cards"])["cards"]
    return str(next(card["uuid"] for card in cards if card["index"] == 0))


def _create(site: Site, share: grants.Share) -> None:
    owner = grants.Pod(f"elasticgpu/{ELASTIC_GPU}", "default", "big")
    on_node = {"key": "metadata.name", "operator": "In", "values": [site.nodes[0].name]}
    body = {
        "apiVersion": "elasticgpu.io/v1alpha1",
        "kind": "ElasticGPU",
        "metadata": {"name": ELASTIC_GPU, "annotations": _record(site, owner, share)},
        "spec": {
            "capacity": {"elasticgpu.io/gpu-memory": f"{share.memory_mib}Mi"},
            "gpuShare": {"gpuName": f"{site.nodes[0].name}-00"},
            "claimRef": {"namespace": "default", "name": "big", "uid": "u"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [on_node]}]}},
        },
    }
    site.client.call("POST", ELASTIC_GPUS, body)


def _record(site: Site, owner: grants.Pod, share: grants.Share, egpu: str = "") -> dict[str, str]:
    named: dict[str, Any] = {"elastic_gpu": egpu} if egpu else {}
    container = grants.ContainerGrant(name="main", shares=(share,), **named)
    dialect = "claims" if egpu else ""
    grant = grants.Grant(
        pod=owner, node=site.nodes[0].name, containers=(container,), dialect=dialect
    )
    return {grant_record.GRANT: grant_record.encode(grant)}


def _bind(site: Site, name: str, share: grants.Share, *, claim: str = "big") -> api.Object:
    """A pod that the extender would have bound."""
    made = objects.running_pod(
        name,
        objects.container("gpu", "hold", "1000", limits={CLAIM: 1}),
        annotations={"elasticgpu.io/egpuc-main": claim},
        schedulerName="nobody",
    )
    pod = site.client.create(made)
    owner = grants.Pod(pod["metadata"]["uid"], "default", name)
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, "annotations": _record(site, owner, share, ELASTIC_GPU)},
        "target": {"apiVersion": "v1", "kind": "Node", "name": site.nodes[0].name},
    }
    site.client.call("POST", api.path("Pod", name, api.DEFAULT, "binding"), binding)
    return pod


def test_two_pods_have_one_quota_together(site: Site, elastic_gpu: grants.Share) -> None:
    """Each holds 1000 MiB of 4096, and a context; neither gets 2000 more while the other lives."""
    root = site.root(site.nodes[0].name)
    for name in ("a", "b"):
        _bind(site, name, elastic_gpu)
    site.running("a", "b")
    # Fences of the test before may stand for a moment: their containers are gone, and are swept up.
    making.eventually(lambda: tenants.names(root) == [f"elasticgpu.{ELASTIC_GPU}"])
    assert site.cards("a") == site.cards("b") == {elastic_gpu.uuid: SHARE_MIB}
    making.eventually(lambda: site.exec("a", "gpu", "try", "2000").returncode != 0)
    site.said("b", "gpu", "try", "500")
    site.gone("a")
    making.eventually(lambda: site.exec("b", "gpu", "try", "2000").returncode == 0)
    site.gone("b")
    making.eventually(lambda: tenants.names(root) == [])


@pytest.mark.parametrize(
    ("claim", "size_mib", "text"),
    [
        ("big", 8192, "it has 4096 MiB and 0 % of card"),
        ("other", SHARE_MIB, "the pod names claim default/other"),
    ],
)
def test_what_differs_keeps_the_container_waiting(
    site: Site, elastic_gpu: grants.Share, claim: str, size_mib: int, text: str
) -> None:
    """With a text in the pod's events; no fence is left."""
    forged = grants.Share(uuid=elastic_gpu.uuid, index=0, memory_mib=size_mib)
    _bind(site, "forger", forged, claim=claim)
    making.told(site.plane, "forger", text)
    assert f"elasticgpu.{ELASTIC_GPU}" not in tenants.names(site.root(site.nodes[0].name))


def test_a_pod_starts_when_its_elastic_gpu_can_be_read(
    site: Site, elastic_gpu: grants.Share
) -> None:
    """It waits while there is none."""
    site.client.call("DELETE", f"{ELASTIC_GPUS}/{ELASTIC_GPU}")
    # The extender has its finalizer on it, and agrees to the end of the object.
    making.eventually(lambda: site.client.list_all(claiming.ELASTIC_GPU) == [])
    _bind(site, "early", elastic_gpu)
    making.told(site.plane, "early", f"ElasticGPU {ELASTIC_GPU} is gone")
    _create(site, elastic_gpu)
    site.running("early")
