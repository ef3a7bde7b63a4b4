"""Bind: what the API server may answer, or not, and what stays of it."""

from __future__ import annotations

import asyncio
import json

import pytest

from partage.dialects import base, pods
from partage.kube import errors as kube_errors
from partage.scheduler import binding, names
from tests.scheduler import making, scripted
from tests.scheduler.making import GIB


class Bench:
    """A binder over a scripted server."""

    def __init__(self, *node_names: str) -> None:
        self.world = making.World()
        for name in node_names or ("n1", "n2"):
            self.world.mirror.nodes.put(making.node(name))
        self.server = scripted.Server()
        self.stopped = ""
        self.binder = binding.Binder(
            self.world.decider,
            self.server,
            now_ns=lambda: 1_700_000_000_000_000_000,
            allowed=lambda: self.stopped,
            timeout_s=4,
        )

    async def bind(self, node: str = "n1", uid: str = "uid-p") -> str:
        """What bind answers."""
        args = {"PodName": "p", "PodNamespace": "default", "PodUID": uid, "Node": node}
        answer: str = json.loads(await self.binder.bind(json.dumps(args).encode()))["Error"]
        return answer

    def filter(self) -> list[str]:
        """What filter answers about the pod."""
        pod = making.wire_pod("p", {making.MEMORY: "3"})
        found: list[str] = self.world.filter(making.args(pod, ["n1", "n2"]))["NodeNames"]
        return found

    def used_mib(self, node: str = "n1") -> int:
        """What is taken of a node."""
        return 32 * GIB - sum(self.world.free_mib(node))


def _bound_to(node: str) -> pods.Pod:
    return making.pod("p", {making.MEMORY: 3}, on=node, annotations=making.gpushare_record(3, 1))


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
    assert sent["metadata"]["annotations"]["ALIYUN_COM_GPU_MEM_POD"] == "3"
    assert '"uid":"uid-p","node":"n1"' in sent["metadata"]["annotations"]["partage.dev/grant"]
    assert bench.server.reads == 0
    assert bench.used_mib() == 3 * GIB
    assert bench.world.fleet.hold_of("uid-p") is None


async def test_bind_moves_the_hold_to_the_node_it_is_told() -> None:
    """kube-scheduler has scores of its own."""
    bench = Bench()
    (first, other) = bench.filter()
    bench.world.freed.clear()
    assert await bench.bind(other) == ""
    assert bench.used_mib(other) == 3 * GIB
    assert bench.used_mib(first) == 0
    assert first in bench.world.freed


async def test_without_a_filter_before_the_pod_is_read() -> None:
    """So it is after a restart of ours."""
    bench = Bench()
    assert await bench.bind() == ""
    assert bench.server.reads == 1


@pytest.mark.parametrize(
    "error",
    [
        kube_errors.NotFound(404, "NotFound", "gone"),
        kube_errors.Forbidden(403, "Forbidden", "no"),
        kube_errors.Unreachable("refused", sent=False),
        kube_errors.TooManyRequests(429, "TooManyRequests", "later"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_bind_that_failed_leaves_no_trace(error: Exception) -> None:
    """The reason is in the answer, and the room is free again."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [error]
    assert str(error) in await bench.bind()
    assert bench.used_mib() == bench.used_mib("n2") == 0
    assert bench.world.fleet.holds == 0


@pytest.mark.parametrize(
    "error",
    [
        kube_errors.Unreachable("timed out", sent=True),
        kube_errors.ServerError(500, "InternalError", "etcdserver: request timed out"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_an_unknown_outcome_keeps_the_room_for_longer_than_a_request_lives(
    error: Exception,
) -> None:
    """The Binding may have happened; until that is known nobody else gets the room."""
    bench = Bench()
    bench.server.answers = [error]
    assert await bench.bind() != ""
    bench.world.clock.now += 60
    bench.world.decider.expire()
    assert bench.used_mib() == 3 * GIB
    assert bench.filter() == ["n1"]  # it may be bound there already, so nowhere else
    bench.world.clock.now += 60
    await bench.binder.settle()  # nothing that was sent can happen any more, so the pod knows
    assert bench.used_mib() == 0
    assert not bench.binder.busy


async def test_while_the_server_is_away_a_doubt_stays() -> None:
    """Time alone proves nothing: the pod has to be read."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.world.clock.now += 1000
    bench.server.away = True
    await bench.binder.settle()
    bench.world.decider.expire()
    assert bench.used_mib() == 3 * GIB
    assert bench.binder.busy
    bench.server.away = False
    bench.server.pod = _bound_to("n1")
    await bench.binder.settle()
    assert bench.used_mib() == 3 * GIB
    assert bench.world.fleet.holds == 0
    assert not bench.binder.busy


async def test_a_doubt_about_a_pod_that_is_gone_ends() -> None:
    """Nobody has what it may have had."""
    bench = Bench()
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    bench.world.clock.now += 1000
    bench.server.pod = None
    await bench.binder.settle()
    assert bench.used_mib() == 0
    assert not bench.binder.busy


async def test_a_pod_that_the_watch_dropped_is_not_put_again() -> None:
    """A read may be older than the word that the pod is gone."""
    bench = Bench()
    bench.server.pod = _bound_to("n1")
    bench.world.mirror.pods.put(_bound_to("n1"))
    bench.world.mirror.pods.drop("uid-p")
    assert await bench.bind() == "pod default/p is gone"
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
    assert bench.world.fleet.holds == 0


async def test_while_in_doubt_a_pod_keeps_the_very_cards_it_may_have() -> None:
    """Another choice would give those away, and they may be taken already."""
    bench = Bench("n1")
    bench.server.answers = [kube_errors.Unreachable("timed out", sent=True)]
    assert await bench.bind() != ""
    before = bench.world.free_mib("n1")
    for name in ("a", "b"):  # a policy would choose the other card now
        bench.world.mirror.pods.put(
            making.pod(name, {making.MEMORY: 4}, on="n1", annotations=making.gpushare_record(4, 1))
        )
    assert await bench.bind() == ""
    record = json.loads(bench.server.bindings[0]["metadata"]["annotations"]["partage.dev/grant"])
    assert record["containers"][0]["shares"][0]["index"] == 0
    assert bench.world.free_mib("n1")[0] == before[0]


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
    assert bench.world.decider.asking("uid-p") is not None
    bench.world.mirror.pods.drop("uid-p")
    bench.world.decider.expire()
    assert bench.world.decider.asking("uid-p") is None


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
    bench.server.pod = making.pod("p", {making.MEMORY: 3}, uid="new")
    assert "not equal with expected uid-p" in await bench.bind()
    assert bench.used_mib() == 0


async def test_a_conflict_about_an_unbound_pod_is_an_error_and_gives_back() -> None:
    """A gated pod is refused so."""
    bench = Bench()
    bench.filter()
    bench.server.answers = [_conflict()]
    assert "409 Conflict" in await bench.bind()
    assert bench.used_mib() == 0


async def test_where_it_no_longer_fits_bind_says_what_is_short() -> None:
    """The state of this moment decides, whatever filter said."""
    bench = Bench("n1")
    bench.filter()
    for i in range(2):
        bench.world.mirror.pods.put(
            making.pod(
                f"a{i}", {making.MEMORY: 14}, on="n1", annotations=making.gpushare_record(14, i)
            )
        )
    assert "2048 MiB" in await bench.bind()
    assert bench.server.bindings == []
    assert bench.world.fleet.holds == 0


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
    bench.world.mirror.pods.put(_bound_to("n1"))
    bench.world.mirror.pods.drop("uid-p")
    bench.server.gate.set()
    assert await bound == ""
    assert bench.used_mib() == 0


async def test_a_replica_that_may_not_bind_sends_nothing() -> None:
    """Its lease is about to end."""
    bench = Bench()
    bench.stopped = "not the leader"
    assert await bench.bind() == "not the leader"
    assert bench.server.bindings == []
    assert bench.used_mib() == 0


async def test_a_pod_that_asks_for_no_card_is_just_bound() -> None:
    """kube-scheduler sends whoever names a managed resource, be it with zero."""
    bench = Bench()
    bench.server.pod = making.pod("p", {"nvidia.com/gpu": 0})
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
        base.Marks({"a" * 300: "x"}),
        base.Marks({"has blank": "x"}),
        base.Marks({"a": "x" * (names.MOST_BYTES + 1)}),
        base.Marks({}, {"label": "not a value!"}),
    ):
        with pytest.raises(names.IllegalName):
            names.check_marks(marks, making.pod("p"))
    crowded = making.pod("p", annotations={"mine": "x" * names.MOST_BYTES})
    with pytest.raises(names.IllegalName, match="with its grant"):
        names.check_marks(base.Marks({"a": "b"}), crowded)
