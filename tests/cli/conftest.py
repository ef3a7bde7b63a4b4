"""A cluster to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from tests.cli import fake_cluster


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[fake_cluster.Cluster]:
    """An API server with nothing in it."""
    async with fake_cluster.Cluster() as running:
        yield running
