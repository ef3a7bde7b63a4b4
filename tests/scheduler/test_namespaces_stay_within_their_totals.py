"""Totals of namespaces in the extender: refused with the numbers, woken, and never exceeded."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from partage.core import grants, totals
from partage.dialects import namespaces, pods
from partage.scheduler import requeue
from partage.scheduler.verbs import explanations
from tests import examples
from tests.scheduler import extender_parts, model_server, small_cluster
from tests.scheduler import test_no_card_is_granted_twice as granted_twice
from tests.scheduler.small_cluster import MEMORY, args, carded, pod, wire_pod

GIB = 1024
QGPU = "tke.cloud.tencent.com/qgpu"
FULL = "namespace default may have 16 GiB of card memory and has 10 GiB; this pod asks for 8 GiB"


def namespace(name: str = "default", **most: str) -> namespaces.Namespace:
    """A namespace with totals."""
    written = {f"partage.dev/most-{what}": text for what, text in most.items()}
    return namespaces.Namespace(namespaces.Metadata(name, written))


@pytest.fixture
def cluster() -> small_cluster.Cluster:
    """Three cards of 16 GiB on two nodes, 16 GiB of them for the namespace, and 10 of it taken."""
    made = small_cluster.Cluster()
    made.mirror.nodes.put(carded("n1", 16 * GIB, 16 * GIB))
    made.mirror.nodes.put(carded("n2", 16 * GIB))
    made.mirror.namespaces.put(namespace(memory="16Gi"))
    assert made.filter(args(wire_pod("a", {MEMORY: 10}), ["n1"]))["NodeNames"]
    return made


def _filter(cluster: small_cluster.Cluster, limits: dict[str, Any], **more: Any) -> dict[str, Any]:
    return cluster.filter(args(wire_pod("p", limits, **more), ["n1", "n2"]))


def test_what_waits_is_told_the_numbers(cluster: small_cluster.Cluster) -> None:
    """The same text for all nodes, so that kube-scheduler's event has it once."""
    answer = _filter(cluster, {MEMORY: 8})

    assert answer["NodeNames"] == []
    assert answer["FailedNodes"] == {"n1": FULL, "n2": FULL}
    assert not answer["FailedAndUnresolvableNodes"]


def test_dialects_add_up(cluster: small_cluster.Cluster) -> None:
    """What others asked for in other words counts as well."""
    assert _filter(cluster, {f"{QGPU}-core": 20, f"{QGPU}-memory": 8})["FailedNodes"]["n1"] == FULL
    assert _filter(cluster, {f"{QGPU}-core": 20, f"{QGPU}-memory": 6})["NodeNames"]


def test_what_can_never_be_is_not_worth_a_victim(cluster: small_cluster.Cluster) -> None:
    """kube-scheduler evicts nobody for nodes that it is told so of."""
    cluster.mirror.namespaces.put(namespace(memory="4Gi"))

    answer = _filter(cluster, {MEMORY: 8})

    text = "namespace default may have 4 GiB of card memory; this pod alone asks for 8 GiB"
    assert answer["FailedAndUnresolvableNodes"] == {"n1": text, "n2": text}


def test_nodes_without_room_keep_their_own_reasons(cluster: small_cluster.Cluster) -> None:
    """Only where the cards would do is the namespace what is in the way."""
    elsewhere = wire_pod("other", {"nvidia.com/gpu": 1}, namespace="elsewhere")
    assert cluster.filter(args(elsewhere, ["n2"]))["NodeNames"] == ["n2"]

    answer = _filter(cluster, {MEMORY: 8})

    assert answer["FailedNodes"] == {"n1": FULL, "n2": "another pod has the GPU for itself"}


def test_gpushares_answers_have_the_text_too(cluster: small_cluster.Cluster) -> None:
    """It has no words of its own for it."""
    answer = cluster.gpushare_filter(args(wire_pod("p", {MEMORY: 8}), ["n1", "n2"]))

    assert answer["FailedNodes"] == {"n1": FULL, "n2": FULL}


def test_a_pod_that_is_asked_about_again_does_not_stand_in_its_own_way(
    cluster: small_cluster.Cluster,
) -> None:
    """Its own hold is not counted against it."""
    for _ in range(3):
        assert _filter(cluster, {MEMORY: 6})["NodeNames"]
    account = cluster.fleet.account("default")
    assert account is not None
    assert account.used.memory_mib == 16 * GIB


def test_a_namespace_that_cannot_be_read_gets_nothing_and_is_a_problem(
    cluster: small_cluster.Cluster,
) -> None:
    """Pods wait with the reason; repaired, they go on."""
    cluster.mirror.namespaces.put(namespace(memory="16GB"))
    slip = "partage.dev/most-memory: '16GB' is not a quantity; write 16G (decimal) or 16Gi (binary)"
    refused = _filter(cluster, {MEMORY: 1})["FailedNodes"]

    assert refused["n1"] == f"namespace default gets no more cards: {slip}"
    problems = dict(cluster.mirror.problems)
    assert problems["namespace default"] == f"{slip}; until then its pods get no more cards"
    cluster.mirror.namespaces.put(namespace(memory="16Gi"))
    assert _filter(cluster, {MEMORY: 1})["NodeNames"]
    assert not list(cluster.mirror.problems)


def test_a_namespace_that_is_gone_has_no_total(cluster: small_cluster.Cluster) -> None:
    """The next one of that name begins anew."""
    assert list(cluster.mirror.namespaces.keys()) == ["default"]
    cluster.mirror.namespaces.drop("default")

    assert cluster.fleet.account("default") is None
    assert list(cluster.mirror.namespaces.keys()) == []


def test_victims_must_make_room_in_the_namespace(cluster: small_cluster.Cluster) -> None:
    """One of another namespace does not, however much it has; one of the same does."""
    elsewhere = wire_pod("other", {MEMORY: 16}, namespace="elsewhere")
    assert cluster.filter(args(elsewhere, ["n2"]))["NodeNames"] == ["n2"]
    victims = {
        "n1": {"Pods": [{"UID": "uid-a"}]},
        "n2": {"Pods": [{"UID": "uid-other"}]},
    }
    body = {"Pod": wire_pod("p", {MEMORY: 8}), "NodeNameToMetaVictims": victims}

    answer = json.loads(cluster.preemption.preempt(json.dumps(body).encode()))

    assert answer["NodeNameToMetaVictims"].keys() == {"n1"}


async def test_explain_says_what_the_namespace_has(cluster: small_cluster.Cluster) -> None:
    """And what to do, and what would fit."""
    explanation = await explanations.explain(cluster.mirror, _explained("p", {MEMORY: 8}))

    advice = "when others of them end, or when the namespace's partage.dev/most-memory is raised"
    assert explanation.summary == f"not now: {FULL}; it can be bound {advice}"
    assert explanation.would_fit == "6144 MiB instead of 8192"
    assert {reason.node: reason.text for reason in explanation.nodes} == {"n1": FULL, "n2": FULL}
    assert (await explanations.explain(cluster.mirror, _explained("p", {MEMORY: 6}))).fits


async def test_explain_of_what_can_never_be(cluster: small_cluster.Cluster) -> None:
    """Room on the cards would not help; the text says what would."""
    explanation = await explanations.explain(cluster.mirror, _explained("p", {"nvidia.com/gpu": 2}))

    assert explanation.summary.startswith(
        "never: namespace default may have 16 GiB of card memory; this pod alone asks for 32 GiB"
    )
    assert explanation.refused == 2


def _explained(name: str, limits: dict[str, Any]) -> explanations.Pod:
    plain = pod(name, limits)
    spec = explanations.Spec(plain.spec.containers)
    return explanations.Pod(plain.metadata, spec)


class _Nodes(model_server.Client):
    """Takes patches of nodes."""

    def __init__(self) -> None:
        """Nothing is connected."""
        self.patched = asyncio.Event()

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Somebody is woken."""
        self.patched.set()
        return b"{}"


@pytest.mark.parametrize("how", ["a pod of the namespace ends", "the total is raised"])
async def test_who_waits_for_the_namespace_is_woken(how: str) -> None:
    """A pod elsewhere that ends helps nobody, and wakes nobody."""
    api = _Nodes()
    waker = requeue.Requeue(api, leading=lambda: True)
    cluster = small_cluster.Cluster()
    cluster.mirror.freed = waker.note_freed
    cluster.mirror.nodes.put(carded("n1", 16 * GIB, 16 * GIB))
    cluster.mirror.namespaces.put(namespace(memory="10Gi"))
    demand = cluster.mirror.demand(pod("p", {MEMORY: 8}))
    assert demand is not None
    assert isinstance(cluster.binds.hold(pod("a", {MEMORY: 8}), demand, "n1"), grants.Grant)
    other = pods.Pod(pods.Metadata("b", "elsewhere", "uid-b"))
    assert isinstance(cluster.binds.hold(other, demand, "n1"), grants.Grant)
    cluster.fleet.best(demand)  # a shape that nobody asked about is worth a try
    waker.note_refused(demand, "default")
    task = asyncio.create_task(waker.run(cluster.mirror))

    cluster.mirror.release("uid-b")
    await asyncio.sleep(0.2)  # several times what it waits before it looks
    assert not api.patched.is_set()
    if how == "the total is raised":
        cluster.mirror.namespaces.put(namespace(memory="16Gi"))
    else:
        cluster.mirror.release("uid-a")
    await asyncio.wait_for(api.patched.wait(), 10)
    task.cancel()


async def test_many_binds_at_once_stay_within_the_total() -> None:
    """Thirty pods that were never filtered here are bound all at once; four fit into the total."""
    server, cluster = model_server.Server(), small_cluster.Cluster()
    wired = extender_parts.Wired(cluster, model_server.Client(server))
    cluster.mirror.namespaces.put(namespace(memory="18Gi"))
    for i in range(10):
        cluster.mirror.nodes.put(carded(f"n{i}", 16 * GIB))
    for i in range(30):
        server.add(f"p{i}", f"uid-p{i}", 4)
    names = [(pod, f"n{i % 10}") for i, pod in enumerate(server.pods.values())]
    bodies = [granted_twice._binding_args(pod, node) for pod, node in names]
    binds = [asyncio.create_task(wired.binder.bind(body)) for body in bodies]
    while not all(bind.done() for bind in binds):
        for call in [call for call in server.calls if not call.answer.done()]:
            server.apply(call)
            granted_twice._answer(call, call.outcome)
        await asyncio.sleep(0)
    errors = [json.loads(bind.result())["Error"] for bind in binds]
    full = (
        "namespace default may have 18 GiB of card memory and has 16 GiB; this pod asks for 4 GiB"
    )
    assert sorted(errors) == [""] * 4 + [full] * 26
    assert sum(bool(pod.spec.node_name) for pod in server.pods.values()) == 4

    # Whoever comes after reads the same sum from the pods alone.
    reborn = small_cluster.Cluster()
    reborn.mirror.namespaces.put(namespace(memory="18Gi"))
    for i in range(10):
        reborn.mirror.nodes.put(carded(f"n{i}", 16 * GIB))
    for bound in server.pods.values():
        reborn.mirror.pods.put(bound)
    account = reborn.fleet.account("default")
    assert account is not None
    assert account.used == totals.Sums(4, 16 * GIB, 0)
    answer = reborn.filter(args(wire_pod("late", {MEMORY: 4}), ["n0", "n9"]))
    assert answer["FailedNodes"] == {"n0": full, "n9": full}


class Limited(granted_twice.Doubtful):
    """All that can be lost, late or restarted, in a namespace that may have 12 GiB of 32."""

    MOST_MIB = 12 * GIB

    @initialize()
    def begin(self) -> None:
        """Two pods of 10 GiB for two cards; the total lets one of them in."""
        super().begin()

    async def lead(self) -> None:
        """A new process reads the namespaces, too, before it decides."""
        await super().lead()
        self.leader.cluster.mirror.namespaces.put(namespace(memory="12Gi"))

    @rule(units=st.sampled_from([1, 2, 10]))
    def a_small_pod_is_created(self, units: int) -> None:
        """So that there is something that fits beside the first."""
        if len(self.server.pods) < 3:
            self.a_pod_is_created(units)

    @invariant()
    def the_namespace_is_within_its_total(self) -> None:
        """By the records on the pods alone."""
        records = [
            json.loads(bound.metadata.annotations["partage.dev/grant"])
            for bound in self.server.pods.values()
            if bound.spec.node_name
        ]
        shares = [s for record in records for c in record["containers"] for s in c["shares"]]
        assert sum(share["memory_mib"] for share in shares) <= self.MOST_MIB


Limited.TestCase.settings = settings(
    max_examples=examples.many(100), stateful_step_count=40, deadline=None
)
TestNamespacesStayWithinTheirTotals = Limited.TestCase
