"""What the kubelet asks of a plugin, over one socket.

Allocate never fails: a failure there ends the pod for good, and its owner makes the next at once.
Whatever can go wrong belongs into the start of a container (PreStartContainer), which the kubelet
repeats until it succeeds, with the text of the error in the pod's events meanwhile.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Callable
from typing import Any, Protocol

import grpc
from grpc import aio

from partage.core import errors
from partage.kubelet import serial_calls
from partage.kubelet.wire import device_plugin_pb2 as messages

# The device of a container for which `Handler.allocated` raised. Nobody ever makes it, so that the
# container cannot start; the kubelet remembers it for the pod's life.
FAILED_DEVICE = "partage.dev/failed=see-the-log-of-the-agent"

_LONGEST_TEXT = 1000  # characters of an error; an event holds 1024 with what the kubelet adds

log = logging.getLogger(__name__)

_Context = aio.ServicerContext[Any, Any]


class Handler(Protocol):
    """What an agent decides. Calls for one resource may overlap, but not for the same IDs."""

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """The qualified name of the CDI device that stands for these IDs, at once.

        It should not raise: the pod would then wait forever, and only the log would say why.
        """

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """Make the container that holds these IDs ready; what it raises is shown to its owner."""


class Board:
    """The list of units that is to be told, for every stream to read."""

    def __init__(self, listing: bytes) -> None:
        self.listing = listing
        self.changed = asyncio.Event()  # set once, then there is another

    def update(self, listing: bytes) -> None:
        if listing == self.listing:
            return
        self.listing = listing
        self.repeat()

    def repeat(self) -> None:
        """Tell the list once more."""
        self.changed.set()
        self.changed = asyncio.Event()


class Service:
    """One plugin on one socket, from its making to the kubelet's next restart."""

    def __init__(
        self,
        resource: str,
        board: Board,
        handler: Handler,
        starts: serial_calls.SerialCalls,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._resource, self._board, self._handler, self._starts = resource, board, handler, starts
        self._clock = clock
        self._streams = 0
        self._alone_since = clock()
        self.was_watched = False
        # Another plugin has the resource. A kubelet that still listens to us would take our list
        # for that one's, so it is not told changes until the resource is ours again.
        self.quiet = False

    @property
    def watched(self) -> bool:
        """Whether the kubelet has the list and waits for the next: it counts on this socket."""
        return self._streams > 0

    def alone_s(self) -> float:
        """For how long nobody has been told the list; 0 while somebody is."""
        return 0.0 if self.watched else self._clock() - self._alone_since

    def methods(self) -> grpc.GenericRpcHandler:
        """The methods by name, for a server; preferences are not offered, hence not answered."""
        return grpc.method_handlers_generic_handler(
            "v1beta1.DevicePlugin",
            {
                "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(
                    self._options,
                    messages.Empty.FromString,
                    messages.DevicePluginOptions.SerializeToString,
                ),
                "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                    self._list_and_watch,
                    messages.Empty.FromString,
                    None,  # the board has bytes: the list is not encoded again for every stream
                ),
                "Allocate": grpc.unary_unary_rpc_method_handler(
                    self._allocate,
                    messages.AllocateRequest.FromString,
                    messages.AllocateResponse.SerializeToString,
                ),
                "PreStartContainer": grpc.unary_unary_rpc_method_handler(
                    self._start,
                    messages.PreStartContainerRequest.FromString,
                    messages.PreStartContainerResponse.SerializeToString,
                ),
            },
        )

    async def _options(self, _: messages.Empty, context: _Context) -> messages.DevicePluginOptions:
        return options()

    async def _list_and_watch(self, _: messages.Empty, context: _Context) -> None:
        self._streams += 1
        self.was_watched = True
        try:
            while True:
                changed = self._board.changed  # taken first: an update while we write is not lost
                if not self.quiet:
                    await context.write(self._board.listing)
                await changed.wait()
        finally:
            self._streams -= 1
            self._alone_since = self._clock()

    async def _allocate(
        self, request: messages.AllocateRequest, context: _Context
    ) -> messages.AllocateResponse:
        answers = []
        for container in request.container_requests:
            device = messages.CDIDevice(name=self._allocated(frozenset(container.devices_ids)))
            answers.append(messages.ContainerAllocateResponse(cdi_devices=[device]))
        return messages.AllocateResponse(container_responses=answers)

    def _allocated(self, ids: frozenset[str]) -> str:
        try:
            return self._handler.allocated(self._resource, ids)
        except Exception:  # a mistake of ours, and the pod must not fail for it
            log.exception("%s: a container gets the device %s", self._resource, FAILED_DEVICE)
        return FAILED_DEVICE

    async def _start(
        self, request: messages.PreStartContainerRequest, context: _Context
    ) -> messages.PreStartContainerResponse:
        ids = frozenset(request.devices_ids)
        call = functools.partial(self._handler.starting, self._resource, ids)
        error = await self._starts.run(ids, call)
        if error is not None:
            await context.abort(*_status(error))
        return messages.PreStartContainerResponse()


def options() -> messages.DevicePluginOptions:
    """What the kubelet is told to call."""
    return messages.DevicePluginOptions(
        pre_start_required=True, get_preferred_allocation_available=False
    )


def _status(error: BaseException) -> tuple[grpc.StatusCode, str]:
    if isinstance(error, errors.PartageError):
        return grpc.StatusCode.FAILED_PRECONDITION, _shortened(str(error))
    text = f"internal error of Partage ({error!r}); see the log of the agent on this node"
    return grpc.StatusCode.INTERNAL, _shortened(text)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 4] + " ..."
