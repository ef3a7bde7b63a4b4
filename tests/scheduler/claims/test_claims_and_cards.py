"""What claims see of the cards that they are on: other models, cards that fail, cordons."""

from __future__ import annotations

from typing import Any

import pytest

from partage.core import cards, demands, fleet, grants
from partage.dialects import contract, pods
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_grants, claim_store
from tests.scheduler.claims import claim_server

GROUP = "elasticgpu.io"
SHARE = grants.Share(uuid="GPU-1", index=0, memory_mib=4096, compute_percent=60)


class Story:
    """A store with one card of a model."""

    def __init__(self, model: str = "NVIDIA A100") -> None:
        self.fleet = fleet.standard()
        self.card = cards.Card(uuid="GPU-1", index=0, memory_mib=8192, model=model)
        self.show()
        self.store = claim_store.ClaimStore(self.fleet, settings=contract.Settings)
        self.store.classes.put(_class())

    def show(self, *, cordoned: bool = False, **changed: Any) -> None:
        """The node as it is told now."""
        kept = {name: getattr(self.card, name) for name in self.card.__struct_fields__}
        cordons = {"GPU-1": ""} if cordoned else {}
        card = cards.Card(**kept | changed)
        self.fleet.set_node(cards.Node(name="n1", cards=(card,), cordons=cordons))

    def claim(self, requests: dict[str, pods.Amount], **spec: Any) -> objects.ElasticGPUClaim:
        """A claim that is there."""
        made = objects.ElasticGPUClaim(
            metadata=objects.Metadata(name="c", namespace="default", uid="u1"),
            spec=objects.ClaimSpec(
                resources=pods.Resources(requests=requests),
                elastic_gpu_class_name="shares",
                **spec,
            ),
        )
        self.store.claims.put(made)
        return made

    def spare(self) -> objects.ElasticGPU | None:
        """What the claim could have without that anything is made."""
        view = self.store.claim_view("u1")
        assert view is not None
        return view.spare


@pytest.mark.parametrize(("tflops", "is_met"), [(10, True), (13, False)])
def test_a_claim_for_tflops_takes_what_is_available_and_fast_enough(
    tflops: int, is_met: bool
) -> None:
    """60 percent of an A100 are 11.7 TFLOPS."""
    story = Story()
    story.store.elastic_gpus.put(_elastic_gpu())
    story.claim({f"{GROUP}/tflops": tflops, f"{GROUP}/gpu-memory": "4Gi"})
    assert (story.spare() is not None) == is_met


def test_a_model_whose_speed_nobody_knows_is_not_taken() -> None:
    """However much of it there is."""
    story = Story(model="Simulated")
    story.store.elastic_gpus.put(_elastic_gpu())
    story.claim({f"{GROUP}/tflops": 1, f"{GROUP}/gpu-memory": "1Gi"})
    assert story.spare() is None


def test_what_is_on_a_card_that_failed_is_not_taken() -> None:
    """It is available by its status for a moment yet."""
    story = Story()
    story.store.elastic_gpus.put(_elastic_gpu())
    story.claim({f"{GROUP}/gpu-memory": "4Gi", f"{GROUP}/gpu-core": 60})
    assert story.spare() is not None
    story.show(healthy=False)
    assert story.spare() is None


def test_a_pod_waits_for_a_claim_on_a_cordoned_card() -> None:
    """Otherwise a drained pod would come back to the card at once."""
    story = Story()
    story.store.elastic_gpus.put(_elastic_gpu(claim_uid="u1"))
    story.claim({f"{GROUP}/gpu-memory": "4Gi"}, elastic_gpu_name="e")
    granting = claim_grants.ClaimGrants(story.store, story.fleet)
    pod = pods.Pod(metadata=pods.Metadata(name="p", namespace="default", uid="p1"))
    container = demands.ContainerDemand("main", demands.Demand(claim="default/c"))
    demand = demands.PodDemand(containers=(container,), dialect="elastic")
    assert isinstance(granting.grant(pod, demand), grants.Grant)
    story.show(cordoned=True)
    waits = granting.grant(pod, demand)
    assert isinstance(waits, claim_grants.Waits)
    assert "card 0 of node n1, which is cordoned" in waits.text


def _class() -> objects.ElasticGPUClass:
    return objects.ElasticGPUClass(
        metadata=objects.Metadata(name="shares"), provisioner="elasticgpu.io/gpushare"
    )


def _elastic_gpu(claim_uid: str = "") -> objects.ElasticGPU:
    """As the API server has it once its shares are written: of a claim, or of nobody."""
    stored: dict[str, Any] = {
        "metadata": {"name": "e"},
        "spec": {"elasticGPUClassName": "shares"},
        "status": {"phase": "Available"},
    }
    if claim_uid:
        stored["spec"]["claimRef"] = {"namespace": "default", "name": "c", "uid": claim_uid}
    empty = claim_server.decoded(stored, objects.ElasticGPU)
    grant = grants.Grant(
        pod=objects.owner("e"),
        node="n1",
        containers=(grants.ContainerGrant(name="", shares=(SHARE,)),),
        dialect="elastic",
    )
    claim_server.merge(stored, objects.allocated(empty, grant))
    return claim_server.decoded(stored, objects.ElasticGPU)
