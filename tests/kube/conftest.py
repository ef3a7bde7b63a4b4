"""A server to talk to, a client of it, and certificates made once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from partage.kube import api
from tests.kube import api_clients, kubeconfigs, lease_candidates, scripted_server


@pytest_asyncio.fixture
async def server() -> AsyncIterator[scripted_server.Server]:
    """A server with an empty script."""
    async with scripted_server.Server() as running:
        yield running


@pytest_asyncio.fixture
async def client(server: scripted_server.Server) -> AsyncIterator[api.Api]:
    """A client of that server."""
    async with api_clients.connected(server) as connected:
        yield connected


@pytest.fixture
def time() -> api_clients.QuickTime:
    """A clock under control."""
    return api_clients.QuickTime()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> kubeconfigs.Certificates:
    """An authority with a server's and a client's certificate."""
    return kubeconfigs.Certificates(tmp_path_factory.mktemp("certificates"))


@pytest_asyncio.fixture
async def stage(server: scripted_server.Server) -> AsyncIterator[lease_candidates.Stage]:
    """Where candidates compete for a lease."""
    async with lease_candidates.Stage(server) as empty:
        yield empty
