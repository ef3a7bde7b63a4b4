"""Where things of Slurm are on a node, for those who first have to know whether there are any.

Small on purpose: ``partage run`` asks it on every machine, and most machines have no Slurm.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CONFIG = Path("/etc/slurm")
ROOT = Path("/run/partage/slurm")  # of the fences of jobs
_FETCHED = Path("/run/slurm/conf")  # where slurmd keeps what it fetched from the controller
_MAIN = "slurm.conf"
_NAMED = "SLURM_CONF"


def main_file(chosen: Path | None, environ: Mapping[str, str]) -> Path:
    """Where slurm.conf is: in the folder named, as SLURM_CONF says, or where it usually is."""
    if chosen is not None:
        return chosen / _MAIN
    if named := environ.get(_NAMED):
        return Path(named)
    places = [place / _MAIN for place in (CONFIG, _FETCHED)]
    return next((place for place in places if os.path.lexists(place)), places[0])


def configured(environ: Mapping[str, str]) -> bool:
    """Whether this machine has a slurm.conf, or is said to have one; costs two looks at a disk."""
    return bool(environ.get(_NAMED)) or os.path.lexists(main_file(None, environ))
