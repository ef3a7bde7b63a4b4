"""kube-scheduler is told to try again when a claim that pods wait for could be had by now."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from partage.core import cards, demands, grants
from partage.dialects import grant_record, pods
from partage.dialects.claims import objects
from partage.scheduler.claims import claim_grants, claims_service, lifecycle
from tests.scheduler import small_cluster
from tests.scheduler.claims import claim_server, test_claims_step_by_step

KEY = "default/c"
SHARE = grants.Share(uuid="GPU-1", index=0, memory_mib=4096)


class Scene:
    """Claims in an extender, and how often it had all pods tried again."""

    def __init__(self) -> None:
        self.woken = 0
        self.cluster = small_cluster.Cluster()
        card = cards.Card(uuid="GPU-1", index=0, memory_mib=8192)
        self.cluster.fleet.set_node(cards.Node(name="n1", cards=(card,)))
        self.claims = claims_service.Claims(
            None,  # type: ignore[arg-type]
            self.cluster.mirror,
            may_write=lambda: True,
            wake_all=self._wake,
        )
        self.store = self.claims.store
        self.show_class()

    def show_class(self, **fields: Any) -> None:
        """The class as it is now."""
        made = objects.ElasticGPUClass(
            metadata=objects.Metadata(name="shares"), provisioner="elasticgpu.io/gpushare", **fields
        )
        self.store.classes.put(made)

    def show_claim(self, name: str = "c", *, version: int = 1, **fields: Any) -> None:
        """A claim as it is now."""
        spec = objects.ClaimSpec(elastic_gpu_class_name="shares", **fields.pop("spec", {}))
        meta = objects.Metadata(
            name=name, namespace="default", uid=f"u-{name}", resource_version=str(version)
        )
        self.store.claims.put(objects.ElasticGPUClaim(metadata=meta, spec=spec, **fields))

    def show_elastic_gpu(self, name: str = "c", *, record: str | None = None) -> None:
        """What a claim is bound to, with its shares; the record may be edited."""
        stored: dict[str, Any] = {
            "metadata": {"name": f"e-{name}"},
            "spec": {"claimRef": {"namespace": "default", "name": name, "uid": f"u-{name}"}},
            "status": {"phase": "Bound"},
        }
        empty = claim_server.decoded(stored, objects.ElasticGPU)
        container = grants.ContainerGrant(name="", shares=(SHARE,))
        owner = objects.owner(f"e-{name}")
        grant = grants.Grant(pod=owner, node="n1", containers=(container,), dialect="elastic")
        claim_server.merge(stored, objects.allocated(empty, grant))
        if record is not None:
            stored["metadata"]["annotations"][grant_record.GRANT] = record
        self.store.elastic_gpus.put(claim_server.decoded(stored, objects.ElasticGPU))

    def show_bound(self, name: str = "c") -> None:
        """A claim that has a share, with it."""
        self.show_elastic_gpu(name)
        bound = objects.ClaimStatus(phase=objects.ClaimPhase.BOUND)
        self.show_claim(name, spec={"elastic_gpu_name": f"e-{name}"}, status=bound)

    def ask(self, pod: str = "p", *names: str) -> grants.Grant | claim_grants.Waits:
        """kube-scheduler asks about a pod with claims; what it is told."""
        demand = self._demand(*names or ("c",))
        return self.claims.grants.grant(self._pod(pod), demand, ["n1"])

    def waits(self, pod: str = "p", *names: str) -> str:
        """It has to wait, and was not woken since."""
        answer = self.ask(pod, *names)
        assert isinstance(answer, claim_grants.Waits)
        self.woken = 0
        return answer.text

    def choose(self, pod: str, *names: str) -> bool:
        """kube-scheduler filters a pod, which holds what it gets; whether it got something."""
        decider = self.cluster.decider
        decider._claims = self.claims.grants  # as the service puts them together
        return bool(decider.choose(self._pod(pod), self._demand(*names), ["n1"], 1).nodes)

    def _pod(self, name: str) -> pods.Pod:
        return pods.Pod(metadata=pods.Metadata(name=name, namespace="default", uid=f"uid-{name}"))

    def _demand(self, *names: str) -> demands.PodDemand:
        containers = tuple(
            demands.ContainerDemand(f"c{i}", demands.Demand(claim=f"default/{name}"))
            for i, name in enumerate(names)
        )
        return demands.PodDemand(containers=containers, dialect="elastic")

    def _wake(self) -> None:
        self.woken += 1


@pytest.fixture
def scene() -> Scene:
    """A class, a card, and no claim."""
    return Scene()


@pytest.mark.parametrize("mode", list(objects.BindingMode))
def test_a_claim_that_was_missing_is_there(scene: Scene, mode: objects.BindingMode) -> None:
    """One that waits for its first pod is bound by nothing else than the pod's next try."""
    scene.show_class(egpu_binding_mode=mode)
    assert "there is no ElasticGPUClaim" in scene.waits()
    scene.show_claim()
    assert scene.woken == 1


def test_a_claim_is_bound(scene: Scene) -> None:
    """Also where the answer to the write that said so was lost: the watch brings it."""
    scene.show_claim()
    assert "is not bound yet" in scene.waits()
    scene.show_bound()
    assert scene.woken
    assert isinstance(scene.ask(), grants.Grant)


def test_a_claim_that_was_lost_is_back(scene: Scene) -> None:
    """Before that was written on the claim, or without that its loss ever was."""
    scene.show_bound()
    scene.show_elastic_gpu(record="edited")
    assert "is not bound" in scene.waits()
    scene.show_elastic_gpu()
    assert scene.woken == 1
    assert isinstance(scene.ask(), grants.Grant)


def test_a_claim_was_changed(scene: Scene) -> None:
    """What it asks for now may be there."""
    scene.show_claim()
    scene.waits()
    smaller = pods.Resources(requests={objects.MEMORY: "1Gi"})
    scene.show_claim(spec={"resources": smaller})
    assert scene.woken == 1


def test_a_class_comes_or_begins_to_share(scene: Scene) -> None:
    """A second pod has waited for the end of the first."""
    scene.show_bound()
    assert scene.choose("first", "c")
    assert "is used by pod default/first" in scene.waits("second")
    scene.show_class(shared=True)
    assert scene.woken == 1
    assert isinstance(scene.ask("second"), grants.Grant)


def test_claims_on_different_nodes(scene: Scene) -> None:
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


def test_a_pod_gives_up_a_claim_that_another_waits_for(scene: Scene) -> None:
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
def test_nobody_is_woken_by_what_helps_nobody(scene: Scene, reason: str) -> None:
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


def test_what_was_made_for_a_claim_goes_on_when_its_class_is_back() -> None:
    """By itself, without that any room appears."""
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
