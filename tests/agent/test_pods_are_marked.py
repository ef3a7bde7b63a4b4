"""What was started is written on pods, until it stands there, and nothing twice."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from partage.agent.cluster import pod_marks
from partage.agent.containers import cdi
from partage.core import grants
from partage.dialects import bound_pods, grant_record, pods
from partage.dialects.families import hami_records
from partage.kube import api
from tests.agent import agent_node
from tests.agent.agent_node import MEMORY, OWN_CARDS, OWN_MEMORY
from tests.dialects import dialect_pods
from tests.kube import api_clients, scripted_server

ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"


def began(name: str = "train", container: str = "main", fence: str = "hook") -> cdi.Started:
    """Something that was started."""
    device = cdi.device(MEMORY, [name, container])
    return cdi.Started(
        uid=f"uid-{name}", container=container, resource=MEMORY, fence=fence, device=device
    )


def granted(pod: pods.Pod) -> grants.Grant:
    """What the pod has, by its own record."""
    grant = bound_pods.granted(pod, agent_node.facts().node, dialect_pods.SETTINGS)
    assert isinstance(grant, grants.Grant), grant
    return grant


def marked(pod: pods.Pod, *these: cdi.Started) -> pods.Pod:
    """The pod with what is to be written."""
    change = pod_marks.changes(pod, granted(pod), these)
    return dialect_pods.bound(pod, change, pod.spec.node_name)


def fences(pod: pods.Pod) -> dict[str, str]:
    """The fence of each container, by the pod's record."""
    return {container.name: container.fence for container in granted(pod).containers}


class TestChanges:
    """What has to be written on a pod."""

    def test_a_pod_of_gpushare_is_assigned(self) -> None:
        """In the words of its own tools, and its record gets the fence; nothing else changes."""
        pod = agent_node.pod("train", {MEMORY: 2}, 1)
        change = pod_marks.changes(pod, granted(pod), [began()])
        assert change.keys() == {ASSIGNED, grant_record.GRANT}
        assert change[ASSIGNED] == "true"
        assert fences(marked(pod, began())) == {"main": "hook"}
        before = msgspec.structs.replace(granted(pod).containers[0], fence="hook")
        assert granted(marked(pod, began())).containers == (before,)

    def test_once_it_stands_there_nothing_is_to_be_written(self) -> None:
        """Every change of a pod wakes everybody who watches it."""
        pod = marked(agent_node.pod("train", {MEMORY: 2}), began())
        assert pod_marks.changes(pod, granted(pod), [began()]) == {}

    def test_only_what_differs_is_written(self) -> None:
        """A fence that became another one, for example after an upgrade of the node."""
        pod = marked(agent_node.pod("train", {MEMORY: 2}), began())
        assert pod_marks.changes(pod, granted(pod), [began(fence="advisory")]).keys() == {
            grant_record.GRANT
        }

    def test_each_container_has_its_own_fence(self) -> None:
        """One that was not started yet has none, and one of before keeps what it had."""
        pod = agent_node.pod(
            "train",
            {OWN_CARDS: 1, OWN_MEMORY: 100},
            more=[agent_node.container("second", {OWN_CARDS: 1, OWN_MEMORY: 100})],
        )
        pod = marked(pod, began())
        assert fences(pod) == {"main": "hook", "second": ""}
        assert fences(marked(pod, began(container="second", fence="none"))) == {
            "main": "hook",
            "second": "none",
        }

    def test_a_pod_of_another_system_gets_no_record(self) -> None:
        """It was taken over while it ran: only its own words are completed."""
        pod = agent_node.pod("train", {MEMORY: 2})
        annotations = {k: v for k, v in pod.metadata.annotations.items() if k != grant_record.GRANT}
        meta = msgspec.structs.replace(pod.metadata, annotations=annotations)
        old = msgspec.structs.replace(pod, metadata=meta)
        assert pod_marks.changes(old, granted(old), [began()]) == {ASSIGNED: "true"}

    def test_every_family_has_its_words(self) -> None:
        """gpu-manager's and HAMi's; others have none, and get the record alone."""
        words = {
            "tencent.com/vcuda-core": {"tencent.com/gpu-assigned": "true"},
            "nvidia.com/gpumem": {hami_records.BIND_PHASE: "success"},
            OWN_CARDS: {},
        }
        for resource, marks in words.items():
            limits: dict[str, pods.Amount] = {resource: 1 if resource == OWN_CARDS else 20}
            if resource.startswith("tencent"):
                limits["tencent.com/vcuda-memory"] = 4
            if resource.startswith("nvidia"):
                limits["nvidia.com/gpu"] = 1
            pod = agent_node.pod("train", limits)
            change = pod_marks.changes(pod, granted(pod), [began()])
            assert {k: v for k, v in change.items() if k != grant_record.GRANT} == marks
            assert grant_record.GRANT in change


class Node:
    """A marker with its pods, and what was started."""

    def __init__(self, client: api.Api) -> None:
        self.pods = agent_node.Pods()
        self.started: dict[str, cdi.Started] = {}
        self.marker = pod_marks.Marker(client, self.pods, agent_node.facts(), self.started)

    def start(self, pod: pods.Pod) -> None:
        """A pod is there, and its container was started."""
        self.pods.add(pod)
        started = began(pod.metadata.name)
        self.started[started.device] = started
        self.marker.look(started.uid)


@pytest.fixture
def node(client: api.Api, monkeypatch: pytest.MonkeyPatch) -> Node:
    """A node whose marker is quick to try again."""
    monkeypatch.setattr(pod_marks, "_AGAIN_S", 0.01)
    return Node(client)


async def test_a_started_pod_is_patched(node: Node, server: scripted_server.Server) -> None:
    """By its uid, so that another pod of that name is left alone."""
    server.script(scripted_server.Answer(), scripted_server.Answer())
    pod = agent_node.pod("train", {MEMORY: 2})
    async with api_clients.running(node.marker.run()):
        node.start(pod)
        node.marker.look("uid-train")  # it waits already
        node.start(agent_node.pod("other", {MEMORY: 2}))
        await scripted_server.until(lambda: len(server.requests) == 2)
    requests = [(request.verb, request.path.rpartition("/v1")[2]) for request in server.requests]
    assert requests == [
        ("PATCH", "/namespaces/lab/pods/train"),
        ("PATCH", "/namespaces/lab/pods/other"),
    ]
    change = pod_marks.changes(pod, granted(pod), [began()])
    [body] = agent_node.bodies(server, "PATCH", "train")
    assert body == {"metadata": {"uid": "uid-train", "annotations": change}}


@pytest.mark.parametrize(
    "step", [scripted_server.refusal(500, "InternalError"), scripted_server.Hangup()]
)
async def test_what_failed_is_tried_again(
    node: Node, server: scripted_server.Server, step: scripted_server.Step
) -> None:
    """Until it stands there; others do not wait for it."""
    server.script(step, scripted_server.Answer(), scripted_server.Answer())
    async with api_clients.running(node.marker.run()):
        node.start(agent_node.pod("first", {MEMORY: 2}))
        node.start(agent_node.pod("second", {MEMORY: 2}))
        await scripted_server.until(lambda: len(server.requests) == 3)
    names = [request.path.rpartition("/")[2] for request in server.requests]
    assert names == ["first", "second", "first"]


@pytest.mark.parametrize(
    ("code", "reason"), [(404, "NotFound"), (409, "Conflict"), (422, "Invalid")]
)
async def test_a_pod_that_is_gone_is_dropped(
    node: Node, server: scripted_server.Server, code: int, reason: str
) -> None:
    """Another pod has its name by now; the next is marked, and this one not tried again."""
    server.script(scripted_server.refusal(code, reason), scripted_server.Answer())
    async with api_clients.running(node.marker.run()) as task:
        node.start(agent_node.pod("gone", {MEMORY: 2}))
        node.start(agent_node.pod("next", {MEMORY: 2}))
        await scripted_server.until(lambda: len(server.requests) == 2)
        await asyncio.sleep(pod_marks._AGAIN_S)  # a timer that was set for the first rang before
        node.start(agent_node.pod("last", {MEMORY: 2}))
        server.script(scripted_server.Answer())
        await scripted_server.until(lambda: len(server.requests) == 3)
        assert not task.done()
    names = [request.path.rpartition("/")[2] for request in server.requests]
    assert names == ["gone", "next", "last"]


async def test_nothing_is_written_where_nothing_differs(
    node: Node, server: scripted_server.Server
) -> None:
    """Nor on a pod of which nothing was started, that is gone, or whose record is damaged."""
    done = marked(agent_node.pod("done", {MEMORY: 2}), began("done"))
    waits = agent_node.pod("waits", {MEMORY: 2})
    broken = dialect_pods.bound(
        agent_node.pod("broken", {MEMORY: 2}), {grant_record.GRANT: "{"}, agent_node.NODE
    )
    node.start(done)
    node.start(broken)
    node.pods.add(waits)
    for name in ("done", "waits", "broken", "unknown"):
        await node.marker._mark(f"uid-{name}")
    assert server.requests == []
