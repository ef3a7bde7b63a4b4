"""Claims in every order of writes, losses and deaths: no share is bound twice, none is lost."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
from typing import Any

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from partage.core import fleet, grants
from partage.dialects import contract
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from partage.kube import events
from partage.scheduler.claims import claim_store, controller
from tests import examples
from tests.core import small_fleets
from tests.scheduler.claims import claim_server

CARD_MIB = 8192
NODES = ("n0", "n1")
QGPU = "elasticgpu.io/qgpu"
SIZES_GIB = (2, 3, 5)


class Replica:
    """A controller with a fleet of its own, which knows what the server has shown it."""

    def __init__(self, server: claim_server.Server, fate: Any) -> None:
        self.server = server
        self.fleet = fleet.standard()
        for name in NODES:
            self.fleet.set_node(small_fleets.node(name, CARD_MIB))
        self.store = claim_store.ClaimStore(self.fleet, settings=contract.Settings)
        api = claim_server.Api(server, fate)
        unread = events.Events(api, "test", "here", now=_now)  # type: ignore[arg-type]
        self.controller = controller.Controller(
            self.store,
            self.fleet,
            api,  # type: ignore[arg-type]
            unread,
            leading=lambda: True,
            now=_now,
            freed=lambda _node: self.store.look_again(),
            sleep=_no_pause,
        )

    def read(self) -> None:
        """Take over all objects as they are, as after a watch."""
        for sink, plural, key in (
            (self.store.classes, "elasticgpuclasses", _name),
            (self.store.claims, "elasticgpuclaims", _uid),
            (self.store.elastic_gpus, "elasticgpus", _name),
        ):
            shown = {key(item): item for item in self.server.listed(plural)}
            for gone in set(sink.keys()) - shown.keys():
                sink.drop(gone)
            for item in shown.values():
                sink.put(item)

    def work(self) -> None:
        """All that is due, once."""
        asyncio.run(self._work())

    def settle(self) -> None:
        """What a new leader does first."""
        asyncio.run(self.controller.settle())

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as group:
            self.controller.begin_due(group)


class Claims(stateful.RuleBasedStateMachine):
    """Users make and delete claims; controllers work, lose answers, and die."""

    def __init__(self) -> None:
        super().__init__()
        self.server = claim_server.Server()
        self.fates: list[str] = []
        self.made = 0
        for policy in objects.ReclaimPolicy:
            self.server.create(
                objects.CLASSES_PATH,
                {
                    "metadata": {"name": str(policy).lower()},
                    "provisioner": QGPU,
                    "reclaimPolicy": str(policy),
                },
            )
        self.replica = self._leader()

    @stateful.rule(gib=st.sampled_from(SIZES_GIB), policy=st.sampled_from(["retain", "delete"]))
    def somebody_claims(self, gib: int, policy: str) -> None:
        """A share of one card."""
        self.made += 1
        requests = {"tke.cloud.tencent.com/qgpu-core": 10, "tke.cloud.tencent.com/qgpu-memory": gib}
        self.server.create(
            "/apis/elasticgpu.io/v1alpha1/namespaces/default/elasticgpuclaims",
            {
                "metadata": {"name": f"c{self.made}", "namespace": "default"},
                "spec": {"elasticGPUClassName": policy, "resources": {"requests": requests}},
            },
        )

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
        assert all(mib <= CARD_MIB for mib in held.values()), held

    @stateful.invariant()
    def nothing_is_bound_twice(self) -> None:
        """Two claims never have one object."""
        named = [c.spec.elastic_gpu_name for c in self.server.listed("elasticgpuclaims")]
        bound = [name for name in named if name]
        assert len(bound) == len(set(bound))

    def teardown(self) -> None:
        """In the end everybody has what fits, or is told why not; then nothing stays behind."""
        while self.server.late:
            self._arrive(0)
        self._come_to_rest()
        by_uid = {c.metadata.uid: c for c in self.server.listed("elasticgpuclaims")}
        for claim in by_uid.values():
            reason = {c.type: c.reason for c in claim.status.conditions}.get("Bound")
            assert reason in ("Bound", "NoRoom", "NotFound"), (claim, reason)
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

    def _leader(self) -> Replica:
        replica = Replica(self.server, lambda: self.fates.pop(0) if self.fates else "pass")
        replica.read()
        replica.settle()
        replica.read()
        return replica

    def _arrive(self, index: int) -> None:
        write = self.server.late.pop(index)
        with contextlib.suppress(kube_errors.KubeError):  # nobody waits for its answer
            write()


TestClaims = Claims.TestCase
TestClaims.settings = hypothesis.settings(max_examples=examples.many(400), stateful_step_count=30)


async def _no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


def _now() -> dt.datetime:
    return dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _name(item: Any) -> str:
    return str(item.metadata.name)


def _uid(item: Any) -> str:
    return str(item.metadata.uid)


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
