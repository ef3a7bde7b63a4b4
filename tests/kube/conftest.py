"""A server to talk to, a client of it, and certificates made once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from partage.kube import api
from tests.kube import candidates, making, scripted


@pytest_asyncio.fixture
async def server() -> AsyncIterator[scripted.Server]:
    """A server with an empty script."""
    async with scripted.Server() as running:
        yield running


@pytest_asyncio.fixture
async def client(server: scripted.Server) -> AsyncIterator[api.Api]:
    """A client of that server."""
    async with making.connected(server) as connected:
        yield connected


@pytest.fixture
def time() -> making.QuickTime:
    """A clock under control."""
    return making.QuickTime()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> making.Certificates:
    """An authority with a server's and a client's certificate."""
    return making.Certificates(tmp_path_factory.mktemp("certificates"))


@pytest_asyncio.fixture
async def stage(server: scripted.Server) -> AsyncIterator[candidates.Stage]:
    """Where candidates compete for a lease."""
    async with candidates.Stage(server) as empty:
        yield empty
