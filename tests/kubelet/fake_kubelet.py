"""A kubelet's side of the two protocols: real gRPC servers and clients over unix sockets.

It does what the real one does with plugins: removes all sockets when it starts, connects back
inside Register, asks for the options, then listens to the list. A socket that is still connected
may not be registered again. Whoever registers a resource has it, and the one before is listened to
as ever; but when either of them goes, the resource has no plugin (seen with 1.36). As a program it
prints each list it gets, so that it can be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from partage.kubelet.wire import device_plugin_pb2 as messages
from partage.kubelet.wire import pod_resources_pb2

Context = aio.ServicerContext[Any, Any]
Units = dict[str, str]  # ID to health


async def until(condition: Callable[[], bool]) -> None:
    """Wait until it holds; the test has failed if it does not for a long time."""
    async with asyncio.timeout(30):
        while True:
            if condition():
                return
            await asyncio.sleep(0.01)


class Endpoint:
    """One plugin as the kubelet sees it."""

    def __init__(self, path: Path, resource: str) -> None:
        self.path, self.resource = path, resource
        self.options = messages.DevicePluginOptions()
        self.lists: list[Units] = []
        self.lost: aio.AioRpcError | None = None
        self.listening: asyncio.Task[None] | None = None
        self.channel = aio.insecure_channel(
            f"unix:{path}",
            options=(
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", 4 * 1024 * 1024),
            ),
        )

    @property
    def connected(self) -> bool:
        """Whether its list is listened to."""
        return self.listening is not None and not self.listening.done()

    async def connect(self) -> None:
        """Ask for the options."""
        ask = self.channel.unary_unary(
            "/v1beta1.DevicePlugin/GetDevicePluginOptions",
            messages.Empty.SerializeToString,
            messages.DevicePluginOptions.FromString,
        )
        self.options = await ask(messages.Empty(), timeout=10)

    async def listen(self, said: Callable[[Endpoint], None]) -> None:
        """Take lists for as long as they come."""
        watch = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            messages.Empty.SerializeToString,
            messages.ListAndWatchResponse.FromString,
        )
        try:
            async for answer in watch(messages.Empty()):
                self.lists.append({unit.ID: unit.health for unit in answer.devices})
                said(self)
        except aio.AioRpcError as error:
            self.lost = error

    async def allocate(self, ids: Iterable[str]) -> messages.ContainerAllocateResponse:
        """What one container gets for these IDs."""
        ask = self.channel.unary_unary(
            "/v1beta1.DevicePlugin/Allocate",
            messages.AllocateRequest.SerializeToString,
            messages.AllocateResponse.FromString,
        )
        request = messages.ContainerAllocateRequest(devices_ids=ids)
        answer = await ask(messages.AllocateRequest(container_requests=[request]))
        [container] = answer.container_responses
        return container

    async def start_container(self, ids: Iterable[str], *, timeout_s: float = 30) -> None:
        """PreStartContainer, with the limit that the kubelet has."""
        ask = self.channel.unary_unary(
            "/v1beta1.DevicePlugin/PreStartContainer",
            messages.PreStartContainerRequest.SerializeToString,
            messages.PreStartContainerResponse.FromString,
        )
        await ask(messages.PreStartContainerRequest(devices_ids=ids), timeout=timeout_s)

    async def close(self) -> None:
        """Cut the connection."""
        if self.listening is not None:
            self.listening.cancel()
            await asyncio.wait((self.listening,))
        await self.channel.close()


class FakeKubelet:
    """The kubelet of one folder; `start` and `stop` it as often as you like."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.requests: list[messages.RegisterRequest] = []  # all, also those refused
        self.endpoints: dict[str, Endpoint] = {}  # by resource, the last registered
        self.refusal = ""  # what Register answers
        self.silent = False  # Register does not answer at all
        self.tidy = True  # remove all sockets at the start
        self.deaf = False  # Register answers, and nobody listens to the list
        self.on_list: Callable[[Endpoint], None] = lambda endpoint: None
        self.counts: dict[str, frozenset[str]] = {}  # healthy IDs by resource
        self._connected: list[Endpoint] = []  # the replaced ones, too
        self._server: aio.Server | None = None

    async def start(self) -> None:
        """As the real one: first remove every socket, then serve."""
        for path in self.folder.iterdir():
            if path.is_socket() and (self.tidy or path.name == "kubelet.sock"):
                path.unlink()
        self._server = aio.server()
        methods = {
            "Register": grpc.unary_unary_rpc_method_handler(
                self._register,
                messages.RegisterRequest.FromString,
                messages.Empty.SerializeToString,
            )
        }
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self.folder / 'kubelet.sock'}")
        await self._server.start()

    async def stop(self) -> None:
        """Forget everything."""
        self.endpoints, self.counts = {}, {}
        connected, self._connected = self._connected, []
        for endpoint in connected:
            await endpoint.close()
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def restart(self) -> None:
        """Stop and start."""
        await self.stop()
        await self.start()

    async def endpoint(self, resource: str) -> Endpoint:
        """The plugin of this resource, once it has sent a list."""
        await until(lambda: self._lists(resource) != [])
        return self.endpoints[resource]

    async def listed(self, resource: str, units: Units) -> None:
        """Wait until this is the last list of this resource."""
        await until(lambda: self._lists(resource)[-1:] == [units])

    def _lists(self, resource: str) -> list[Units]:
        endpoint = self.endpoints.get(resource)
        return endpoint.lists if endpoint is not None and endpoint.connected else []

    async def _register(self, request: messages.RegisterRequest, context: Context) -> Any:
        self.requests.append(request)
        if self.silent:
            await asyncio.Event().wait()
        if self.refusal:
            await context.abort(grpc.StatusCode.UNKNOWN, self.refusal)
        path = self.folder / request.endpoint
        old = self.endpoints.get(request.resource_name)
        if old is not None and old.path == path and old.connected:
            await context.abort(grpc.StatusCode.UNKNOWN, f"already connected: {path}")
        endpoint = Endpoint(path, request.resource_name)
        await endpoint.connect()
        self.endpoints[request.resource_name] = endpoint
        self._connected.append(endpoint)
        if not self.deaf:
            endpoint.listening = asyncio.create_task(self._run(endpoint))
        return messages.Empty()

    async def counted(self) -> dict[str, frozenset[str]]:
        """What it would tell of the resources that it counts."""
        return dict(self.counts)

    async def _run(self, endpoint: Endpoint) -> None:
        """Listen to a plugin; the holder of the resource when this one goes is dropped with it."""
        await endpoint.listen(self._said)
        last = self.endpoints.pop(endpoint.resource, None)
        self.counts[endpoint.resource] = frozenset()
        if last is not None and last is not endpoint:
            await last.close()

    def _said(self, endpoint: Endpoint) -> None:
        units = endpoint.lists[-1]
        healthy = (unit for unit, health in units.items() if health == "Healthy")
        self.counts[endpoint.resource] = frozenset(healthy)
        self.on_list(endpoint)


class FakeLister:
    """The server of PodResources: it refuses as often as told, then answers."""

    def __init__(self, answer: pod_resources_pb2.ListPodResourcesResponse) -> None:
        self.answer = answer
        self.allocatable = pod_resources_pb2.AllocatableResourcesResponse()
        self.refusals: list[grpc.StatusCode] = []
        self.questions = 0

    @contextlib.asynccontextmanager
    async def serving(self, socket: Path) -> AsyncIterator[None]:
        """Serve on this socket."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "List": grpc.unary_unary_rpc_method_handler(
                self._list,
                pod_resources_pb2.ListPodResourcesRequest.FromString,
                pod_resources_pb2.ListPodResourcesResponse.SerializeToString,
            ),
            "GetAllocatableResources": grpc.unary_unary_rpc_method_handler(
                self._allocatable,
                pod_resources_pb2.AllocatableResourcesRequest.FromString,
                pod_resources_pb2.AllocatableResourcesResponse.SerializeToString,
            ),
        }
        server = aio.server()
        handler = grpc.method_handlers_generic_handler("v1.PodResourcesLister", methods)
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        try:
            yield
        finally:
            await server.stop(None)

    async def _list(self, request: object, context: Context) -> Any:
        await self._refuse(context)
        return self.answer

    async def _allocatable(self, request: object, context: Context) -> Any:
        await self._refuse(context)
        return self.allocatable

    async def _refuse(self, context: Context) -> None:
        self.questions += 1
        if self.refusals:
            await context.abort(self.refusals.pop(0), "rejected by rate limit")


async def main(folder: Path) -> None:
    """Be a kubelet until killed."""
    kubelet = FakeKubelet(folder)
    kubelet.on_list = lambda endpoint: print(  # noqa: T201 - it is how the test hears of it
        json.dumps([endpoint.resource, endpoint.path.name, len(endpoint.lists[-1])]), flush=True
    )
    await kubelet.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
