"""Whatever is lost, late, repeated or restarted: no card ever has more than it holds.

The machine drives real binders, doubts and takeovers against a server in which every call may be
applied or not, answered or not, in any order, also after its process is gone. There are two nodes
with one card each, on which no two of the pods fit, so that every mistake is one too many.
"""

from __future__ import annotations

import asyncio
import collections
import enum
import json
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from partage.core import grants
from partage.dialects import pods
from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states
from tests import examples
from tests.scheduler import extender_parts, model_server, small_cluster

NODES, CARD_MIB = ("n1", "n2"), 16384
AMONG = st.sampled_from([("n1",), ("n2",), ("n1", "n2")])
CHOICE = st.integers(0, 1 << 16)


class Fate(enum.Enum):
    """What becomes of a call."""

    ANSWERED = "applied, and answered truthfully"
    SWALLOWED = "applied, and its answer is lost"
    LOST = "not applied; its client gives up, and it may yet be applied"
    NEVER_SENT = "not applied, and never will be; its client knows"
    OPEN = "nothing yet"


FATES = st.sampled_from([*Fate, Fate.LOST, Fate.ANSWERED])
MOSTLY_ANSWERED = st.sampled_from([*Fate, Fate.ANSWERED, Fate.ANSWERED, Fate.ANSWERED])
_ERRORS = {
    Fate.SWALLOWED: kube_errors.ServerError(504, "Timeout", "no answer in time"),
    Fate.LOST: kube_errors.Unreachable("no answer", sent=True),
    Fate.NEVER_SENT: kube_errors.Unreachable("connection refused", sent=False),
}


class Leader:
    """One process: it reads the server's history at its own pace."""

    def __init__(self, server: model_server.Server) -> None:
        self.server = server
        self.cluster = small_cluster.Cluster()
        self.wired = extender_parts.Wired(self.cluster, model_server.Client(server), most=3)
        self.tasks: list[asyncio.Task[Any]] = []
        self.offered: list[str] = []
        for name in NODES:
            self.cluster.mirror.nodes.put(small_cluster.carded(name, CARD_MIB))
        for pod in server.pods.values():  # a consistent list
            self.cluster.mirror.pods.put(pod)
        self.read = len(server.history)
        self.ready = asyncio.get_running_loop().create_task(self.wired.takeover.run())

    def watch(self) -> None:
        """The next event."""
        if self.read < len(self.server.history):
            kind, pod = self.server.history[self.read]
            self.read += 1
            if kind == "DELETED":
                self.cluster.mirror.pods.drop(pod.metadata.uid)
            else:
                self.cluster.mirror.pods.put(pod)

    async def filter(self, body: bytes) -> None:
        """kube-scheduler asks; it takes the first node that it is told."""
        answer = self.wired.filter.filter(body)
        result = json.loads(answer if isinstance(answer, bytes) else await answer)
        self.offered = result["NodeNames"]

    def start(self, work: Any) -> None:
        """Let something go on beside the rest."""
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def die(self) -> None:
        """As by kill -9; what was sent is still under way."""
        for task in [self.ready, *self.tasks]:
            task.cancel()


class Doubtful(RuleBasedStateMachine):
    """All that can happen."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server = model_server.Server()
        self.uids = 0
        self.leader: Leader
        self.old: list[Leader] = []

    @initialize()
    def begin(self) -> None:
        """The first leader, with nobody before it, and two pods for one card."""
        self.run(self.lead)
        self.a_pod_is_created(10)
        self.a_pod_is_created(10)

    async def lead(self) -> None:
        """A new process."""
        self.leader = Leader(self.server)

    def run(self, work: Any) -> None:
        """Do something within the loop, and let all that can go on go on."""

        async def until_idle() -> None:
            await work()
            for _ in range(30):
                await asyncio.sleep(0)

        self.loop.run_until_complete(until_idle())

    def do(self, work: Any) -> None:
        """The same for something that does not wait."""

        async def wrapped() -> None:
            work()

        self.run(wrapped)

    @precondition(lambda self: len(self.server.pods) < 3)
    @rule(units=st.sampled_from([10, 16]))
    def a_pod_is_created(self, units: int) -> None:
        """Names are used again."""
        name = f"p{self.uids % 3}"
        self.uids += 1
        if name not in self.server.pods:
            self.server.add(name, f"uid-{self.uids}", units)

    def is_ready(self) -> bool:
        """Whether the leader answers."""
        return hasattr(self, "leader") and self.leader.ready.done()

    @precondition(is_ready)
    @rule(
        attempts=st.lists(st.tuples(CHOICE, FATES, AMONG), min_size=1, max_size=3),
        wait=st.booleans(),
    )
    def kube_scheduler_goes_round(
        self, attempts: list[tuple[int, Fate, tuple[str, ...]]], wait: bool
    ) -> None:
        """Several attempts in a row are one step, or the search would never get so far."""
        for choice, fate, among in attempts:
            self.schedule(choice, fate, among)
        if wait:
            self.time_passes(20.0)

    @precondition(is_ready)
    @rule(choice=CHOICE, fate=FATES, among=AMONG)
    def kube_scheduler_is_late(self, choice: int, fate: Fate, among: tuple[str, ...]) -> None:
        """It sees a pod as it was a while ago."""
        self.schedule(choice, fate, among, late=True)

    @precondition(is_ready)
    @rule(choice=CHOICE, among=AMONG)
    def kube_scheduler_asks_and_does_not_bind(self, choice: int, among: tuple[str, ...]) -> None:
        """It has scores of its own, or was stopped; binds of the same pod may be waiting."""
        newest = list({p.metadata.name: p for _, p in self.server.history[-12:]}.values())
        if newest:
            pod = newest[choice % len(newest)]
            self.run(lambda: self.leader.filter(_args(pod, among)))

    def schedule(
        self, choice: int, fate: Fate, among: tuple[str, ...] = ("n1",), *, late: bool = False
    ) -> None:
        """A pod without a node, as far as kube-scheduler knows, is filtered and bound."""
        words = [pod for _, pod in self.server.history[-12:] if not pod.spec.node_name]
        newest = {pod.metadata.name: pod for pod in words}
        seen = words if late else list(newest.values())
        if seen:
            pod = seen[choice % len(seen)]
            self.run(lambda: self.leader.filter(_args(pod, among)))
            node = (self.leader.offered or among)[0]
            bind = self.leader.wired.binder.bind
            self.go_on(lambda: self.leader.start(bind(_binding_args(pod, node))), fate)

    def go_on(self, work: Any, fate: Fate) -> None:
        """Begin something; all calls that come of it have the same fate."""
        before = set(self.server.calls)
        self.do(work)
        while fate is not Fate.OPEN and (new := [c for c in self.waiting() if c not in before]):
            before.add(new[0])
            self.meet(new[0], fate)

    def meet(self, call: model_server.Call, fate: Fate) -> None:
        """Let a call have its fate."""
        if fate is Fate.NEVER_SENT and call.applied:
            fate = Fate.SWALLOWED  # a client cannot know that nothing was sent, since it was
        if fate in (Fate.ANSWERED, Fate.SWALLOWED):
            self.server.apply(call)
        if fate is Fate.NEVER_SENT:
            self.server.calls.remove(call)
        outcome = call.outcome if fate is Fate.ANSWERED else _ERRORS.get(fate)
        if outcome is not None:
            self.do(lambda: _answer(call, outcome))

    def waiting(self) -> list[model_server.Call]:
        """Calls that somebody waits for."""
        return [call for call in self.server.calls if not call.answer.done()]

    @precondition(lambda self: self.waiting())
    @rule(choice=CHOICE, fate=MOSTLY_ANSWERED)
    def a_call_meets_its_fate(self, choice: int, fate: Fate) -> None:
        """Any one that somebody waits for."""
        waiting = self.waiting()
        self.meet(waiting[choice % len(waiting)], fate)

    def unapplied(self) -> list[model_server.Call]:
        """Calls that may yet be applied."""
        return [call for call in self.server.calls if not call.applied]

    @precondition(lambda self: self.unapplied())
    @rule(choice=CHOICE)
    def a_call_is_applied_late(self, choice: int) -> None:
        """With or without anybody waiting for its answer."""
        waiting = self.unapplied()
        self.server.apply(waiting[choice % len(waiting)])

    @precondition(lambda self: self.leader.read < len(self.server.history))
    @rule(events=st.sampled_from([1, 100]))
    def the_watch_goes_on(self, events: int) -> None:
        """By one event, or to the end."""
        for _ in range(events):
            self.do(self.leader.watch)

    @precondition(lambda self: self.leader.cluster.binds.doubts())
    @rule(fate=MOSTLY_ANSWERED, wait=st.booleans())
    def doubts_are_looked_at(self, fate: Fate, wait: bool = False) -> None:
        """By the leader."""
        self.go_on(lambda: self.leader.start(self.leader.wired.doubts.settle()), fate)
        if wait:
            self.time_passes(20.0)

    def time_passes(self, seconds: float) -> None:
        """Less than the last resort, which is for servers that keep to their limits."""
        self.leader.cluster.clock.now += seconds
        self.do(self.leader.cluster.binds.expire)

    @rule(choice=CHOICE, what=st.sampled_from(["write", "delete", "kill", "replace"]))
    def the_cluster_is_disturbed(self, choice: int, what: str) -> None:
        """One rule for what happens rarely, so that the rest has time to go wrong."""
        name = sorted(self.server.pods)[choice % len(self.server.pods)] if self.server.pods else ""
        if what == "write" and name:  # kube-scheduler notes on it that it was not bound, for one
            self.server.write("MODIFIED", self.server.pods[name])
        elif what == "delete" and name:
            self.server.write("DELETED", self.server.pods[name])
        elif what == "kill":
            self.do(self.leader.die)
            self.run(self.lead)
        elif what == "replace":
            # The one before does not know it yet, but sends nothing new.
            self.leader.wired.stopped = "another replica leads"
            self.old.append(self.leader)
            self.run(self.lead)

    @invariant()
    def no_card_is_over(self) -> None:
        """By the records on the pods alone."""
        used: collections.Counter[str] = collections.Counter()
        for pod in self.server.pods.values():
            if pod.spec.node_name:
                record = json.loads(pod.metadata.annotations["partage.dev/grant"])
                assert record["uid"] == pod.metadata.uid
                assert record["node"] == pod.spec.node_name
                for share in (share for c in record["containers"] for share in c["shares"]):
                    used[share["uuid"]] += share["memory_mib"]
        assert all(taken <= CARD_MIB for taken in used.values()), used

    def teardown(self) -> None:
        """When everything is answered nothing is in doubt, and the count is right."""
        if hasattr(self, "leader"):
            self.settle_down()
            self.no_card_is_over()
            self.check_the_count()
        for leader in [*self.old, *([self.leader] if hasattr(self, "leader") else [])]:
            self.do(leader.die)
        self.loop.close()

    def settle_down(self) -> None:
        """Answer all that is asked."""
        for _ in range(200):
            for call in list(self.server.calls):
                self.server.apply(call)
                if not call.answer.done():
                    self.do(lambda call=call: _answer(call, call.outcome))
            while self.leader.read < len(self.server.history):
                self.do(self.leader.watch)
            self.leader.cluster.clock.now += 2
            self.do(lambda: self.leader.start(self.leader.wired.doubts.settle()))
            pending = [c for c in self.server.calls if not c.answer.done()]
            if not pending and not self.leader.wired.binder.busy:
                return
        raise AssertionError("a doubt does not end")

    def check_the_count(self) -> None:
        """What the leader counts as taken for good is what the pods say."""
        fleet = self.leader.cluster.fleet
        counted = {
            grant.pod.uid for grant in fleet.all_grants() if not fleet.hold_of(grant.pod.uid)
        }
        bound = {p.metadata.uid for p in self.server.pods.values() if p.spec.node_name}
        assert counted == bound


def _answer(call: model_server.Call, outcome: Any) -> None:
    if call.answer.done():
        return
    if isinstance(outcome, Exception):
        call.answer.set_exception(outcome)
    else:
        call.answer.set_result(outcome)


def _args(pod: pods.Pod, among: tuple[str, ...]) -> bytes:
    return small_cluster.args(json.loads(msgspec.json.encode(pod)), list(among))


def _binding_args(pod: pods.Pod, node: str) -> bytes:
    meta = pod.metadata
    args = {"PodName": meta.name, "PodNamespace": "default", "PodUID": meta.uid, "Node": node}
    return json.dumps(args).encode()


Doubtful.TestCase.settings = settings(
    max_examples=examples.many(250), stateful_step_count=40, deadline=None
)
TestNoCardIsGrantedTwice = Doubtful.TestCase


def _begun() -> Doubtful:
    machine = Doubtful()
    machine.begin()
    return machine


def test_a_binding_that_is_late_finds_the_pod_at_another_version() -> None:
    """Its doubt has ended, its hold expired, and another pod has the card."""
    machine = _begun()
    machine.schedule(0, Fate.LOST)
    machine.doubts_are_looked_at(Fate.ANSWERED)
    machine.time_passes(20.0)
    machine.schedule(1, Fate.ANSWERED)
    assert [p.metadata.name for p in machine.server.pods.values() if p.spec.node_name] == ["p1"]
    machine.a_call_is_applied_late(0)
    machine.no_card_is_over()
    machine.teardown()


def test_a_binding_says_what_is_held_when_it_is_sent() -> None:
    """A bind waited for its turn, and the pod was asked about again: it holds another node."""
    machine = _begun()
    machine.a_pod_is_created(10)
    window = machine.leader.wired.window
    window.in_flight = window.size
    machine.schedule(0, Fate.OPEN, ("n1",))
    assert machine.waiting() == []  # it waits inside
    pod = machine.server.pods["p0"]
    machine.run(lambda: machine.leader.filter(_args(pod, ("n2",))))
    sent_at = machine.leader.cluster.clock.now
    machine.do(lambda: window.leave(sent_at, overloaded=False))
    for call in machine.waiting():
        machine.meet(call, Fate.ANSWERED)
    for choice in (1, 2):
        machine.schedule(choice, Fate.ANSWERED, ("n1",))
    machine.no_card_is_over()
    window.in_flight = 0
    machine.teardown()


def test_a_second_attempt_that_never_arrives_leaves_the_first_in_doubt() -> None:
    """However long it takes, the room is not given away."""
    machine = _begun()
    machine.schedule(0, Fate.SWALLOWED)
    machine.schedule(0, Fate.NEVER_SENT)
    machine.time_passes(20.0)
    machine.schedule(1, Fate.ANSWERED)
    machine.no_card_is_over()
    machine.teardown()


@pytest.mark.parametrize("fate", [Fate.SWALLOWED, Fate.LOST])
def test_a_hold_that_was_sent_does_not_expire(fate: Fate) -> None:
    """Nobody knows whether the pod is bound, and the watch has not said anything yet."""
    machine = _begun()
    machine.schedule(0, fate)
    machine.time_passes(20.0)
    machine.schedule(1, Fate.ANSWERED)
    for _ in range(len(machine.unapplied())):
        machine.a_call_is_applied_late(0)
    machine.no_card_is_over()
    machine.teardown()


@pytest.mark.parametrize("how", ["kill", "replace"])
def test_what_a_predecessor_sent_cannot_happen_after_the_takeover(how: str) -> None:
    """Its successor knows nothing of it, and gives the card to another pod."""
    machine = _begun()
    machine.schedule(0, Fate.OPEN)
    machine.the_cluster_is_disturbed(0, how)
    while not machine.leader.ready.done():
        patches = [call for call in machine.waiting() if call.verb == "PATCH"]
        machine.meet(patches[0], Fate.ANSWERED)
    machine.schedule(1, Fate.ANSWERED)
    assert [p.metadata.name for p in machine.server.pods.values() if p.spec.node_name] == ["p1"]
    machine.a_call_is_applied_late(0)
    machine.no_card_is_over()
    machine.teardown()


def test_only_the_pod_itself_leads_out_of_doubt() -> None:
    """The table of transitions has no other way, whatever happens and in whatever order."""
    pod = small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=7)
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    demand = cluster.mirror.demand(pod)
    assert demand is not None
    grant = cluster.binds.hold(pod, demand, "n1")
    assert isinstance(grant, grants.Grant)
    doubt = bind_states.InDoubt(grant, pod, 7, 1000.0)
    for event in (
        bind_states.Accepted(),
        bind_states.Declined(),
        bind_states.Unanswered(1e9),
        bind_states.Withdrawn(),
        bind_states.Seen("", 7, 1050.0),  # it still has the version that the Binding named
        bind_states.Seen("", 6, 1050.0),
        bind_states.Seen("", 0, 1050.0),
    ):
        assert bind_states.step(doubt, event) is doubt
    sent = bind_states.step(doubt, bind_states.Send(7))
    assert isinstance(sent, bind_states.Sent)
    assert isinstance(bind_states.step(sent, bind_states.Declined()), bind_states.InDoubt)
    assert bind_states.step(sent, bind_states.Withdrawn()) is sent
    assert isinstance(bind_states.step(doubt, bind_states.Seen("", 8, 0.0)), bind_states.Held)
    assert isinstance(bind_states.step(doubt, bind_states.Seen("n1", 0, 0.0)), bind_states.Bound)
    assert isinstance(bind_states.step(doubt, bind_states.Gone()), bind_states.Ended)


@pytest.mark.parametrize(("second", "newest"), [(6, 7), (7, 7), (8, 8), (0, 0)])
def test_a_second_binding_does_not_make_the_first_forgotten(second: int, newest: int) -> None:
    """The newest version that any of them named counts; none, if one of them named none."""
    pod = small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=7)
    grant = grants.Grant(pod=pod.identity, node="n1", containers=())
    sent = bind_states.step(bind_states.InDoubt(grant, pod, 7, 1000.0), bind_states.Send(second))
    assert isinstance(sent, bind_states.Sent)
    assert sent.version == newest
