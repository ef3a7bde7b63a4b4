"""A control plane for one benchmark, where its programs are built."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterator

from bench import measuring
from cluster import building
from cluster.control_plane import ControlPlane


def on_one(
    work: Callable[[ControlPlane], Iterator[measuring.Result]],
) -> Iterator[measuring.Result]:
    """What a benchmark finds on a control plane of its own; a note where there is none."""
    if not building.programs_folder().exists():
        yield measuring.Note("left out: build Kubernetes first, with `python -m cluster build`")
        return
    with (
        tempfile.TemporaryDirectory(prefix="partage-bench-") as folder,
        ControlPlane(pathlib.Path(folder)) as plane,
    ):
        yield from work(plane)
