"""What the kubelet's PodResources API tells: who holds which device IDs, and which ones it counts.

It names pods that are active, with their sidecars and without their plain init containers, and it
tells no UID. The kubelet answers 100 questions a second from all who ask, so there is one question
for all pods, and "too many" is tried again.

Which IDs it counts is another question, which disturbs no allocation. The answer names every ID by
itself: 100,000 of them take some 0.2 s to read, so it is asked only where there is doubt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import grpc
import msgspec
from grpc import aio

from partage.kubelet import channels
from partage.kubelet.wire import pod_resources_pb2 as messages

SOCKET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
LARGEST_BYTES = 64 * 1024 * 1024

_TIMEOUT_S = 10.0
_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)  # each shortened by chance

_Answer = TypeVar("_Answer")


class Listed(msgspec.Struct, frozen=True):
    """The device IDs that one container holds of one resource."""

    namespace: str
    pod: str
    container: str
    resource: str
    ids: frozenset[str]


async def listed(
    socket: Path = SOCKET, *, chance: Callable[[], float] = random.random
) -> tuple[Listed, ...]:
    """What all containers hold; `Absent` or `Refused` if the kubelet does not say."""
    async with channels.opened(socket, largest_bytes=LARGEST_BYTES) as channel:
        ask = channel.unary_unary(
            "/v1.PodResourcesLister/List",
            messages.ListPodResourcesRequest.SerializeToString,
            messages.ListPodResourcesResponse.FromString,
        )
        what = "cannot find out which pod holds which devices"
        answer = await _answered(
            lambda: ask(messages.ListPodResourcesRequest(), timeout=_TIMEOUT_S),
            lambda error: channels.failure(error, what, socket),
            chance,
        )
    return _read(answer.pod_resources)


async def counted(
    socket: Path = SOCKET, *, chance: Callable[[], float] = random.random
) -> Mapping[str, frozenset[str]]:
    """The healthy IDs of each resource that the kubelet counts at this moment, by resource."""
    async with channels.opened(socket, largest_bytes=LARGEST_BYTES) as channel:
        ask = channel.unary_unary(
            "/v1.PodResourcesLister/GetAllocatableResources",
            messages.AllocatableResourcesRequest.SerializeToString,
            messages.AllocatableResourcesResponse.FromString,
        )
        what = "cannot find out which devices the kubelet counts"
        answer = await _answered(
            lambda: ask(messages.AllocatableResourcesRequest(), timeout=_TIMEOUT_S),
            lambda error: channels.failure(error, what, socket),
            chance,
        )
    ids: dict[str, list[str]] = {}
    for devices in answer.devices:
        ids.setdefault(devices.resource_name, []).extend(devices.device_ids)
    return {resource: frozenset(its) for resource, its in ids.items()}


async def _answered(
    ask: Callable[[], Awaitable[_Answer]],
    failure: Callable[[aio.AioRpcError], Exception],
    chance: Callable[[], float],
) -> _Answer:
    """The answer; "too many requests" is tried again after a pause."""
    pauses_s = iter(_PAUSES_S)
    while True:
        try:
            return await ask()
        except aio.AioRpcError as error:
            pause_s = next(pauses_s, None)
            if pause_s is None or error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                raise failure(error) from error
        await asyncio.sleep(pause_s * (1.0 + chance()) / 2)


def _read(pods: Iterable[messages.PodResources]) -> tuple[Listed, ...]:
    # One container may have several entries of a resource, one for each NUMA node.
    held: dict[tuple[str, str, str, str], list[str]] = {}
    for pod in pods:
        for container in pod.containers:
            for devices in container.devices:
                key = (pod.namespace, pod.name, container.name, devices.resource_name)
                held.setdefault(key, []).extend(devices.device_ids)
    return tuple(Listed(*key, frozenset(ids)) for key, ids in held.items())
