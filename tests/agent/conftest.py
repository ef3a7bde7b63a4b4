"""An API server to write to, and fences under a root for containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from partage.agent.containers import container_fence
from partage.fence.store import roots
from partage.kube import api
from tests import leaving_out, simulated_machines
from tests.kube import api_clients, scripted_server


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
def root(tmp_path: Path) -> roots.Root:
    """Where fences of containers are."""
    return roots.prepare(tmp_path / "fences", reach=roots.Reach.CONTAINERS)


@pytest.fixture
def fences(root: roots.Root, tmp_path: Path) -> container_fence.Fences:
    """Fences with the library that was built here."""
    if not simulated_machines.FENCE.exists():
        leaving_out.leave_out("libpartage.so", "build it with `python -m native`")
    return container_fence.Fences(root, tmp_path / "lib")
