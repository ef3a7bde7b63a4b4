"""A device plugin that hands out whole cards by their names in NVIDIA's CDI specification.

It is what a node without Partage would have, and the smallest that a kubelet accepts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc

from cluster.node import simulated_cards
from cluster.node.node import Node
from partage.kubelet.wire import device_plugin_pb2 as messages

RESOURCE = "nvidia.com/gpu"
_SOCKET = "whole-cards.sock"


class WholeCards:
    """The plugin on one node, for the length of a ``with`` block."""

    def __init__(self, node: Node, uuids: Sequence[str]) -> None:
        self._folder = node.device_plugins
        self._uuids = tuple(uuids)
        self._over = threading.Event()
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        self._server.add_generic_rpc_handlers((self._handlers(),))

    def __enter__(self) -> Self:
        socket = self._folder / _SOCKET
        socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{socket}")
        self._server.start()
        options = [("grpc.default_authority", "localhost")]
        where = f"unix://{self._folder / 'kubelet.sock'}"
        with grpc.insecure_channel(where, options=options) as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=messages.RegisterRequest.SerializeToString,
                response_deserializer=messages.Empty.FromString,
            )
            registration = messages.RegisterRequest(
                version="v1beta1", endpoint=_SOCKET, resource_name=RESOURCE
            )
            register(registration, timeout=30)
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._over.set()
        self._server.stop(grace=None).wait()

    def _options(
        self, _request: Any, _context: grpc.ServicerContext
    ) -> messages.DevicePluginOptions:
        return messages.DevicePluginOptions()

    def _list(
        self, _request: Any, _context: grpc.ServicerContext
    ) -> Iterator[messages.ListAndWatchResponse]:
        devices = [messages.Device(ID=uuid, health="Healthy") for uuid in self._uuids]
        yield messages.ListAndWatchResponse(devices=devices)
        self._over.wait()

    def _allocate(
        self, request: messages.AllocateRequest, _context: grpc.ServicerContext
    ) -> messages.AllocateResponse:
        answers = [
            messages.ContainerAllocateResponse(
                cdi_devices=[
                    messages.CDIDevice(name=f"{simulated_cards.KIND}={uuid}")
                    for uuid in container.devices_ids
                ]
            )
            for container in request.container_requests
        ]
        return messages.AllocateResponse(container_responses=answers)

    def _handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": _unary(self._options, messages.Empty),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list,
                    request_deserializer=messages.Empty.FromString,
                    response_serializer=_serialized,
                ),
                "Allocate": _unary(self._allocate, messages.AllocateRequest),
            },
        )


def _unary(answer: Callable[..., Any], request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        answer, request_deserializer=request.FromString, response_serializer=_serialized
    )


def _serialized(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written
