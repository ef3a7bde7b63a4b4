"""A site for each test, and a private Slurm for those on the real one."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.local import sites


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[sites.Site]:
    """A machine with two simulated cards of 16 GiB."""
    made = sites.Site(tmp_path)
    yield made
    made.end()
