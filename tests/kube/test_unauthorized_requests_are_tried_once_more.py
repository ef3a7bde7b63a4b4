"""After a 401 the login is read anew and the request sent again, once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from partage.kube import api, errors
from partage.kube.auth import credentials
from tests.kube import scripted_server, things


class Keys:
    """A login that has a new key each time it is forgotten."""

    pair = None

    def __init__(self) -> None:
        self.forgotten = 0

    async def headers(self) -> dict[str, str]:
        """The current key."""
        return {"Authorization": f"Bearer key-{self.forgotten}"}

    def forget(self) -> None:
        """Take the next one."""
        self.forgotten += 1


@contextlib.asynccontextmanager
async def opening(key: str, keys: Keys) -> AsyncIterator[tuple[scripted_server.Server, api.Api]]:
    """A server that takes one key only, and a client that has others too."""
    refused = scripted_server.refusal(401, "Unauthorized")
    granted = scripted_server.Answer(things.thing("a"))
    async with scripted_server.Server() as server:
        server.respond = lambda request: (
            granted if request.headers["Authorization"] == f"Bearer {key}" else refused
        )
        async with api.Api(credentials.Credentials(server.url, login=keys)) as client:
            yield server, client


@pytest.mark.parametrize("verb", ["get", "create", "replace", "patch", "delete", "pages", "stream"])
async def test_a_renewed_key_opens(verb: str) -> None:
    """For every verb, as a request that was not let in has done nothing."""
    keys = Keys()
    async with opening("key-1", keys) as (server, client):
        await _call(client, verb)

    assert keys.forgotten == 1
    assert len(server.requests) == 2


async def test_a_key_that_does_not_open_is_not_tried_for_ever() -> None:
    """The second 401 is the answer."""
    keys = Keys()
    async with opening("key-9", keys) as (server, client):
        with pytest.raises(errors.Unauthorized):
            await client.delete(things.PATH)

    assert len(server.requests) == 2


async def test_requests_at_the_same_time_renew_the_key_once() -> None:
    """The second one to be refused finds the new key that the first one made."""
    keys = Keys()
    async with opening("key-1", keys) as (_, client):
        await asyncio.gather(*(client.delete(things.PATH) for _ in range(10)))

    assert keys.forgotten == 1


async def _call(client: api.Api, verb: str) -> None:
    path = things.PATH
    match verb:
        case "get":
            await client.get(path, things.Thing)
        case "replace":
            await client.replace(path, {}, things.Thing)
        case "delete":
            await client.delete(path)
        case "pages":
            async for _ in client.pages(path, things.Thing):
                pass
        case "stream":
            async with client.stream(path):
                pass
        case _:
            await getattr(client, verb)(path, {})
