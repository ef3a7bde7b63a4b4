"""A listener: an application at an address, for as long as a block lasts."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

import msgspec
from aiohttp import web

from partage.core import errors

_GRACE_S = 5.0  # for requests that are under way at the end


class Address(msgspec.Struct, frozen=True):
    """Where to listen, and how; port 0 is any that is free."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None


@contextlib.asynccontextmanager
async def at(address: Address, app: web.Application) -> AsyncIterator[str]:
    """Listen, and yield the URL; in the end, requests under way are finished."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE_S)
    await runner.setup()
    try:
        await _bound(runner, address)
        scheme = "https" if address.tls else "http"
        yield f"{scheme}://{address.host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _bound(runner: web.AppRunner, address: Address) -> None:
    try:
        await web.TCPSite(runner, address.host, address.port, ssl_context=address.tls).start()
    except OSError as error:
        raise refused(address, error) from error


def refused(address: Address, error: OSError) -> errors.InputError:
    """The error for an address that cannot be listened on."""
    return errors.InputError(
        f"cannot listen on {address.host} port {address.port}: {error.strerror or error}",
        instead="choose another address or port with --address or --port",
    )
