"""What pods have by an ElasticGPU is counted once, and never not at all."""

from __future__ import annotations

import hypothesis
import msgspec
from hypothesis import stateful
from hypothesis import strategies as st

from partage.core import demands, fleet, grants
from tests.core import small_fleets

SHARE = grants.Share(uuid="n0/0", index=0, memory_mib=3000, compute_percent=20)
NAME = "e"
OWNER = grants.elastic_gpu_uid(NAME)
CARD_MIB = 8192


class Shares(stateful.RuleBasedStateMachine):
    """The object, the pods that have its shares, and their node come and go in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = fleet.standard()
        self.known, self.pods, self.node = False, set[str](), False

    @stateful.rule()
    def the_object_is_seen(self) -> None:
        """With its record."""
        self.known = True
        self.fleet.admit(_grant(OWNER))

    @stateful.rule()
    def the_object_is_gone(self) -> None:
        """By force, or its record was removed."""
        self.known = False
        self.fleet.release(OWNER)

    @stateful.rule(pod=st.sampled_from("ab"))
    def a_pod_is_seen(self, pod: str) -> None:
        """With the record that it has the object's shares."""
        self.pods.add(pod)
        self.fleet.admit(_grant(pod, NAME))

    @stateful.rule(pod=st.sampled_from("ab"))
    def a_pod_is_gone(self, pod: str) -> None:
        """Its containers have ended."""
        self.pods.discard(pod)
        self.fleet.release(pod)

    @stateful.rule()
    def the_node_comes_or_goes(self) -> None:
        """Grants wait for their node."""
        self.node = not self.node
        if self.node:
            self.fleet.set_node(small_fleets.node("n0", CARD_MIB))
        else:
            self.fleet.remove_node("n0")

    @stateful.invariant()
    def the_share_is_counted_once(self) -> None:
        """As long as anybody has it."""
        counted = [grant for grant in self.fleet.all_grants() if grants.takings(grant)]
        assert len(counted) == (1 if self.known or self.pods else 0)
        assert self.fleet.is_stand_in(OWNER) == (bool(self.pods) and not self.known)
        assert self.fleet.users(NAME) == self.pods
        state = self.fleet.state("n0")
        if state is not None:
            [room] = state.rooms
            assert CARD_MIB - room.free_mib == (SHARE.memory_mib if counted else 0)


TestShares = Shares.TestCase
TestShares.settings = hypothesis.settings(stateful_step_count=20)


def test_what_stands_in_follows_the_names_of_cards() -> None:
    """Every grant of a node is renamed; this one ends with its pod all the same."""
    small = fleet.standard()
    small.set_node(small_fleets.node("n0", CARD_MIB))
    small.admit(_grant("a", NAME))
    for grant in list(small.all_grants()):
        small.rename(_renamed(grant))
    owned = small.grant_of(OWNER)
    assert owned is not None
    assert owned.containers[0].shares[0].uuid == "GPU-1"
    small.release("a")
    assert list(small.all_grants()) == []


def _renamed(grant: grants.Grant) -> grants.Grant:
    replace = msgspec.structs.replace
    (container,) = grant.containers
    share = replace(container.shares[0], uuid="GPU-1")
    return replace(grant, containers=(replace(container, shares=(share,)),))


def test_an_object_whose_record_was_removed_can_have_shares_again() -> None:
    """Beside what stands in for it, so that its pods keep theirs."""
    small = fleet.standard()
    small.set_node(small_fleets.node("n0", CARD_MIB))
    small.admit(_grant("a", NAME))
    demand = small_fleets.pod(demands.Demand(memory_mib=3000))
    held = small.hold(grants.Pod(OWNER), demand, "n0", expires_at=1.0)
    assert isinstance(held, fleet.Hold)
    assert not small.is_stand_in(OWNER)


def _grant(uid: str, elastic_gpu: str = "") -> grants.Grant:
    named = {"elastic_gpu": elastic_gpu} if elastic_gpu else {}
    container = grants.ContainerGrant(name="main", shares=(SHARE,), **named)  # type: ignore[arg-type]
    return grants.Grant(pod=grants.Pod(uid), node="n0", containers=(container,))
