"""Roots to make tenants in."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import pytest

from partage.fence.store import roots


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """A root of the user who runs the tests."""
    return roots.prepare(tmp_path / "root")


@pytest.fixture
def open_path() -> Iterator[pathlib.Path]:
    """A folder that other users can reach, as they cannot reach pytest's."""
    with tempfile.TemporaryDirectory(prefix="fence", dir="/tmp") as folder:
        yield pathlib.Path(folder)
