"""An API server to write to, and fences under a root for containers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from partage.agent import fencing
from partage.fence import roots
from partage.kube import api
from tests import leaving_out, simulated
from tests.kube import making as kube
from tests.kube import scripted


@pytest_asyncio.fixture
async def server() -> AsyncIterator[scripted.Server]:
    """A server with an empty script."""
    async with scripted.Server() as running:
        yield running


@pytest_asyncio.fixture
async def client(server: scripted.Server) -> AsyncIterator[api.Api]:
    """A client of that server."""
    async with kube.connected(server) as connected:
        yield connected


@pytest.fixture
def root(tmp_path: Path) -> roots.Root:
    """Where fences of containers are."""
    return roots.prepare(tmp_path / "fences", reach=roots.Reach.CONTAINERS)


@pytest.fixture
def fences(root: roots.Root, tmp_path: Path) -> fencing.Fences:
    """Fences with the library that was built here."""
    if not simulated.FENCE.exists():
        leaving_out.leave_out("libpartage.so", "build it with `python -m native`")
    return fencing.Fences(root, tmp_path / "lib")
