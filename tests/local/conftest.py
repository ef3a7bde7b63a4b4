"""A site for each test, a folder for several users, and a machine of theirs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.local import shared_machine, sites, users


@pytest.fixture
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that other users can enter."""
    users.need_root()
    with users.open_folder() as folder:
        yield folder


@pytest.fixture
def site(tmp_path: pathlib.Path) -> Iterator[sites.Site]:
    """A machine with two simulated cards of 16 GiB."""
    made = sites.Site(tmp_path)
    yield made
    made.end()


@pytest.fixture
def machine() -> Iterator[shared_machine.Machine]:
    """Two simulated cards of 16 GiB, for a group."""
    with shared_machine.made() as made:
        yield made
