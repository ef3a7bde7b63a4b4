"""A takeover ends, whatever single pods do, and before it ends nothing old can happen any more."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler.binds import bind_states
from tests.scheduler import extender_parts, small_cluster

FORBIDDEN = kube_errors.Forbidden(403, "Forbidden", "a webhook says no")
FAILING = kube_errors.ServerError(500, "InternalError", "failed calling webhook")
UNREADABLE = b"<html>"


class Server(kube.Api):
    """Pods that wait, some of which cannot be written on."""

    def __init__(self, count: int) -> None:
        """Nothing is connected."""
        self.pods = {
            f"p{i}": small_cluster.pod(f"p{i}", {small_cluster.MEMORY: 1}, version=7)
            for i in range(count)
        }
        self.answers: dict[str, Exception | bytes] = {}
        self.renewed: list[str] = []
        self.reads: list[str] = []
        self.lost: Exception | None = None  # in place of a pod

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Give a pod a newer version, if it can be written on."""
        name = path.split("/")[6]
        answer = self.answers.get(name)
        if isinstance(answer, Exception):
            raise answer
        if answer is not None:
            return answer
        self.renewed.append(name)
        pod = self.pods[name]
        meta = msgspec.structs.replace(pod.metadata, resource_version="8")
        return msgspec.json.encode(msgspec.structs.replace(pod, metadata=meta))

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """Read a pod."""
        self.reads.append(path.split("/")[6])
        if self.lost is not None:
            raise self.lost
        return self.pods[path.split("/")[6]]


def _wired(server: Server) -> extender_parts.Wired:
    cluster = small_cluster.Cluster()
    cluster.mirror.nodes.put(small_cluster.node())
    for pod in server.pods.values():
        cluster.mirror.pods.put(pod)
    return extender_parts.Wired(cluster, server, sleep=_slept(cluster))


def _slept(cluster: small_cluster.Cluster) -> Any:
    async def sleep(seconds: float) -> None:
        cluster.clock.now += seconds
        await asyncio.sleep(0)

    return sleep


async def test_all_pods_that_wait_get_a_newer_version() -> None:
    """In no particular order."""
    server = Server(40)
    await _wired(server).takeover.run()
    assert sorted(server.renewed) == sorted(server.pods)


@pytest.mark.parametrize("answer", [FORBIDDEN, FAILING, UNREADABLE], ids=["403", "500", "no JSON"])
async def test_a_pod_that_cannot_be_written_on_is_asked_when_nothing_old_can_happen(
    answer: Exception | bytes,
) -> None:
    """All others are renewed at once, and the start is late but not for ever."""
    server = Server(20)
    server.answers["p0"] = answer
    wired = _wired(server)
    began = wired.cluster.clock.now
    await wired.takeover.run()
    assert len(server.renewed) == 19
    assert server.reads[-1] == "p0"
    assert (
        bind_states.LAST_RESORT_S <= wired.cluster.clock.now - began < 2 * bind_states.LAST_RESORT_S
    )


async def test_a_pod_that_goes_meanwhile_is_not_waited_for() -> None:
    """Its word is that of the watch."""
    server = Server(2)
    server.answers["p0"] = FAILING
    wired = _wired(server)
    running = asyncio.create_task(wired.takeover.run())
    await asyncio.sleep(0)
    wired.cluster.mirror.pods.drop("uid-p0")
    await asyncio.wait_for(running, 30)
    assert server.reads == []


async def test_a_missing_right_is_reported() -> None:
    """With what to do."""
    server = Server(3)
    server.answers = dict.fromkeys(server.pods, FORBIDDEN)
    wired = _wired(server)
    await wired.takeover.run()
    assert "pods/status" in dict(wired.cluster.mirror.problems)["patches of pods/status"]


async def test_an_unreadable_answer_to_a_patch_is_an_error_of_the_server() -> None:
    """And ends nothing of ours."""
    server = Server(1)
    server.answers["p0"] = UNREADABLE
    with pytest.raises(kube_errors.BadAnswer):
        await _wired(server).patches.nominate(server.pods["p0"].identity, "n1")


async def test_a_proxy_that_knows_nothing_does_not_end_a_doubt() -> None:
    """Its 404 is no word of the pod."""
    server = Server(1)
    wired = _wired(server)
    cluster = wired.cluster
    body = small_cluster.wire_pod("p0", {small_cluster.MEMORY: "1"}, resourceVersion="7")
    cluster.filter(small_cluster.args(body, ["n1"]))
    assert cluster.binds.send("uid-p0", "n1", 7) is not None
    cluster.binds.happen("uid-p0", bind_states.Unanswered(cluster.clock.now))

    server.lost = kube_errors.from_answer(404, b"default backend - 404", request="GET")
    with pytest.raises(kube_errors.NotFound):
        await wired.lookup.ask(small_cluster.pod("p0").identity)
    assert isinstance(cluster.binds.of("uid-p0"), bind_states.InDoubt)
    status = json.dumps({"reason": "NotFound", "code": 404}).encode()
    server.lost = kube_errors.from_answer(404, status, request="GET")
    with pytest.raises(kube_errors.NotFound):
        await wired.lookup.ask(small_cluster.pod("p0").identity)
    assert cluster.binds.of("uid-p0") is None
