"""This machine for those who look: what ``partage run`` started, and what Slurm did."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from partage.cli.sources import slurm_node
from partage.local.view import machine_snapshot, surroundings


@contextlib.contextmanager
def opened() -> Iterator[machine_snapshot.Source]:
    """Where views come from."""
    with machine_snapshot.opened(beside(os.environ)) as taken:
        yield taken


def beside(environ: Mapping[str, str]) -> surroundings.Surroundings:
    """What else is on this machine."""
    return surroundings.Surroundings(
        slurm_node.tenants(environ), slurm_node.gate(environ), slurm_node.MANAGER
    )
