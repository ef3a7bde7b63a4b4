"""Which Kubernetes there is to build: the newest, and older ones by their minor version.

The pins of the newest are in ``go.mod`` of this folder, those of an older one in a folder beside it
that is named after it. ``PARTAGE_KUBERNETES`` chooses one for everything that is started: ``1.32``,
or ``oldest``; without it, it is the newest. What is chosen is read when it is asked for, so that
the programs which tests start have the same.
"""

from __future__ import annotations

import os
from pathlib import Path

from cluster.programs.go_command import CannotBuild

VARIABLE = "PARTAGE_KUBERNETES"
OLDEST = "oldest"
NEWEST = Path(__file__).parent

_PREFIX = "kubernetes-"


def chosen() -> Path:
    """The folder of pins of the version that is asked for."""
    name = os.environ.get(VARIABLE, "")
    if not name:
        return NEWEST
    folders = older()
    if name == OLDEST:
        name = min(folders, key=_numbers)
    if name not in folders:
        choices = ", ".join([*sorted(folders, key=_numbers), OLDEST])
        raise CannotBuild(
            f"{VARIABLE}={name}: there are no pins of this Kubernetes. Write one of {choices}, or "
            "nothing for the newest"
        )
    return folders[name]


def older() -> dict[str, Path]:
    """The folders of pins of older versions."""
    return {path.name.removeprefix(_PREFIX): path for path in NEWEST.glob(f"{_PREFIX}*")}


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]
