"""Claims in stories whose order is known: what people do between two writes of the controller."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from partage.core import cards, totals
from partage.dialects import grant_record
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from partage.scheduler.claims import claim_grants, lifecycle
from tests.core import small_fleets
from tests.scheduler.claims import claim_replica, claim_server

CLAIMS = "/apis/elasticgpu.io/v1alpha1/namespaces/default/elasticgpuclaims"
CARD_GIB = claim_replica.CARD_MIB >> 10


class Story:
    """A server with classes, and a controller that has done all it can."""

    def __init__(self) -> None:
        self.server = claim_server.Server()
        for name, mode in (("shares", "Immediate"), ("later", lifecycle.WAITS)):
            self.server.create(
                objects.CLASSES_PATH,
                {
                    "metadata": {"name": name},
                    "provisioner": "elasticgpu.io/gpushare",
                    "reclaimPolicy": "Delete",
                    "egpuBindingMode": mode,
                },
            )
        self.fates: list[str] = []  # of the writes that come next
        self.replica = self.leader()

    def leader(self) -> claim_replica.Replica:
        """A controller that has just begun to lead."""
        replica = claim_replica.Replica(
            self.server, lambda: self.fates.pop(0) if self.fates else claim_server.PASS
        )
        replica.read()
        replica.settle()
        return replica

    def rest(self) -> None:
        """Let the controller do all that is to be done."""
        before = ""
        while before != (before := repr(self.server.objects)):
            for _ in range(4):
                self.replica.read()
                self.replica.store.look_again()
                self.replica.work()

    def claim(self, name: str, gib: int, gpu_class: str = "shares", **spec: Any) -> None:
        """Somebody claims memory of one card."""
        resources = {"requests": {objects.MEMORY: f"{gib}Gi"}}
        named = {"elasticGPUClassName": gpu_class} if gpu_class else {}
        self.server.create(
            CLAIMS,
            {
                "metadata": {"name": name, "namespace": "default"},
                "spec": {"resources": resources, **named, **spec},
            },
        )

    def by_hand(self, name: str, gib: int, gpu_class: str = "shares", **spec: Any) -> None:
        """An administrator writes an ElasticGPU on the first card."""
        spec = {
            "capacity": {objects.MEMORY: f"{gib}Gi"},
            "gpuShare": {"gpuName": objects.gpu_name(claim_replica.NODES[0], 0)},
            "elasticGPUClassName": gpu_class,
            **spec,
        }
        self.server.create(objects.ELASTIC_GPUS_PATH, {"metadata": {"name": name}, "spec": spec})

    def said(self, name: str) -> tuple[str, str]:
        """The phase of a claim, and its reason."""
        claim = self._claim(name)
        condition = lifecycle.condition(claim)
        return str(claim.status.phase), condition.reason if condition is not None else ""

    def message(self, name: str) -> str:
        """What is said about why."""
        condition = lifecycle.condition(self._claim(name))
        return condition.message if condition is not None else ""

    def has(self, name: str) -> str:
        """The ElasticGPU of a claim."""
        return self._claim(name).spec.elastic_gpu_name

    def uid(self, name: str) -> str:
        """The uid of a claim."""
        return self._claim(name).metadata.uid

    def made(self, name: str) -> objects.ElasticGPU:
        """An ElasticGPU as it is."""
        stored = self.server.get(objects.elastic_gpu_path(name))
        return claim_server.decoded(stored, objects.ElasticGPU)

    def names(self) -> set[str]:
        """All ElasticGPUs."""
        return {this.metadata.name for this in self.server.listed("elasticgpus")}

    def _claim(self, name: str) -> objects.ElasticGPUClaim:
        stored = self.server.get(f"{CLAIMS}/{name}")
        return claim_server.decoded(stored, objects.ElasticGPUClaim)


def test_what_is_kept_for_a_claim_is_taken_by_no_other() -> None:
    """As a volume that names its claim; the other one gets a share of its own."""
    story = Story()
    story.by_hand("kept", 2, claimRef={"namespace": "default", "name": "mine"})
    story.rest()
    story.claim("other", 2)
    story.rest()
    assert story.has("other") == objects.elastic_gpu_name(story.uid("other"))
    story.claim("mine", 2)
    story.rest()
    assert (story.has("mine"), story.said("mine")) == ("kept", ("Bound", "Bound"))


def test_a_claim_that_waits_for_room_takes_what_becomes_available() -> None:
    """The object that was made for it is not left behind."""
    story = Story()
    for number, gib in enumerate((CARD_GIB, CARD_GIB)):
        story.claim(f"full-{number}", gib)
    story.rest()
    story.claim("waits", CARD_GIB)
    story.rest()
    assert story.said("waits") == ("Pending", "NoRoom")
    freed = story.has("full-0")
    story.server.patch(objects.elastic_gpu_path(freed), {"spec": {"reclaimPolicy": "Retain"}})
    story.server.delete(f"{CLAIMS}/full-0")
    story.rest()
    assert story.made(freed).status.phase is objects.Phase.RELEASED
    assert story.said("waits") == ("Pending", "NoRoom")
    story.server.patch(objects.elastic_gpu_path(freed), {"spec": {"claimRef": None}})
    story.rest()
    assert (story.has("waits"), story.said("waits")) == (freed, ("Bound", "Bound"))
    assert story.names() == {freed, story.has("full-1")}


def test_a_claim_that_was_made_larger_before_it_was_bound_gets_the_larger_share() -> None:
    """What was made for the smaller one is not given to it."""
    story = Story()
    story.claim("c", 2)
    name = objects.elastic_gpu_name(story.uid("c"))
    while name not in story.names() or not story.made(name).spec.capacity:
        story.replica.read()
        story.replica.work()
    larger = {"resources": {"requests": {objects.MEMORY: "5Gi"}}}
    story.server.patch(f"{CLAIMS}/c", {"spec": larger})
    story.rest()
    assert story.said("c") == ("Bound", "Bound")
    assert story.made(story.has("c")).spec.capacity == {objects.MEMORY: "5120Mi"}


def test_a_claim_that_was_made_larger_without_its_class_is_not_bound_to_less() -> None:
    """It names what was made for the smaller one, and how much it asks for is known."""
    story = Story()
    story.claim("c", 2)
    while not story.has("c"):
        story.replica.read()
        story.replica.work()
    story.server.delete(f"{objects.CLASSES_PATH}/shares")
    larger = {"resources": {"requests": {objects.MEMORY: "5Gi"}}}
    story.server.patch(f"{CLAIMS}/c", {"spec": larger})
    story.rest()
    assert story.said("c") == ("Pending", "Unsuited")


def test_a_claim_that_names_less_than_it_asks_for_is_told() -> None:
    """And gets it as soon as it asks for what is there."""
    story = Story()
    story.by_hand("small", 2, gpu_class="")
    story.rest()
    story.claim("c", 4, gpu_class="", elasticGPUName="small")
    story.rest()
    assert story.said("c") == ("Pending", "Unsuited")
    assert story.made("small").status.phase is objects.Phase.AVAILABLE
    resources = {"resources": {"requests": {objects.MEMORY: "2Gi"}}}
    story.server.patch(f"{CLAIMS}/c", {"spec": resources})
    story.rest()
    assert story.said("c") == ("Bound", "Bound")


def test_a_claim_without_a_class_takes_what_has_none() -> None:
    """As it asks for no class, nothing is made for it."""
    story = Story()
    story.claim("c", 2, gpu_class="")
    story.rest()
    assert story.said("c") == ("Pending", "ClassNotFound")
    story.by_hand("there", 2, gpu_class="")
    story.rest()
    assert (story.has("c"), story.said("c")) == ("there", ("Bound", "Bound"))


def test_a_claim_that_chooses_another_object_leaves_none_behind() -> None:
    """What was made for it before goes, with its share."""
    story = Story()
    story.by_hand("chosen", 2)
    story.rest()
    story.claim("c", 3)
    made = objects.elastic_gpu_name(story.uid("c"))
    while made not in story.names() or not story.made(made).spec.capacity:
        story.replica.read()
        story.replica.work()
    resources = {"requests": {objects.MEMORY: "2Gi"}}
    chosen = {"elasticGPUName": "chosen", "resources": resources}
    story.server.patch(f"{CLAIMS}/c", {"spec": chosen})
    story.rest()
    assert (story.has("c"), story.said("c")) == ("chosen", ("Bound", "Bound"))
    assert story.names() == {"chosen"}


def test_of_two_objects_that_name_one_claim_it_has_one() -> None:
    """The other one says so, and keeps its share for whoever it is given to."""
    story = Story()
    story.claim("c", 2)
    ref = {"namespace": "default", "name": "c", "uid": story.uid("c")}
    for name in ("first", "second"):
        story.by_hand(name, 2, claimRef=ref)
    story.rest()
    assert story.said("c") == ("Bound", "Bound")
    [other] = {"first", "second"} - {story.has("c")}
    status = story.made(other).status
    assert (status.phase, status.reason) == (objects.Phase.PENDING, "ClaimHasAnother")
    assert "remove spec.claimRef" in status.message
    story.server.patch(objects.elastic_gpu_path(other), {"spec": {"claimRef": None}})
    story.rest()
    assert story.made(other).status.phase is objects.Phase.AVAILABLE


def test_a_claim_of_the_same_name_gets_nothing_of_the_one_before() -> None:
    """The uid decides whose an object is."""
    story = Story()
    story.claim("c", 2)
    story.rest()
    before = story.has("c")
    story.server.patch(objects.elastic_gpu_path(before), {"spec": {"reclaimPolicy": "Retain"}})
    story.server.delete(f"{CLAIMS}/c")
    story.rest()
    story.claim("c", 2)
    story.rest()
    assert story.has("c") not in ("", before)
    assert story.made(before).status.phase is objects.Phase.RELEASED


def test_a_new_leader_waits_until_it_knows_where_the_first_pod_can_be() -> None:
    """Its predecessor died when the object was there, and its shares were not decided."""
    story = Story()
    story.claim("c", 2, "later")
    story.rest()
    assert story.said("c") == ("Pending", lifecycle.WAITS)
    story.replica.asks("default/c", ["n1"])
    while not story.names():
        story.replica.work()
    story.replica = story.leader()
    story.rest()
    assert story.said("c") == ("Pending", lifecycle.WAITS)
    story.replica.asks("default/c", ["n1"])
    story.rest()
    assert story.said("c") == ("Bound", "Bound")
    assert story.made(story.has("c")).node_name == "n1"


@pytest.mark.parametrize("bound_first", [True, False])
def test_claims_of_one_pod_are_bound_on_one_node(bound_first: bool) -> None:
    """Where there is room for all of them, which the first one alone would not ask for."""
    story = Story()
    story.by_hand("filler", 4)  # the first node has room for one of them only
    story.rest()
    for name in ("a", "b"):
        story.claim(name, 3, "later")
    story.rest()
    nodes = ["n1"] if bound_first else list(claim_replica.NODES)
    if bound_first:
        story.replica.asks("default/b", nodes)
        story.rest()
    for _ in range(2):
        story.replica.asks("default/a", claim_replica.NODES, "default/b")
        story.rest()
    assert [story.said(name) for name in ("a", "b")] == [("Bound", "Bound")] * 2
    assert {story.made(story.has(name)).node_name for name in ("a", "b")} == {"n1"}


def test_claims_that_have_room_on_no_node_together_take_none() -> None:
    """Otherwise the first one would be bound where the pod can never be."""
    story = Story()
    for name in ("a", "b"):
        story.claim(name, CARD_GIB - 1, "later")
    story.rest()
    waits = story.replica.asks("default/a", claim_replica.NODES, "default/b")
    story.rest()
    assert isinstance(waits, claim_grants.Waits)
    assert "no node has room for what its ElasticGPUClaims default/a, default/b" in waits.text
    assert story.names() == set()


def test_a_node_that_is_back_before_its_cards_are() -> None:
    """What is on it is not given away, and nothing fails."""
    story = Story()
    story.by_hand("there", 2)
    story.rest()
    story.replica.fleet.set_node(cards.Node(name=claim_replica.NODES[0], cards=()))
    story.claim("c", 2)
    story.rest()
    assert story.has("c") == objects.elastic_gpu_name(story.uid("c"))


@pytest.mark.parametrize(("model", "percent"), [("Tesla T4", 50), ("NVIDIA A100-SXM4-40GB", 21)])
def test_tflops_are_another_percentage_on_each_model(model: str, percent: int) -> None:
    """The claim gets it where there is room; a model that nobody knows is left out."""
    story = Story()
    with_speed = small_fleets.node("n1", claim_replica.CARD_MIB, model=model)
    story.replica.fleet.set_node(with_speed)
    resources = {"requests": {"elasticgpu.io/tflops": 4, objects.MEMORY: "2Gi"}}
    story.claim("c", 0, resources=resources)
    story.rest()
    assert story.said("c") == ("Bound", "Bound")
    made = story.made(story.has("c"))
    assert made.node_name == "n1"
    assert made.spec.capacity == {objects.CORE: str(percent), objects.MEMORY: "2048Mi"}


def test_how_much_is_missing_is_not_written_each_time_that_it_changes() -> None:
    """Where pods come and go, each claim that waits would be written again and again."""
    story = Story()
    for name, gib in (("a", CARD_GIB), ("b", 3), ("c", 3), ("waits", 6)):
        story.claim(name, gib)
        story.rest()
    first = story.message("waits")
    story.server.delete(f"{CLAIMS}/b")
    story.claim("d", 2)
    story.rest()
    assert (story.said("waits"), story.message("waits")) == (("Pending", "NoRoom"), first)
    story.replica.now -= dt.timedelta(hours=1)  # somebody has set the clock
    story.rest()
    assert story.message("waits") not in ("", first)


def test_what_is_written_on_a_claim_is_short_whatever_it_asks_for() -> None:
    """Where no webhook was asked; a message is for people, and is stored with the claim."""
    story = Story()
    requests = {"requests": {"a\x1b[31m\n" + "b" * 100_000: 1}}
    story.claim("c", 0, resources=requests)
    story.rest()
    assert story.said("c") == ("Pending", "Invalid")
    assert story.message("c").startswith(r"spec.resources.requests[a\x1b[31m\nbbb")
    assert len(story.message("c")) < 1000


def test_a_claim_of_a_class_that_is_not_there_says_which() -> None:
    """There is nothing wrong with the claim itself, so it is not called invalid."""
    story = Story()
    story.claim("c", 2, gpu_class="missing")
    story.rest()
    assert story.said("c") == ("Pending", "ClassNotFound")
    assert story.message("c") == "there is no ElasticGPUClass missing"


def test_a_claim_beyond_the_total_of_its_namespace_says_so() -> None:
    """It waits, in its own words, until there is less or the total is raised."""
    story = Story()
    story.replica.fleet.set_total("default", totals.Total(memory_mib=2048))
    story.claim("large", 3)
    story.rest()
    text = "namespace default may have 2 GiB of card memory; this claim alone asks for 3 GiB"
    assert story.message("large") == text


def test_a_damaged_record_is_told_and_its_share_is_given_to_nobody() -> None:
    """Also by a leader that never saw it whole: the spec says what it is."""
    story = Story()
    for number in range(2):
        story.claim(f"c{number}", CARD_GIB - 1)
    story.rest()
    path = objects.elastic_gpu_path(story.has("c0"))
    record = story.server.get(path)["metadata"]["annotations"][grant_record.GRANT]
    story.server.patch(path, {"metadata": {"annotations": {grant_record.GRANT: "edited"}}})
    story.replica = story.leader()
    story.claim("more", 2)
    story.rest()
    assert story.said("c0") == ("Lost", "Unavailable")
    assert story.made(story.has("c0")).status.reason == "Damaged"
    assert story.said("more") == ("Pending", "NoRoom")
    story.server.patch(path, {"metadata": {"annotations": {grant_record.GRANT: record}}})
    story.rest()
    assert story.said("c0") == ("Bound", "Bound")


def test_a_new_leader_is_patient_with_its_server() -> None:
    """What is gone needs no new version, and what gets no answer is tried again."""
    story = Story()
    for number in range(3):
        story.claim(f"c{number}", CARD_GIB)
    story.rest()
    [waiting] = [this for this in story.server.listed("elasticgpus") if not this.spec.capacity]
    path = objects.elastic_gpu_path(waiting.metadata.name)
    fates = [claim_server.REFUSE, claim_server.LOSE_ANSWER]
    replica = claim_replica.Replica(
        story.server, lambda: fates.pop() if fates else claim_server.PASS
    )
    replica.read()
    version = story.server.get(path)["metadata"]["resourceVersion"]
    replica.settle()
    assert fates == []
    assert story.server.get(path)["metadata"]["resourceVersion"] != version
    del story.server.objects[path]
    with pytest.raises(kube_errors.NotFound):
        story.server.get(path)
    replica.settle()


def test_a_condition_says_since_when_it_is_so() -> None:
    """Another reason does not make it another state."""
    story = Story()
    story.claim("full", CARD_GIB)
    story.claim("other", CARD_GIB)
    story.rest()
    story.claim("c", CARD_GIB)
    story.rest()
    path = f"{CLAIMS}/c"
    [condition] = story.server.get(path)["status"]["conditions"]
    condition["lastTransitionTime"] = "2025-01-01T00:00:00Z"
    story.server.delete(f"{objects.CLASSES_PATH}/shares")
    story.rest()
    [condition] = story.server.get(path)["status"]["conditions"]
    assert condition["reason"] == "ClassNotFound"
    assert condition["lastTransitionTime"] == "2025-01-01T00:00:00Z"
