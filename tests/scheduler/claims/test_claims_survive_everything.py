"""Claims in every order of writes, losses and deaths: no share is bound twice, none is lost."""

from __future__ import annotations

import contextlib
from typing import Any

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from partage.core import grants, totals
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from partage.scheduler.claims import lifecycle
from tests import examples
from tests.core import small_fleets
from tests.scheduler.claims import claim_replica, claim_server

QGPU = "elasticgpu.io/qgpu"
SIZES_GIB = (2, 3, 5)
MOST_MIB = 12 << 10  # of the claims' namespace; the cards have more

CLAIMS = "/apis/elasticgpu.io/v1alpha1/namespaces/default/elasticgpuclaims"
CORE, MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
LATER = "later"  # the class whose claims are bound where their first pod can be
REASONS = {"Bound", "NoRoom", "NotFound", "Taken", "Unsuited", "NotAvailable", lifecycle.WAITS}


class Claims(stateful.RuleBasedStateMachine):
    """Users make, change and delete claims; controllers work, lose answers, and die."""

    def __init__(self) -> None:
        super().__init__()
        self.server = claim_server.Server()
        self.fates: list[str] = []
        self.made = 0
        self.asked: dict[str, set[str]] = {}  # uid of a claim -> nodes where pods could be
        self.taken_back: set[str] = set()  # ElasticGPUs whose claim's name was removed
        self.classes = {
            f"{objects.CLASSES_PATH}/{name}": {
                "metadata": {"name": name},
                "provisioner": QGPU,
                "reclaimPolicy": str(policy),
                "egpuBindingMode": str(mode),
            }
            for name, policy, mode in (
                ("retain", objects.ReclaimPolicy.RETAIN, objects.BindingMode.IMMEDIATE),
                ("delete", objects.ReclaimPolicy.DELETE, objects.BindingMode.IMMEDIATE),
                (LATER, objects.ReclaimPolicy.DELETE, objects.BindingMode.FIRST_CONSUMER),
            )
        }
        for gpu_class in self.classes.values():
            self.server.create(objects.CLASSES_PATH, gpu_class)
        self.replica = self._leader()

    @stateful.rule(
        gib=st.sampled_from(SIZES_GIB), gpu_class=st.sampled_from(["retain", "delete", LATER])
    )
    def somebody_claims(self, gib: int, gpu_class: str) -> None:
        """A share of one card."""
        self.made += 1
        self._claim(f"c{self.made}", gib, gpu_class)

    @stateful.rule(which=st.integers(0, 9), gib=st.sampled_from(SIZES_GIB))
    def somebody_claims_again(self, which: int, gib: int) -> None:
        """Under a name that was there before."""
        if self.made:
            with contextlib.suppress(kube_errors.Conflict):  # it is there yet
                self._claim(f"c{which % self.made + 1}", gib, "delete")

    @stateful.rule(which=st.integers(0, 9), gib=st.sampled_from(SIZES_GIB))
    def somebody_changes_a_claim(self, which: int, gib: int) -> None:
        """As long as it was not bound; the API server refuses it afterwards."""
        waiting = [
            path
            for path, claim in self.server.objects.items()
            if path.startswith(CLAIMS) and claim.get("status", {}).get("phase") != "Bound"
        ]
        if waiting:
            self.server.patch(
                waiting[which % len(waiting)], {"spec": {"resources": _resources(gib)}}
            )

    @stateful.rule(
        which=st.integers(0, 9),
        nodes=st.sets(st.sampled_from(claim_replica.NODES), min_size=1),
    )
    def a_pod_asks(self, which: int, nodes: set[str]) -> None:
        """For a claim that the controller has seen; it could go to these nodes."""
        claims = list(self.replica.store.claims.by_uid.values())
        if claims:
            claim = claims[which % len(claims)]
            self.asked.setdefault(claim.metadata.uid, set()).update(nodes)
            self.replica.asks(claim.key, nodes)

    @stateful.rule(which=st.integers(0, 2))
    def a_class_goes_or_comes(self, which: int) -> None:
        """Claims that are bound do not need it."""
        path = list(self.classes)[which]
        if path in self.server.objects:
            self.server.delete(path)
        else:
            self.server.create(objects.CLASSES_PATH, self.classes[path])

    @stateful.rule(gib=st.sampled_from(SIZES_GIB), kept_for=st.integers(0, 3))
    def an_administrator_writes_one(self, gib: int, kept_for: int) -> None:
        """On a card, for whoever claims as much, or for one claim by its name."""
        self.made += 1
        kept = {"claimRef": {"namespace": "default", "name": f"c{kept_for}"}} if kept_for else {}
        spec = {
            "capacity": {objects.CORE: "10", objects.MEMORY: f"{gib}Gi"},
            "gpuShare": {"gpuName": objects.gpu_name(claim_replica.NODES[0], 0)},
            "elasticGPUClassName": "delete",
            **kept,
        }
        name = f"by-hand-{self.made}-{kept_for}"
        self.server.create(objects.ELASTIC_GPUS_PATH, {"metadata": {"name": name}, "spec": spec})

    @stateful.rule(which=st.integers(0, 9))
    def an_administrator_takes_one_back(self, which: int) -> None:
        """So that another claim may have it."""
        owned = [
            path
            for path, made in self.server.objects.items()
            if "/elasticgpus/" in path and made["spec"].get("claimRef")
        ]
        if owned:
            path = owned[which % len(owned)]
            self.taken_back.add(path.rpartition("/")[2])
            self.server.patch(path, {"spec": {"claimRef": None}})

    @stateful.rule(which=st.integers(0, 9), plural=st.sampled_from(["claims", "s"]))
    def somebody_deletes(self, which: int, plural: str) -> None:
        """A claim, or what a claim may have."""
        paths = [p for p in self.server.objects if f"/elasticgpu{plural}/" in p]
        if paths:
            self.server.delete(paths[which % len(paths)])

    @stateful.rule(
        fates=st.lists(
            st.sampled_from(
                [claim_server.PASS] * 3
                + [claim_server.REFUSE, claim_server.LOSE_ANSWER, claim_server.LATE]
            ),
            max_size=6,
        )
    )
    def the_controller_works(self, fates: list[str]) -> None:
        """Some of its writes are lost, late, or not answered."""
        self.fates = fates
        self.replica.read()
        self.replica.work()

    @stateful.rule(which=st.integers(0, 9))
    def a_late_write_arrives(self, which: int) -> None:
        """Of this controller, or of one that is dead."""
        if self.server.late:
            self._arrive(which % len(self.server.late))

    @stateful.rule()
    def the_controller_dies(self) -> None:
        """At any moment; another one leads."""
        self.fates = []
        self.replica = self._leader()

    @stateful.invariant()
    def no_card_is_over_its_memory(self) -> None:
        """By what the objects say, which is what counts."""
        held: dict[str, int] = {}
        for this in self.server.listed("elasticgpus"):
            grant = objects.recorded(this)
            assert not isinstance(grant, grants.Damage), grant
            for share in grant.containers[0].shares if grant is not None else ():
                held[share.uuid] = held.get(share.uuid, 0) + share.memory_mib
        assert all(mib <= claim_replica.CARD_MIB for mib in held.values()), held

    @stateful.invariant()
    def the_namespace_is_within_its_total(self) -> None:
        """Shares that are kept for its claims count, and those of nobody do not."""
        held = [
            share.memory_mib
            for this in self.server.listed("elasticgpus")
            if this.claim_key and isinstance(grant := objects.recorded(this), grants.Grant)
            for share in grant.containers[0].shares
        ]
        assert sum(held) <= MOST_MIB

    @stateful.invariant()
    def nothing_is_bound_twice(self) -> None:
        """Two claims never have one object."""
        named = [c.spec.elastic_gpu_name for c in self.server.listed("elasticgpuclaims")]
        bound = [name for name in named if name]
        assert len(bound) == len(set(bound))

    @stateful.invariant()
    def what_is_kept_for_a_claim_is_not_another_ones(self) -> None:
        """Unless somebody took its name away."""
        for this in self.server.listed("elasticgpus"):
            kept_for = this.metadata.name.rpartition("-")[2]
            if this.metadata.name.startswith("by-hand") and kept_for != "0" and this.claim_key:
                assert this.metadata.name in self.taken_back or (
                    this.claim_key == f"default/c{kept_for}"
                )

    @stateful.invariant()
    def who_waits_for_a_pod_is_where_a_pod_could_be(self) -> None:
        """A leader that does not know it does not guess; what was taken back is there for all."""
        for this in self.server.listed("elasticgpus"):
            if this.metadata.name in self.taken_back:
                continue
            if this.spec.elastic_gpu_class_name == LATER and this.node_name:
                assert this.node_name in self.asked[this.spec.claim_ref.uid]

    @stateful.invariant()
    def a_bound_claim_has_what_it_asks_for(self) -> None:
        """Also if it was changed in the last moment."""
        made = {this.metadata.name: this for this in self.server.listed("elasticgpus")}
        for claim in self.server.listed("elasticgpuclaims"):
            this = made.get(claim.spec.elastic_gpu_name)
            if claim.status.phase is objects.ClaimPhase.BOUND and this is not None:
                grant = objects.recorded(this)
                assert isinstance(grant, grants.Grant)
                asked_gib = claim.spec.resources.requests[MEMORY]
                assert grant.containers[0].shares[0].memory_mib >= int(asked_gib) << 10

    def teardown(self) -> None:
        """In the end everybody has what fits, or is told why not; then nothing stays behind."""
        while self.server.late:
            self._arrive(0)
        for path, gpu_class in self.classes.items():
            if path not in self.server.objects:
                self.server.create(objects.CLASSES_PATH, gpu_class)
        self._come_to_rest()
        by_uid = {c.metadata.uid: c for c in self.server.listed("elasticgpuclaims")}
        for claim in by_uid.values():
            reason = {c.type: c.reason for c in claim.status.conditions}.get("Bound")
            assert reason in REASONS, (claim, reason)
            assert reason != "NoRoom" or not self._has_room(claim), claim
        for this in self.server.listed("elasticgpus"):
            phase = this.status.phase
            assert phase is not objects.Phase.BOUND or this.spec.claim_ref.uid in by_uid
        for path in [p for p in self.server.objects if "/elasticgpuclaims/" in p]:
            self.server.delete(path)
        self._come_to_rest()
        for path in [p for p in self.server.objects if "/elasticgpus/" in p]:
            self.server.delete(path)
        self._come_to_rest()
        assert [p for p in self.server.objects if "/elasticgpuclasses/" not in p] == []
        assert not list(self.replica.fleet.all_grants())

    def _come_to_rest(self) -> None:
        self.fates = []
        for _ in range(40):
            before = repr(self.server.objects)
            self.replica.read()
            self.replica.store.look_again()
            for _ in range(len(self.server.objects)):  # a few at once; what is stale is read anew
                self.replica.work()
            if repr(self.server.objects) == before:
                return
        raise AssertionError("it does not come to rest")

    def _has_room(self, claim: objects.ElasticGPUClaim) -> bool:
        """Whether there is room for a claim where it may be."""
        view = self.replica.store.claim_view(claim.metadata.uid)
        assert view is not None
        [demand] = view.asked.alternatives
        pod = small_fleets.pod(demand)
        among = self.replica.store.wanted.get(claim.metadata.uid)
        has_room = bool(self.replica.fleet.best(pod, among=among, namespace="default"))
        return has_room or view.spare is not None

    def _claim(self, name: str, gib: int, gpu_class: str) -> None:
        spec = {"elasticGPUClassName": gpu_class, "resources": _resources(gib)}
        self.server.create(
            CLAIMS, {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
        )

    def _leader(self) -> claim_replica.Replica:
        replica = claim_replica.Replica(
            self.server, lambda: self.fates.pop(0) if self.fates else "pass"
        )
        replica.fleet.set_total("default", totals.Total(memory_mib=MOST_MIB))
        replica.read()
        replica.settle()
        replica.read()
        return replica

    def _arrive(self, index: int) -> None:
        write = self.server.late.pop(index)
        with contextlib.suppress(kube_errors.KubeError):  # nobody waits for its answer
            write()


def _resources(gib: int) -> dict[str, Any]:
    return {"requests": {CORE: 10, MEMORY: gib}}


TestClaims = Claims.TestCase
TestClaims.settings = hypothesis.settings(max_examples=examples.many(400), stateful_step_count=30)


def test_a_new_leader_lets_no_older_write_of_shares_through() -> None:
    """Shares that a dead controller sent come after the new one has begun, and are refused."""
    story = Claims()
    story.somebody_claims(5, "delete")
    while not list(story.server.listed("elasticgpus")):
        story.the_controller_works([])
    story.the_controller_works([claim_server.LATE] * 8)
    assert story.server.late
    story.the_controller_dies()
    while story.server.late:
        story._arrive(0)
    assert [objects.recorded(this) for this in story.server.listed("elasticgpus")] == [None]


def test_shares_that_come_late_twice_are_refused_twice() -> None:
    """Each time that nobody knows what became of them, the object gets another version."""
    story = Claims()
    story.somebody_claims(5, "delete")
    while not list(story.server.listed("elasticgpus")):
        story.the_controller_works([])
    for _ in range(2):
        story.the_controller_works([claim_server.LATE])
        [late] = story.server.late
        story.the_controller_works([])
        with pytest.raises(kube_errors.Conflict):
            late()
        story.server.late.clear()
