"""Own control plane: one for each benchmark, where its programs are built."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable, Iterator

from bench.measurement import results
from cluster.control_plane.control_plane import ControlPlane
from cluster.programs import kubernetes_build


def run(
    work: Callable[[ControlPlane], Iterator[results.Result]],
) -> Iterator[results.Result]:
    """What a benchmark finds on a control plane of its own; a note where there is none."""
    if not kubernetes_build.programs_folder().exists():
        yield results.Note("left out: build Kubernetes first, with `python -m cluster build`")
        return
    with (
        tempfile.TemporaryDirectory(prefix="partage-bench-") as folder,
        ControlPlane(pathlib.Path(folder)) as plane,
    ):
        yield from work(plane)
