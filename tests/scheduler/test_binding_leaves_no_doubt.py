"""Bind: what the API server may answer, or not, and what stays of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from partage.dialects import contract, pods
from partage.kube import errors as kube_errors
from partage.scheduler import kubernetes_names
from partage.scheduler.binds import bind_states
from tests.scheduler import extender_parts, one_pod_server, small_cluster
from tests.scheduler.small_cluster import GIB


class Bench:
    """A binder over a scripted server."""

    def __init__(self, *node_names: str) -> None:
        self.cluster = small_cluster.Cluster()
        for name in node_names or ("n1", "n2"):
            self.cluster.mirror.nodes.put(small_cluster.node(name))
        self.server = one_pod_server.Server()
        self.wired = extender_parts.Wired(self.cluster, self.server)
        self.binder = self.wired.binder

    async def bind(self, node: str = "n1", uid: str = "uid-p") -> str:
        """What bind answers."""
        args = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": node}
        answer: str = json.loads(await self.binder.bind(json.dumps(args).encode()))["Error"]
        return answer

    def filter(self) -> list[str]:
        """What filter answers about the pod."""
        pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}, resourceVersion="7")
        nodes: list[str] = self.cluster.filter(small_cluster.args(pod, ["n1", "n2"]))["NodeNames"]
        return nodes

    def used_mib(self, node: str = "n1") -> int:
        """What is taken of a node."""
        return 32 * GIB - sum(self.cluster.free_mib(node))


def _bound_to(node: str) -> pods.Pod:
    return small_cluster.pod(
        "p",
        {small_cluster.MEMORY: 3},
        on=node,
        annotations=small_cluster.gpushare_record(3, 1),
        version=8,
    )


def _conflict() -> kube_errors.Conflict:
    return kube_errors.Conflict(409, "Conflict", 'pod p is already assigned to node "n1"')


async def test_a_binding_carries_uid_node_grant_and_annotations() -> None:
    """All in one write, and one call is enough after a filter."""
    bench = Bench()
    assert bench.filter()
    assert await bench.bind() == ""
    (sent,) = bench.server.bindings
    assert sent["target"] == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    assert sent["metadata"]["uid"] == "uid-p"
    assert sent["metadata"]["resourceVersion"] == "7"
    assert sent["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_POD"] == "3"
    assert '"uid":"uid-p","node":"n1"' in sent["metadata"]["annotations"]["partage.dev/grant"]
    assert bench.server.reads == 0
    assert bench.used_mib() == 3 * GIB
    assert bench.cluster.fleet.hold_of("uid-p") is None


async def test_bind_moves_the_hold_to_the_node_it_is_told() -> None:
    """kube-scheduler has scores of its own."""
    bench = Bench()
    (first, other) = bench.filter()
    bench.cluster.freed.clear()
    assert await bench.bind(other) == ""
    assert bench.used_mib(other) == 3 * GIB
    assert bench.used_mib(first) == 0
    assert first in bench.cluster.freed


async def test_without_a_filter_before_the_pod_is_read() -> None:
    """So it is after a restart of ours."""
    bench = Bench()
    assert await bench.bind() == ""
    assert bench.server.reads == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (kube_errors.Forbidden(403, "Forbidden", "no"), "answered HTTP 403 (no)"),
        (kube_errors.Invalid(422, "Invalid", "no"), "answered HTTP 422 (no)"),
        (
            kube_errors.Unreachable("POST /x: refused", sent=False),
            "no connection to the API server",
        ),
        (kube_errors.TooManyRequests(429, "TooManyRequests", "later"), "the API server is busy"),
    ],
    ids=["forbidden", "invalid", "unreachable", "too many requests"],
)
async def test_a_binding_that_was_declined_leaves_its_hold_for_the_retry(
    error: Exception, reason: str
) -> None:
    """The reason is in the answer; nothing is in doubt, and without a retry the hold expires."""
    bench = Bench("n1")
    bench.filter()
    bench.server.answers = [error]
    answer = await bench.bind()
    assert reason in answer
    assert "kube-scheduler tries again" in answer
    assert "POST" not in answer  # people read it in an event of the pod
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.Held)
    assert bench.used_mib() == 3 * GIB
    assert not bench.binder.busy
    bench.cluster.clock.now += 16
    bench.cluster.binds.expire()
    assert bench.used_mib() == 0


DOUBTS = [
    kube_errors.Unreachable("timed out", sent=True),
    kube_errors.ServerError(500, "InternalError", "etcdserver: request timed out"),
    kube_errors.ServerError(504, "Timeout", "no answer in time"),
    kube_errors.BadAnswer("half a line"),
    kube_errors.NotFound(404, "NotFound", "a proxy that knows nothing says so, too"),
]


@pytest.mark.parametrize("error", DOUBTS, ids=lambda error: str(error)[:12])
async def test_while_nobody_answers_a_doubt_stays(error: Exception) -> None:
    """Time alone proves nothing: the pod has to be asked."""
    bench = Bench()
    bench.server.answers = [error]
    assert "it is not known yet whether pod default/p is bound to node n1" in await bench.bind()
    bench.server.away = True
    for _ in range(20):
        bench.cluster.clock.now += 50
        await bench.wired.doubts.settle()
        bench.cluster.binds.expire()
    assert bench.used_mib() == 3 * GIB
    assert bench.binder.busy
    assert bench.filter() == ["n1"]  # it may be bound there already, so nowhere else


@pytest.mark.parametrize(
    "second",
    [
        kube_errors.Unreachable("connection refused", sent=False),
        kube_errors.TooManyRequests(429, "TooManyRequests", "later"),
        kube_errors.Forbidden(403, "Forbidden", "no"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_second_attempt_that_fails_for_sure_does_not_end_the_doubt_of_the_first(
    second: Exception,
) -> None:
    """What is known of the second Binding says nothing about the first."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True), second]
    assert await bench.bind() != ""
    assert await bench.bind() != ""
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.InDoubt)
    bench.cluster.clock.now += 1000
    bench.cluster.binds.expire()
    assert bench.used_mib() == 3 * GIB


async def test_a_second_attempt_that_may_not_be_sent_does_not_end_the_doubt_either() -> None:
    """The lease is about to end, for one."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.wired.stopped = "not the leader"
    assert await bench.bind() == "not the leader"
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.InDoubt)
    assert bench.used_mib() == 3 * GIB


async def test_a_pod_without_a_node_gets_a_newer_version_and_then_the_doubt_has_ended() -> None:
    """The Binding named the old version, so it cannot happen any more; the hold is kept."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    await bench.wired.doubts.settle()
    assert bench.server.patches == ["/api/v1/namespaces/default/pods/p/status"]
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.Held)
    assert not bench.binder.busy


async def test_a_pod_in_our_own_words_reads_the_same_after_it_was_looked_at() -> None:
    """Words of ours that nobody knows are refused, so the mark has to be known."""
    bench = Bench()
    await bench.wired.patches.renew(small_cluster.pod("p").identity)
    (written,) = bench.server.written
    limits = {"partage.dev/cards": 1, "partage.dev/memory-mib": 512}
    before = bench.cluster.mirror.demand(small_cluster.pod("p", limits))
    after = small_cluster.pod("p", limits, annotations=written["metadata"]["annotations"])
    assert bench.cluster.mirror.demand(after) == before


async def test_a_doubt_about_a_pod_that_is_bound_ends_at_the_first_question() -> None:
    """What it has is what counts, and nothing is patched."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.server.pod = _bound_to("n1")
    await bench.wired.doubts.settle()
    assert bench.server.patches == []
    assert bench.used_mib() == 3 * GIB
    assert bench.cluster.fleet.holds == 0
    assert not bench.binder.busy


async def test_a_word_of_the_watch_ends_a_doubt_too() -> None:
    """kube-scheduler notes on the pod that the bind failed; then the pod has a newer version."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.cluster.mirror.pods.put(
        small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=6)
    )  # an old word
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.InDoubt)
    bench.cluster.mirror.pods.put(small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=8))
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.Held)


async def test_the_pod_in_the_next_filter_ends_a_doubt_too() -> None:
    """It may go to any node then."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    newer = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}, resourceVersion="8")
    assert bench.cluster.filter(small_cluster.args(newer, ["n2"]))["NodeNames"] == ["n2"]
    assert (bench.used_mib("n1"), bench.used_mib("n2")) == (0, 3 * GIB)


async def test_a_pod_that_was_refused_for_its_doubt_is_woken_when_that_ends() -> None:
    """It was told that it may be bound elsewhere; then it can go where it fits."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    pod = small_cluster.wire_pod("p", {small_cluster.MEMORY: "3"}, resourceVersion="7")
    assert bench.cluster.filter(small_cluster.args(pod, ["n2"]))["NodeNames"] == []
    assert bench.cluster.refused
    bench.cluster.freed.clear()
    await bench.wired.doubts.settle()
    assert bench.cluster.freed == ["n1"]


async def test_without_the_right_to_patch_a_doubt_ends_when_nothing_sent_can_happen() -> None:
    """An API server gives up on a request long before."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    bench.server.refusal = kube_errors.Forbidden(403, "Forbidden", "no")
    assert await bench.bind() != ""
    bench.cluster.clock.now += 60
    await bench.wired.doubts.settle()
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.InDoubt)
    bench.cluster.clock.now += 60
    await bench.wired.doubts.settle()
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.Held)
    assert "pods/status" in bench.wired.patches.missing_right


async def test_a_doubt_about_a_pod_that_is_gone_ends() -> None:
    """Nobody has what it may have had."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.server.pod = None
    await bench.wired.doubts.settle()
    assert bench.used_mib() == 0
    assert not bench.binder.busy


async def test_a_pod_that_the_watch_dropped_is_not_put_again() -> None:
    """A read may be older than the word that the pod is gone."""
    bench = Bench()
    bench.server.pod = _bound_to("n1")
    bench.cluster.mirror.pods.put(_bound_to("n1"))
    bench.cluster.mirror.pods.drop("uid-p")
    assert await bench.bind() == "there is no pod default/p any more"
    assert bench.used_mib() == 0


async def test_an_unknown_outcome_that_was_a_success_is_found_out_by_the_next_bind() -> None:
    """The server says 409, and the pod has our grant."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True), _conflict()]
    assert await bench.bind() != ""
    bench.server.pod = _bound_to("n1")
    assert await bench.bind() == ""
    assert bench.binder.conflicts == 1
    assert bench.used_mib() == 3 * GIB
    assert bench.cluster.fleet.holds == 0


async def test_while_in_doubt_a_pod_keeps_the_very_cards_it_may_have() -> None:
    """Another choice would give those away, and they may be taken already."""
    bench = Bench("n1")
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    before = bench.cluster.free_mib("n1")
    for name in ("a", "b"):  # a policy would choose the other card now
        bench.cluster.mirror.pods.put(
            small_cluster.pod(
                name,
                {small_cluster.MEMORY: 4},
                on="n1",
                annotations=small_cluster.gpushare_record(4, 1),
            )
        )
    assert await bench.bind() == ""
    record = json.loads(bench.server.bindings[0]["metadata"]["annotations"]["partage.dev/grant"])
    assert record["containers"][0]["shares"][0]["index"] == 0
    assert bench.cluster.free_mib("n1")[0] == before[0]


async def test_while_in_doubt_no_other_node_will_do() -> None:
    """The pod may run on the first."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind("n1") != ""
    assert await bench.bind("n2") == "pod default/p is already bound to node n1, or about to be"
    assert bench.server.bindings == []
    assert bench.used_mib("n1") == 3 * GIB


async def test_pods_that_vanish_between_filter_and_bind_are_forgotten() -> None:
    """Nothing of them may stay in memory."""
    bench = Bench()
    bench.filter()
    assert bench.cluster.binds.of("uid-p") is not None
    bench.cluster.mirror.pods.drop("uid-p")
    assert bench.cluster.binds.of("uid-p") is None


async def test_a_pod_that_somebody_bound_elsewhere_counts_there() -> None:
    """Ours is given back."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [_conflict()]
    bench.server.pod = _bound_to("n2")
    assert await bench.bind("n1") == "pod default/p is already bound to node n2, or about to be"
    assert (bench.used_mib("n1"), bench.used_mib("n2")) == (0, 3 * GIB)


async def test_a_conflict_about_another_uid_is_an_error_and_gives_back() -> None:
    """The pod was deleted and made anew between filter and bind."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [_conflict()]
    bench.server.pod = small_cluster.pod("p", {small_cluster.MEMORY: 3}, uid="new", version=9)
    assert "not equal with expected uid-p" in await bench.bind()
    assert bench.used_mib() == 0


async def test_a_conflict_about_a_pod_that_changed_is_sent_again_for_its_new_version() -> None:
    """Somebody wrote on the pod between filter and bind."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [_conflict()]
    bench.server.pod = small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=9)
    assert await bench.bind() == ""
    assert [b["metadata"]["resourceVersion"] for b in bench.server.bindings] == ["9"]
    assert bench.used_mib() == 3 * GIB


async def test_a_conflict_about_an_unchanged_pod_is_an_error() -> None:
    """A gated pod is refused so; only a newer version of it would be proof that nothing happens."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [_conflict()]
    assert "HTTP 409" in await bench.bind()
    await bench.wired.doubts.settle()
    assert isinstance(bench.cluster.binds.of("uid-p"), bind_states.Held)


async def test_where_it_no_longer_fits_bind_says_what_is_short() -> None:
    """The state of this moment decides, whatever filter said."""
    bench = Bench("n1")
    bench.filter()
    for i in range(2):
        bench.cluster.mirror.pods.put(
            small_cluster.pod(
                f"a{i}",
                {small_cluster.MEMORY: 14},
                on="n1",
                annotations=small_cluster.gpushare_record(14, i),
            )
        )
    assert "2048 MiB" in await bench.bind()
    assert bench.server.bindings == []
    assert bench.cluster.fleet.holds == 0


async def test_two_binds_of_one_pod_at_once_send_one_binding() -> None:
    """kube-scheduler gives up after five seconds and asks again while we still wait."""
    bench = Bench()
    bench.server.gate.clear()
    both = asyncio.gather(bench.bind(), bench.bind())
    await asyncio.sleep(0.01)
    bench.server.gate.set()
    assert list(await both) == ["", ""]
    assert len(bench.server.bindings) == 1


async def test_a_pod_that_is_gone_before_its_binding_is_confirmed_has_nothing() -> None:
    """The watch may be faster than the answer."""
    bench = Bench()
    bench.server.gate.clear()
    bound = asyncio.create_task(bench.bind())
    await asyncio.sleep(0.01)
    bench.cluster.mirror.pods.put(_bound_to("n1"))
    bench.cluster.mirror.pods.drop("uid-p")
    bench.server.gate.set()
    assert await bound == ""
    assert bench.used_mib() == 0


async def test_a_replica_that_may_not_bind_sends_nothing() -> None:
    """Its lease is about to end."""
    bench = Bench()
    bench.wired.stopped = "not the leader"
    assert await bench.bind() == "not the leader"
    assert bench.server.bindings == []
    assert not bench.binder.busy


async def test_a_pod_that_asks_for_no_card_is_just_bound() -> None:
    """kube-scheduler sends whoever names a managed resource, be it with zero."""
    bench = Bench()
    bench.server.pod = small_cluster.pod("p", {"nvidia.com/gpu": 0}, version=7)
    assert await bench.bind() == ""
    assert bench.server.bindings[0]["metadata"]["annotations"] == {}


@pytest.mark.parametrize(
    "args",
    [
        {"PodName": "../../secrets", "PodNamespace": "default", "PodUID": "u", "Node": "n1"},
        {"PodName": "p", "PodNamespace": "a/b", "PodUID": "u", "Node": "n1"},
        {"PodName": "p", "PodNamespace": "default", "PodUID": "u", "Node": "n 1"},
        {"PodName": "p", "PodNamespace": "default", "PodUID": "", "Node": "n1"},
        {"PodName": "p"},
        {},
    ],
)
async def test_names_that_are_none_never_reach_a_url(args: dict[str, str]) -> None:
    """What comes in over HTTP is not trusted."""
    bench = Bench()
    answer = json.loads(await bench.binder.bind(json.dumps(args).encode()))
    assert "is not a name" in answer["Error"]
    assert bench.server.reads == 0


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"[" * 100_000, b'{"PodName": 3}'])
async def test_a_body_that_cannot_be_read_is_an_error_in_the_answer(body: bytes) -> None:
    """With 200, or kube-scheduler would not show it."""
    bench = Bench()
    answer = json.loads(await bench.binder.bind(body))
    assert answer["Error"].startswith("the body cannot be read")


async def test_keys_of_bind_are_read_in_any_letter_case() -> None:
    """Go does so."""
    bench = Bench()
    args = {"podname": "p", "podNamespace": "default", "PODUID": "uid-p", "node": "n1"}
    answer = json.loads(await bench.binder.bind(json.dumps(args).encode()))
    assert answer == {"Error": ""}


def test_annotations_that_would_freeze_the_pod_are_refused() -> None:
    """The API server takes them in a Binding, and then no update of the pod any more."""
    for marks in (
        contract.Marks({"a" * 300: "x"}),
        contract.Marks({"has blank": "x"}),
        contract.Marks({"a": "x" * (kubernetes_names.MOST_BYTES + 1)}),
        contract.Marks({}, {"label": "not a value!"}),
    ):
        with pytest.raises(kubernetes_names.IllegalName):
            kubernetes_names.check_marks(marks, small_cluster.pod("p"))
    crowded = small_cluster.pod("p", annotations={"mine": "x" * kubernetes_names.MOST_BYTES})
    with pytest.raises(kubernetes_names.IllegalName, match="with its grant"):
        kubernetes_names.check_marks(contract.Marks({"a": "b"}), crowded)
