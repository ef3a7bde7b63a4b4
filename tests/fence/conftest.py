"""A root to make tenants in, and a stand-in for the MPS control daemon."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Iterator

import pytest

from partage.fence import roots


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """A root of the user who runs the tests."""
    return roots.prepare(tmp_path / "root")


@pytest.fixture
def short_path() -> Iterator[pathlib.Path]:
    """A folder with a path that is short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="mps", dir="/tmp") as folder:
        yield pathlib.Path(folder)


@pytest.fixture
def mps_program(tmp_path: pathlib.Path) -> str:
    """A program that speaks as nvidia-cuda-mps-control does."""
    program = tmp_path / "nvidia-cuda-mps-control"
    stand_in = pathlib.Path(__file__).with_name("mps_stand_in.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S {stand_in} "$@"\n')
    program.chmod(0o755)
    return str(program)
