"""The pods of a node are watched, and listed where the kubelet is ahead of the watch."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from partage.agent.pods import node_pods
from partage.dialects import pods
from partage.kube import api
from partage.kube import errors as kube_errors
from tests.agent import agent_node
from tests.kube import api_clients, scripted_server, things

A, B = (
    msgspec.convert(
        msgspec.to_builtins(agent_node.unplaced(name, {agent_node.MEMORY: 1})), node_pods.Pod
    )
    for name in "ab"
)


def listed(*these: pods.Pod) -> scripted_server.Answer:
    """A list of pods."""
    items = [msgspec.to_builtins(pod) for pod in these]
    return scripted_server.Answer({"metadata": {"resourceVersion": "1"}, "items": items})


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
def pods_of_node(client: api.Api, changes: Changes) -> node_pods.NodePods:
    """The pods of the node; nobody watches."""
    return node_pods.NodePods(client, agent_node.NODE, changes)


async def test_pods_are_watched(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server, changes: Changes
) -> None:
    """Of this node alone; each change is told once."""
    watch = scripted_server.Watch(
        {"type": "ADDED", "object": msgspec.to_builtins(A)}, things.end_of_list(1)
    )
    server.script(watch)
    async with api_clients.running(pods_of_node.reflector.run()):
        await pods_of_node.reflector.synced.wait()
        assert pods_of_node.by_uid == {"uid-a": A}
        for kind, pod in (("MODIFIED", A), ("ADDED", B), ("DELETED", A)):
            watch.send({"type": kind, "object": msgspec.to_builtins(pod)})
        await scripted_server.until(lambda: "uid-a" not in pods_of_node.by_uid)
    assert server.requests[0].query["fieldSelector"] == f"spec.nodeName={agent_node.NODE}"
    assert changes == [("uid-a", True), ("uid-b", True), ("uid-a", False)]
    assert (pods_of_node.uid_of("lab", "b"), pods_of_node.uid_of("lab", "a")) == ("uid-b", "")
    assert pods_of_node.uid_of("other", "b") == ""


async def test_catching_up_lists_the_pods_of_this_node(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server, changes: Changes
) -> None:
    """What is known stays known: a list that is older than the watch takes nothing away."""
    pods_of_node.put(A)
    server.script(listed(B))
    await pods_of_node.catch_up()
    assert pods_of_node.by_uid == {"uid-a": A, "uid-b": B}
    [request] = server.requests
    assert (request.path, request.query["fieldSelector"]) == ("/api/v1/pods", "spec.nodeName=gpu-1")
    assert changes == [("uid-a", True), ("uid-b", True)]


class Slow:
    """A list that is answered when it is told to."""

    def __init__(self, answer: scripted_server.Answer) -> None:
        self.answer = answer
        self.gate = asyncio.Event()

    async def serve(self, request: Any) -> Any:
        """Wait, then answer."""
        await self.gate.wait()
        return await self.answer.serve(request)


async def test_an_answer_is_younger_than_its_question(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server
) -> None:
    """Who asks while a list is under way waits for the next, with all others who do."""
    slow = Slow(listed(A))
    steps = iter([slow, listed(A, B)])
    server.respond = lambda _: next(steps)  # type: ignore[assignment, return-value]
    first = asyncio.create_task(pods_of_node.catch_up())
    await scripted_server.until(lambda: server.requests)
    others = [asyncio.create_task(pods_of_node.catch_up()) for _ in range(20)]
    await asyncio.sleep(0)  # all of them ask
    slow.gate.set()
    await asyncio.gather(first, *others)
    assert len(server.requests) == 2
    assert pods_of_node.by_uid.keys() == {"uid-a", "uid-b"}


async def test_a_list_that_failed_is_asked_for_again(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server
) -> None:
    """The failure is told to whoever asked for that list, and to nobody later."""
    server.script(scripted_server.refusal(500, "InternalError"), listed(A))
    with pytest.raises(kube_errors.ServerError):
        await pods_of_node.catch_up()
    await pods_of_node.catch_up()
    assert pods_of_node.by_uid == {"uid-a": A}


async def test_what_the_watch_brings_of_annotations_is_kept_short(
    pods_of_node: node_pods.NodePods,
) -> None:
    """Tenants write annotations, and the agent has little memory."""
    pod = agent_node.pod(
        "a", {agent_node.MEMORY: 1}, annotations={"example.com/big": "x" * 100_000}
    )
    pods_of_node.put(pod)
    kept = pods_of_node.by_uid["uid-a"].metadata.annotations
    assert "example.com/big" not in kept
    assert kept.keys() == pod.metadata.annotations.keys() - {"example.com/big"}


async def test_statuses_of_init_containers_are_asked_for(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server
) -> None:
    """At this moment, and of the very pod."""
    waiting = {"name": "prepare", "state": {"waiting": {}}, "lastState": {}}
    done = {"name": "second", "state": {"terminated": {"exitCode": 0}}}
    server.script(scripted_server.Answer({"status": {"initContainerStatuses": [waiting, done]}}))
    statuses = await pods_of_node.statuses(A)
    assert server.requests[0].path == "/api/v1/namespaces/lab/pods/a"
    assert {name: status.finished for name, status in statuses.items()} == {
        "prepare": False,
        "second": True,
    }


async def test_a_list_never_undoes_what_the_watch_told(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server, changes: Changes
) -> None:
    """An answer that was on its way meanwhile is older: it brings back no pod, and no old state."""
    slow = Slow(listed(A, B))
    server.respond = lambda _: slow  # type: ignore[assignment, return-value]
    pods_of_node.put(A)
    pods_of_node.put(B)
    asking = asyncio.create_task(pods_of_node.catch_up())
    await scripted_server.until(lambda: server.requests)
    pods_of_node.drop("uid-a")
    pods_of_node.put(agent_node.ended(B))
    slow.gate.set()
    await asking
    assert pods_of_node.by_uid == {"uid-b": agent_node.ended(B)}
    assert changes[-2:] == [("uid-a", False), ("uid-b", True)]


async def test_a_name_that_two_pods_have_is_nobodys(pods_of_node: node_pods.NodePods) -> None:
    """A pod was made anew, and the watch has not told yet that its predecessor is gone."""
    pods_of_node.put(A)
    pods_of_node.put(
        msgspec.structs.replace(A, metadata=msgspec.structs.replace(A.metadata, uid="new"))
    )
    assert pods_of_node.uid_of("lab", "a") == ""
    pods_of_node.drop("uid-a")
    assert pods_of_node.uid_of("lab", "a") == "new"


async def test_where_containers_have_volumes_is_known(
    pods_of_node: node_pods.NodePods, server: scripted_server.Server
) -> None:
    """As paths, however they were written."""
    pod = msgspec.to_builtins(A)
    mounts = [{"name": "v", "mountPath": path} for path in ("/etc/", "data", "//etc/../srv")]
    pod["spec"]["containers"][0]["volumeMounts"] = mounts
    server.script(scripted_server.Answer({"metadata": {"resourceVersion": "1"}, "items": [pod]}))
    await pods_of_node.catch_up()
    pod = pods_of_node.by_uid["uid-a"]
    assert list(node_pods.mounted(pod, ["main"])) == ["/etc", "/data", "/srv"]
    assert list(node_pods.mounted(pod, ["other"])) == []
