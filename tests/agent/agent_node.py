"""A node with its pods, grants and checkpoint, and what an API server was sent about it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from partage.agent import node_state
from partage.agent.pods import identity, node_pods
from partage.core import cards, grants
from partage.devices import nvml
from partage.dialects import contract, nodes, pods, registry
from partage.kube import api as kube
from partage.kubelet import checkpoint
from tests.dialects import dialect_pods
from tests.fence import small_limits
from tests.kube import scripted_server

NODE = "gpu-1"
GIB = 1024
MEMORY, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
OWN_MEMORY, OWN_CARDS = "partage.dev/memory-mib", "partage.dev/cards"
WHOLE = "nvidia.com/gpu"

uuid = small_limits.uuid
container = dialect_pods.container


def device(index: int, memory_mib: int = 16 * GIB, **more: Any) -> nvml.Device:
    """A card as the driver tells of it."""
    facts = {"uuid": uuid(index), "model": "Tesla T4", **more}
    return nvml.Device(index=index, memory_mib=memory_mib, **facts)


def facts(
    *memory_mib: int,
    labels: Mapping[str, str] | None = None,
    spoken: Iterable[str] | None = None,
    counting: contract.Settings | None = None,
) -> node_state.NodeState:
    """What an agent knows of a node with cards of these sizes, two of 16 GiB if none is named."""
    served = registry.served_by_default() if spoken is None else spoken
    made = node_state.NodeState(NODE, counting or contract.Settings(), served)
    sizes = memory_mib or (16 * GIB, 16 * GIB)
    made.set_devices(device(index, size) for index, size in enumerate(sizes))
    made.set_labels(labels or {})
    return made


def pod(
    name: str,
    limits: Mapping[str, pods.Amount],
    *indexes: int,
    where: cards.Node | None = None,
    init: Iterable[pods.Container] = (),
    more: Iterable[pods.Container] = (),
    annotations: Mapping[str, str] | None = None,
) -> pods.Pod:
    """A pod that is bound to the node, with all its containers on these cards; recorded."""
    meta = pods.Metadata(name, "lab", f"uid-{name}", annotations or {})
    app = container("main", limits)
    request = pods.Pod(meta, pods.Spec((app, *more), tuple(init)))
    node = where or facts().node
    given = dialect_pods.grant(request, node, *(indexes or (0,)))
    return dialect_pods.bound(
        request, dialect_pods.marks(given, request, node).annotations, node.name
    )


def unplaced(name: str, limits: Mapping[str, pods.Amount]) -> pods.Pod:
    """A pod that somebody bound without asking the extender."""
    meta = pods.Metadata(name, "lab", f"uid-{name}")
    return pods.Pod(meta, pods.Spec((container("main", limits),), node_name=NODE))


def ended(pod: pods.Pod) -> pods.Pod:
    """The same pod when all is over."""
    return msgspec.structs.replace(pod, status=pods.Status(phase="Succeeded"))


def node_object(
    *, annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> nodes.Node:
    """The node as the API server has it."""
    return nodes.Node(nodes.Metadata(NODE, NODE, dict(annotations or {}), dict(labels or {})))


class Pods(node_pods.NodePods):
    """The pods of the node without a watch: some are known, some only when they are listed."""

    def __init__(self, *these: pods.Pod, late: Iterable[pods.Pod] = ()) -> None:
        self.by_uid = {pod.metadata.uid: pod for pod in these}
        self.late = list(late)
        self.caught_up = 0
        self.answers: list[Mapping[str, identity.Status]] = []  # one answer for each question

    def add(self, *these: pods.Pod) -> None:
        """More pods are known."""
        self.by_uid.update({pod.metadata.uid: pod for pod in these})

    async def catch_up(self) -> None:
        """What was late is known."""
        self.caught_up += 1
        self.add(*self.late)

    async def statuses(self, pod: pods.Pod) -> Mapping[str, identity.Status]:
        """The next answer; the last one again and again."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class NoApi(kube.Api):
    """An API server that nobody may ask."""

    def __init__(self) -> None:
        """Nothing is connected."""

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """Containers without a claim start without a word from it."""
        raise AssertionError(f"GET {path}")


Held = tuple[str, str, str, Collection[str]]  # pod, container, resource, IDs


def checkpointed(
    folder: Path, *held: Held, registered: Mapping[str, Iterable[str]] | None = None
) -> Path:
    """The kubelet's record of who has what; pods by their names."""
    entries = [
        {
            "PodUID": f"uid-{name}",
            "ContainerName": container,
            "ResourceName": resource,
            "DeviceIDs": {"-1": sorted(ids)},
            "AllocResp": "",
        }
        for name, container, resource, ids in held
    ]
    registrations = {resource: sorted(ids) for resource, ids in (registered or {}).items()}
    data = {"PodDeviceEntries": entries, "RegisteredDevices": registrations}
    file = folder / checkpoint.NAME
    file.write_text(json.dumps({"Data": data, "Checksum": 1}))
    return file


def share(index: int = 0, memory_mib: int = GIB, **more: Any) -> grants.Share:
    """A part of a card."""
    return grants.Share(uuid=uuid(index), index=index, memory_mib=memory_mib, **more)


def bodies(server: scripted_server.Server, verb: str, ending: str = "") -> list[Any]:
    """What was sent with a verb, to paths that end so."""
    return [
        json.loads(request.body)
        for request in server.requests
        if request.verb == verb and request.path.endswith(ending)
    ]


async def settled(work: Callable[[], Awaitable[object]], times: int = 2) -> None:
    """Do something again and again."""
    for _ in range(times):
        await work()
