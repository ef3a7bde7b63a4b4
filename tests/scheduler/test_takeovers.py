"""A takeover ends, whatever single pods do, and before it ends nothing old can happen any more."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler import binds
from tests.scheduler import making, wiring

FORBIDDEN = kube_errors.Forbidden(403, "Forbidden", "a webhook says no")
FAILING = kube_errors.ServerError(500, "InternalError", "failed calling webhook")
UNREADABLE = b"<html>"


class Server(kube.Api):
    """Pods that wait, some of which cannot be written on."""

    def __init__(self, count: int) -> None:
        """Nothing is connected."""
        self.pods = {
            f"p{i}": making.pod(f"p{i}", {making.MEMORY: 1}, version=7) for i in range(count)
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


def _wired(server: Server) -> wiring.Wired:
    world = making.World()
    world.mirror.nodes.put(making.node())
    for pod in server.pods.values():
        world.mirror.pods.put(pod)
    return wiring.Wired(world, server, sleep=_slept(world))


def _slept(world: making.World) -> Any:
    async def sleep(seconds: float) -> None:
        world.clock.now += seconds
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
    began = wired.world.clock.now
    await wired.takeover.run()
    assert len(server.renewed) == 19
    assert server.reads[-1] == "p0"
    assert binds.LAST_RESORT_S <= wired.world.clock.now - began < 2 * binds.LAST_RESORT_S


async def test_a_pod_that_goes_meanwhile_is_not_waited_for() -> None:
    """Its word is that of the watch."""
    server = Server(2)
    server.answers["p0"] = FAILING
    wired = _wired(server)
    running = asyncio.create_task(wired.takeover.run())
    await asyncio.sleep(0)
    wired.world.mirror.pods.drop("uid-p0")
    await asyncio.wait_for(running, 5)
    assert server.reads == []


async def test_a_missing_right_is_reported() -> None:
    """With what to do."""
    server = Server(3)
    server.answers = dict.fromkeys(server.pods, FORBIDDEN)
    wired = _wired(server)
    await wired.takeover.run()
    assert "pods/status" in dict(wired.world.mirror.problems)["patches of pods/status"]


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
    world = wired.world
    body = making.wire_pod("p0", {making.MEMORY: "1"}, resourceVersion="7")
    world.filter(making.args(body, ["n1"]))
    assert world.binds.send("uid-p0", "n1", 7) is not None
    world.binds.happen("uid-p0", binds.Unanswered(world.clock.now))

    server.lost = kube_errors.from_answer(404, b"default backend - 404", request="GET")
    with pytest.raises(kube_errors.NotFound):
        await wired.inquiries.ask(making.pod("p0").identity)
    assert isinstance(world.binds.of("uid-p0"), binds.InDoubt)
    status = json.dumps({"reason": "NotFound", "code": 404}).encode()
    server.lost = kube_errors.from_answer(404, status, request="GET")
    with pytest.raises(kube_errors.NotFound):
        await wired.inquiries.ask(making.pod("p0").identity)
    assert world.binds.of("uid-p0") is None
