"""Programs of others, run to the end: what they printed, or an error with their own words."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from release.errors import CannotRelease

_TAIL_LINES = 15


def run(
    command: Sequence[str | Path], *, folder: Path, environment: Mapping[str, str] | None = None
) -> str:
    """What a program printed on stdout; ``environment`` comes in the place of ours."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        raise CannotRelease(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        said = "\n".join(f"{done.stdout}{done.stderr}".strip().splitlines()[-_TAIL_LINES:])
        shown = " ".join(map(str, command))
        raise CannotRelease(f"`{shown}` ended with {done.returncode}:\n{said}")
    return done.stdout


def clean_environment(home: Path, **more: str) -> dict[str, str]:
    """Without what this checkout, or its user, has set for Python and for Partage."""
    ours = ("PARTAGE_", "PYTHON", "VIRTUAL_ENV", "LD_")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    return kept | {"HOME": str(home)} | more
