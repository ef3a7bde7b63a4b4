"""Nodes, pods with grants, checkpoints and an API server, for the tests of the agent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from partage.agent import identity, node_pods, settings, world
from partage.core import cards, grants
from partage.devices import nvml
from partage.dialects import base, nodes, pods
from partage.kubelet import checkpoint
from tests.dialects import making as dialects
from tests.fence import making as fences
from tests.kube import scripted

NODE = "gpu-1"
GIB = 1024
MEMORY, CORE = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
OWN_MEMORY, OWN_CARDS = "partage.dev/memory-mib", "partage.dev/cards"
WHOLE = "nvidia.com/gpu"

uuid = fences.uuid
container = dialects.container


def device(index: int, memory_mib: int = 16 * GIB, **more: Any) -> nvml.Device:
    """A card as the driver tells of it."""
    facts = {"uuid": uuid(index), "model": "Tesla T4", **more}
    return nvml.Device(index=index, memory_mib=memory_mib, **facts)


def facts(
    *memory_mib: int,
    labels: Mapping[str, str] | None = None,
    spoken: Iterable[str] = settings.USUAL,
    counting: base.Settings | None = None,
) -> world.World:
    """What an agent knows of a node with cards of these sizes, two of 16 GiB if none is named."""
    made = world.World(NODE, counting or base.Settings(), spoken)
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
    asked = pods.Pod(meta, pods.Spec((app, *more), tuple(init)))
    there = where or facts().node
    given = dialects.grant(asked, there, *(indexes or (0,)))
    return dialects.bound(asked, dialects.marks(given, asked, there).annotations, there.name)


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

    def __init__(self, *known: pods.Pod, late: Iterable[pods.Pod] = ()) -> None:
        self.known = {each.metadata.uid: each for each in known}
        self.late = list(late)
        self.caught_up = 0
        self.told: list[Mapping[str, identity.Status]] = []  # one answer for each question

    def add(self, *these: pods.Pod) -> None:
        """More pods are known."""
        self.known.update({each.metadata.uid: each for each in these})

    async def catch_up(self) -> None:
        """What was late is known."""
        self.caught_up += 1
        self.add(*self.late)

    async def statuses(self, pod: pods.Pod) -> Mapping[str, identity.Status]:
        """The next answer; the last one again and again."""
        return self.told.pop(0) if len(self.told) > 1 else self.told[0]


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
    known = {resource: sorted(ids) for resource, ids in (registered or {}).items()}
    data = {"PodDeviceEntries": entries, "RegisteredDevices": known}
    file = folder / checkpoint.NAME
    file.write_text(json.dumps({"Data": data, "Checksum": 1}))
    return file


def share(index: int = 0, memory_mib: int = GIB, **more: Any) -> grants.Share:
    """A part of a card."""
    return grants.Share(uuid=uuid(index), index=index, memory_mib=memory_mib, **more)


def bodies(server: scripted.Server, verb: str, ending: str = "") -> list[Any]:
    """What was sent with a verb, to paths that end so."""
    return [
        json.loads(asked.body)
        for asked in server.requests
        if asked.verb == verb and asked.path.endswith(ending)
    ]


async def settled(work: Callable[[], Awaitable[object]], times: int = 2) -> None:
    """Do something again and again."""
    for _ in range(times):
        await work()
