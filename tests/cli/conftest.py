"""A cluster to look at, and a machine to run on."""

from __future__ import annotations

import pathlib
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from tests.cli import fake_cluster
from tests.local import sites


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[fake_cluster.Cluster]:
    """An API server with nothing in it."""
    async with fake_cluster.Cluster() as running:
        yield running


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[sites.Site]:
    """A machine with two simulated cards of 16 GiB."""
    made = sites.Site(tmp_path)
    yield made
    made.end()
