"""The pods of a node are watched, and listed where the kubelet is ahead of the watch."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from partage.agent import node_pods
from partage.dialects import pods
from partage.kube import api
from partage.kube import errors as kube_errors
from tests.agent import making
from tests.kube import making as kube
from tests.kube import scripted

A, B = (
    msgspec.convert(msgspec.to_builtins(making.unplaced(name, {making.MEMORY: 1})), node_pods.Pod)
    for name in "ab"
)


def listed(*these: pods.Pod) -> scripted.Answer:
    """A list of pods."""
    items = [msgspec.to_builtins(each) for each in these]
    return scripted.Answer({"metadata": {"resourceVersion": "1"}, "items": items})


class Changes(list[tuple[str, bool]]):
    """What was told: which pod, and whether it is there."""

    def __call__(self, uid: str, pod: pods.Pod | None) -> None:
        """Something changed."""
        self.append((uid, pod is not None))


@pytest.fixture
def changes() -> Changes:
    """Nothing yet."""
    return Changes()


@pytest.fixture
def known(client: api.Api, changes: Changes) -> node_pods.NodePods:
    """The pods of the node; nobody watches."""
    return node_pods.NodePods(client, making.NODE, changes)


async def test_pods_are_watched(
    known: node_pods.NodePods, server: scripted.Server, changes: Changes
) -> None:
    """Of this node alone; each change is told once."""
    watch = scripted.Watch({"type": "ADDED", "object": msgspec.to_builtins(A)}, kube.end_of_list(1))
    server.script(watch)
    async with kube.running(known.reflector.run()):
        await known.reflector.synced.wait()
        assert known.known == {"uid-a": A}
        for kind, pod in (("MODIFIED", A), ("ADDED", B), ("DELETED", A)):
            watch.send({"type": kind, "object": msgspec.to_builtins(pod)})
        await scripted.until(lambda: "uid-a" not in known.known)
    assert server.requests[0].query["fieldSelector"] == f"spec.nodeName={making.NODE}"
    assert changes == [("uid-a", True), ("uid-b", True), ("uid-a", False)]
    assert (known.uid_of("lab", "b"), known.uid_of("lab", "a")) == ("uid-b", "")
    assert known.uid_of("other", "b") == ""


async def test_catching_up_lists_the_pods_of_this_node(
    known: node_pods.NodePods, server: scripted.Server, changes: Changes
) -> None:
    """What is known stays known: a list that is older than the watch takes nothing away."""
    known.put(A)
    server.script(listed(B))
    await known.catch_up()
    assert known.known == {"uid-a": A, "uid-b": B}
    [asked] = server.requests
    assert (asked.path, asked.query["fieldSelector"]) == ("/api/v1/pods", "spec.nodeName=gpu-1")
    assert changes == [("uid-a", True), ("uid-b", True)]


class Slow:
    """A list that is answered when it is told to."""

    def __init__(self, answer: scripted.Answer) -> None:
        self.answer = answer
        self.gate = asyncio.Event()

    async def serve(self, request: Any) -> Any:
        """Wait, then answer."""
        await self.gate.wait()
        return await self.answer.serve(request)


async def test_an_answer_is_younger_than_its_question(
    known: node_pods.NodePods, server: scripted.Server
) -> None:
    """Who asks while a list is under way waits for the next, with all others who do."""
    slow = Slow(listed(A))
    steps = iter([slow, listed(A, B)])
    server.respond = lambda _: next(steps)  # type: ignore[assignment, return-value]
    first = asyncio.create_task(known.catch_up())
    await scripted.until(lambda: server.requests)
    others = [asyncio.create_task(known.catch_up()) for _ in range(20)]
    await asyncio.sleep(0.01)
    slow.gate.set()
    await asyncio.gather(first, *others)
    assert len(server.requests) == 2
    assert known.known.keys() == {"uid-a", "uid-b"}


async def test_a_list_that_failed_is_asked_for_again(
    known: node_pods.NodePods, server: scripted.Server
) -> None:
    """The failure is told to whoever asked for that list, and to nobody later."""
    server.script(scripted.refusal(500, "InternalError"), listed(A))
    with pytest.raises(kube_errors.ServerError):
        await known.catch_up()
    await known.catch_up()
    assert known.known == {"uid-a": A}


async def test_what_the_watch_brings_of_annotations_is_kept_short(
    known: node_pods.NodePods,
) -> None:
    """Tenants write annotations, and the agent has little memory."""
    pod = making.pod("a", {making.MEMORY: 1}, annotations={"example.com/big": "x" * 100_000})
    known.put(pod)
    kept = known.known["uid-a"].metadata.annotations
    assert "example.com/big" not in kept
    assert kept.keys() == pod.metadata.annotations.keys() - {"example.com/big"}


async def test_statuses_of_init_containers_are_asked_for(
    known: node_pods.NodePods, server: scripted.Server
) -> None:
    """At this moment, and of the very pod."""
    waiting = {"name": "prepare", "state": {"waiting": {}}, "lastState": {}}
    done = {"name": "second", "state": {"terminated": {"exitCode": 0}}}
    server.script(scripted.Answer({"status": {"initContainerStatuses": [waiting, done]}}))
    found = await known.statuses(A)
    assert server.requests[0].path == "/api/v1/namespaces/lab/pods/a"
    assert {name: status.finished for name, status in found.items()} == {
        "prepare": False,
        "second": True,
    }


async def test_a_list_never_undoes_what_the_watch_told(
    known: node_pods.NodePods, server: scripted.Server, changes: Changes
) -> None:
    """An answer that was on its way meanwhile is older: it brings back no pod, and no old state."""
    slow = Slow(listed(A, B))
    server.respond = lambda _: slow  # type: ignore[assignment, return-value]
    known.put(A)
    known.put(B)
    asking = asyncio.create_task(known.catch_up())
    await scripted.until(lambda: server.requests)
    known.drop("uid-a")
    known.put(making.ended(B))
    slow.gate.set()
    await asking
    assert known.known == {"uid-b": making.ended(B)}
    assert changes[-2:] == [("uid-a", False), ("uid-b", True)]


async def test_a_name_that_two_pods_have_is_nobodys(known: node_pods.NodePods) -> None:
    """A pod was made anew, and the watch has not told yet that its predecessor is gone."""
    known.put(A)
    known.put(msgspec.structs.replace(A, metadata=msgspec.structs.replace(A.metadata, uid="new")))
    assert known.uid_of("lab", "a") == ""
    known.drop("uid-a")
    assert known.uid_of("lab", "a") == "new"


async def test_where_containers_have_volumes_is_known(
    known: node_pods.NodePods, server: scripted.Server
) -> None:
    """As paths, however they were written."""
    told = msgspec.to_builtins(A)
    mounts = [{"name": "v", "mountPath": path} for path in ("/etc/", "data", "//etc/../srv")]
    told["spec"]["containers"][0]["volumeMounts"] = mounts
    server.script(scripted.Answer({"metadata": {"resourceVersion": "1"}, "items": [told]}))
    await known.catch_up()
    pod = known.known["uid-a"]
    assert list(node_pods.mounted(pod, ["main"])) == ["/etc", "/data", "/srv"]
    assert list(node_pods.mounted(pod, ["other"])) == []
