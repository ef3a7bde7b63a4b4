"""One resource at the kubelet: served, registered, and registered again when necessary.

Each registration has a socket and a server of its own, which end with it; nothing is ever
registered twice. It is done again when the kubelet has restarted, when our socket's file has
disappeared, when the kubelet has not listened to our list for a while, and when it counts no units
of ours any more (:mod:`.registrations`): it then no longer counts on us, whatever the reason.
Failures are tried again after a growing pause, which a new kubelet cuts short.

What it does not do: keep two agents of one node apart. The last to register has the resource, and
the other waits until that one is gone.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NoReturn

from grpc import aio

from partage.kubelet import (
    channels,
    device_lists,
    errors,
    plugin_folder,
    plugin_sockets,
    registrations,
    serial_calls,
    servicer,
)
from partage.kubelet.registrations import Standing
from partage.kubelet.wire import device_plugin_pb2 as messages

_VERSION = "v1beta1"
_REGISTER_S = 15.0  # the kubelet connects to us meanwhile, for which it gives itself 10 s
_PATIENCE_S = 5.0  # until the kubelet listens
_HUNG_UP_S = 1.0  # after which a kubelet that has listened does not come back
_SETTLING_S = 3.0  # a kubelet may take as long for a list of 200,000 units
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 30.0
_CALM_S = 60.0  # after which pauses start small again
_ANSWER_BYTES = 64 * 1024  # an Empty, in truth

log = logging.getLogger(__name__)


class Plugin:
    """One resource; several share one folder, whose `watch` has to run beside them."""

    def __init__(
        self,
        resource: str,
        units: Sequence[device_lists.Unit],
        handler: servicer.Handler,
        folder: plugin_folder.Folder,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.resource = resource
        self._board = servicer.Board(device_lists.checked(resource, units))
        self._healthy = _healthy(units)
        self._handler = handler
        self._folder = folder
        self._clock = clock
        self._starts = serial_calls.SerialCalls()
        self._service: servicer.Service | None = None  # the one that is registered
        self._socket = Path()  # its own
        self._told_at = clock()  # when the kubelet was last told other units
        self._record = registrations.Record()  # of that registration
        self._problem = f"{resource} is not registered yet"

    @property
    def registered(self) -> bool:
        """Whether the kubelet knows the resource and listens for changes of its units."""
        held = self._record.standing is Standing.HELD
        return held and self._service is not None and self._service.watched

    @property
    def problem(self) -> str:
        """Why it is not registered; empty if it is."""
        if self.standing is Standing.TAKEN:
            return f"{self.resource} is not registered: another plugin has registered it since then"
        return "" if self.registered else self._problem

    @property
    def standing(self) -> Standing:
        """How the registration stands, as far as `judge` was told; held if there is none yet."""
        return self._record.standing

    @property
    def healthy(self) -> frozenset[str]:
        """The IDs of the units that the kubelet should count."""
        return self._healthy

    def judge(self, counted: frozenset[str]) -> None:
        """The kubelet was asked which units it counts; that means nothing while it takes a list."""
        service = self._service
        settled = self._clock() - self._told_at >= _SETTLING_S
        if service is None or not service.watched or not settled:
            return
        own = plugin_sockets.identity(self._socket)
        rival = plugin_sockets.rival(self.resource, own, self._folder.others)
        self._record.see(registrations.judged(self._healthy, counted, rival))
        quiet, service.quiet = service.quiet, self.standing is not Standing.HELD
        if quiet and not service.quiet:
            self._board.repeat()

    def update(self, units: Sequence[device_lists.Unit]) -> None:
        """Tell the kubelet these units instead of all others; nothing if they are the same.

        A list that would not go through is a `BadListing`, and the present one stays.
        """
        self._board.update(device_lists.checked(self.resource, units))
        self._healthy, before = _healthy(units), self._healthy
        if self._healthy != before:
            self._told_at = self._clock()

    async def run(self) -> NoReturn:
        """Serve until cancelled, whatever the kubelet does."""
        pause_s = _FIRST_PAUSE_S
        while True:
            kubelet = await self._folder.arrival()
            began_at = self._clock()
            try:
                await self._serve(kubelet)
            except errors.KubeletError as error:
                if str(error) != self._problem:
                    log.warning("%s", error)
                self._problem = str(error)
            if self._clock() - began_at > _CALM_S:
                pause_s = _FIRST_PAUSE_S
            await self._folder.departure(kubelet, within_s=pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _serve(self, kubelet: plugin_sockets.Identity) -> None:
        """Register with this kubelet and serve it, until that has to be done again."""
        service = servicer.Service(
            self.resource, self._board, self._handler, self._starts, clock=self._clock
        )
        path = plugin_sockets.new(self._folder.path, self.resource)
        async with _served(service, path, self._folder.own) as socket:
            await self._register(socket.name)
            self._service, self._socket, self._record = service, socket, registrations.Record()
            self._told_at = self._clock()
            self._problem = f"{self.resource} is registered, but the kubelet does not listen yet"
            log.info("%s is registered as %s", self.resource, socket.name)
            try:
                await self._until_lost(service, socket, kubelet)
            finally:
                self._service = None

    async def _register(self, endpoint: str) -> None:
        path = self._folder.kubelet_socket
        request = messages.RegisterRequest(
            version=_VERSION,
            endpoint=endpoint,
            resource_name=self.resource,
            options=servicer.options(),
        )
        async with channels.opened(path, largest_bytes=_ANSWER_BYTES) as channel:
            register = channel.unary_unary(
                "/v1beta1.Registration/Register",
                messages.RegisterRequest.SerializeToString,
                messages.Empty.FromString,
            )
            try:
                await register(request, timeout=_REGISTER_S)
            except aio.AioRpcError as error:
                what = f"{self.resource} is not registered"
                raise channels.failure(error, what, path) from error

    async def _until_lost(
        self, service: servicer.Service, socket: Path, kubelet: plugin_sockets.Identity
    ) -> None:
        registered_at = self._clock()
        reason = ""

        def lost(now: plugin_sockets.Identity | None) -> bool:
            nonlocal reason
            alone_s = min(service.alone_s(), self._clock() - registered_at)
            if now != kubelet:
                reason = "the kubelet stopped or restarted"
            elif plugin_sockets.identity(socket) is None:
                reason = f"{socket} has disappeared"
            elif alone_s > (_HUNG_UP_S if service.was_watched else _PATIENCE_S):
                reason = "the kubelet no longer listens"
            elif self.standing is Standing.LOST:
                reason = "another plugin had registered it, and is gone"
            return reason != ""

        await self._folder.until(lost)
        self._record = registrations.Record()
        self._problem = f"{self.resource} has to be registered again: {reason}"
        log.info("%s", self._problem)


@contextlib.asynccontextmanager
async def _served(service: servicer.Service, path: Path, own: set[str]) -> AsyncIterator[Path]:
    """The service on a socket of this path, which is removed in the end, and ours until then."""
    server = aio.server()
    server.add_generic_rpc_handlers((service.methods(),))
    own.add(path.name)
    try:
        _bind(server, path)
        await server.start()
        yield path
    finally:
        await server.stop(None)
        plugin_sockets.remove(path)
        own.discard(path.name)


def _healthy(units: Sequence[device_lists.Unit]) -> frozenset[str]:
    return frozenset(unit.id for unit in units if unit.healthy)


def _bind(server: aio.Server, path: Path) -> None:
    try:
        server.add_insecure_port(f"unix:{path}")
        path.chmod(0o600)  # the kubelet is root
    except (OSError, RuntimeError) as error:
        raise errors.BadSocket(
            f"{path} cannot be made ({error})",
            instead="run the agent as root, with the kubelet's folder mounted writable",
        ) from error
