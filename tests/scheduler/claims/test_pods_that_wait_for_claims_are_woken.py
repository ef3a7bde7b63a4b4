"""kube-scheduler is told to try again when a claim that pods wait for could be had by now."""

from __future__ import annotations

import msgspec
import pytest

from partage.core import cards, grants
from partage.dialects import grant_record, pods
from partage.dialects.claims import objects
from partage.scheduler.claims import lifecycle
from tests.scheduler.claims import claim_scene, test_claims_step_by_step


@pytest.fixture
def scene() -> claim_scene.Scene:
    """A class, a card, and no claim."""
    return claim_scene.Scene()


@pytest.mark.parametrize("mode", list(objects.BindingMode))
def test_a_claim_that_was_missing_is_there(
    scene: claim_scene.Scene, mode: objects.BindingMode
) -> None:
    """One that waits for its first pod is bound by nothing else than the pod's next try."""
    scene.show_class(egpu_binding_mode=mode)
    assert "there is no ElasticGPUClaim" in scene.waits()
    scene.show_claim()
    assert scene.woken == 1


def test_a_claim_is_bound(scene: claim_scene.Scene) -> None:
    """Also where the answer to the write that said so was lost: the watch brings it."""
    scene.show_claim()
    assert "is not bound yet" in scene.waits()
    scene.show_bound()
    assert scene.woken
    assert isinstance(scene.ask(), grants.Grant)


def test_a_claim_that_was_lost_is_back(scene: claim_scene.Scene) -> None:
    """Before that was written on the claim, or without that its loss ever was."""
    scene.show_bound()
    scene.show_elastic_gpu(record="edited")
    assert "is not bound" in scene.waits()
    scene.show_elastic_gpu()
    assert scene.woken == 1
    assert isinstance(scene.ask(), grants.Grant)


def test_a_claim_was_changed(scene: claim_scene.Scene) -> None:
    """What it asks for now may be there."""
    scene.show_claim()
    scene.waits()
    smaller = pods.Resources(requests={objects.MEMORY: "1Gi"})
    scene.show_claim(spec={"resources": smaller})
    assert scene.woken == 1


def test_a_class_comes_or_begins_to_share(scene: claim_scene.Scene) -> None:
    """A second pod has waited for the end of the first."""
    scene.show_bound()
    assert scene.choose("first", "c")
    assert "is used by pod default/first" in scene.waits("second")
    scene.show_class(shared=True)
    assert scene.woken == 1
    assert isinstance(scene.ask("second"), grants.Grant)


def test_claims_on_different_nodes(scene: claim_scene.Scene) -> None:
    """One of them was made anew."""
    scene.show_bound("a")
    other = cards.Card(uuid="GPU-1", index=0, memory_mib=8192)
    scene.cluster.fleet.set_node(cards.Node(name="n2", cards=(other,)))
    scene.show_bound("b")
    this = scene.store.elastic_gpus.by_name["e-b"]
    moved = msgspec.json.decode(
        msgspec.json.encode(this).replace(b'"n1"', b'"n2"').replace(b"n1-00", b"n2-00"),
        type=objects.ElasticGPU,
    )
    record = moved.metadata.annotations[grant_record.GRANT].replace('"n1"', '"n2"')
    meta = msgspec.structs.replace(moved.metadata, annotations={grant_record.GRANT: record})
    scene.store.elastic_gpus.put(msgspec.structs.replace(moved, metadata=meta))
    assert "are on different nodes" in scene.waits("p", "a", "b")
    scene.show_elastic_gpu("b")
    assert scene.woken == 1


def test_a_pod_gives_up_a_claim_that_another_waits_for(scene: claim_scene.Scene) -> None:
    """It has to wait for another of its claims, and held this one."""
    freed: list[str] = []
    scene.cluster.mirror.freed = freed.append
    scene.show_bound("a")
    scene.show_claim("b")
    assert scene.choose("p", "a")
    scene.waits("q", "a")
    assert not scene.choose("p", "a", "b")
    assert freed == ["n1"]


@pytest.mark.parametrize("reason", ["NoRoom", "WaitForFirstConsumer"])
def test_nobody_is_woken_by_what_helps_nobody(scene: claim_scene.Scene, reason: str) -> None:
    """All pods that were refused would be tried again, each time that an amount changes."""
    scene.show_claim()
    scene.waits()
    for version in range(2, 5):
        condition = objects.Condition(
            type=lifecycle.BOUND, status="False", reason=reason, message=str(version)
        )
        status = objects.ClaimStatus(conditions=(condition,))
        scene.show_claim(version=version, status=status)
        scene.show_class()
        scene.show_claim("other", version=version)
    assert scene.woken == 0


def test_a_claim_that_names_what_is_not_there_yet_takes_it_when_it_is() -> None:
    """And so does one that waits for what any of its class has."""
    story = test_claims_step_by_step.Story()
    story.claim("named", 2, gpu_class="", elasticGPUName="there")
    story.claim("any", 2, gpu_class="")
    story.rest()
    for name in ("there", "other"):
        story.by_hand(name, 2, gpu_class="")
    for _ in range(12):
        story.replica.read_news()
        story.replica.work()
    assert story.said("named") == story.said("any") == ("Bound", "Bound")


def test_a_claim_whose_class_goes_is_told_so_and_goes_on_when_it_is_back() -> None:
    """Also if an object was made for it by then, and without any room that appears."""
    story = test_claims_step_by_step.Story()
    story.claim("full", 8)
    story.claim("other", 8)
    story.rest()
    story.claim("c", 2)
    story.rest()
    path = f"{objects.CLASSES_PATH}/shares"
    gpu_class = story.server.get(path)
    story.server.delete(path)
    story.server.delete(f"{test_claims_step_by_step.CLAIMS}/full")
    story.rest()
    assert story.said("c") == ("Pending", "ClassNotFound")
    story.server.create(objects.CLASSES_PATH, {**gpu_class, "metadata": {"name": "shares"}})
    for _ in range(12):
        story.replica.read_news()
        story.replica.work()
    assert story.said("c") == ("Bound", "Bound")
