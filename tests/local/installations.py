"""Installations of Partage that lack something: a copy of the package, used by real processes."""

from __future__ import annotations

import pathlib
import shutil

import partage
from tests import simulated_machines


def without_library(folder: pathlib.Path) -> dict[str, str]:
    """One without the fence's library; the environment in which ``partage`` is that one."""
    copy = folder / "without-library"
    if not copy.exists():
        ignored = shutil.ignore_patterns("lib", "__pycache__")
        shutil.copytree(pathlib.Path(partage.__file__).parent, copy / "partage", ignore=ignored)
        (copy / "partage/lib").mkdir()
        (copy / "partage/lib/simulated").symlink_to(simulated_machines.LIBRARIES)
    return {"PYTHONPATH": str(copy)}
