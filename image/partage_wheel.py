"""The wheel of Partage for one machine: the one of a release, made as `make wheels` makes it."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from image import errors, settings

# All that decides what is in the wheel.
_INPUTS = (
    *("LICENSE", "README.md", "hatch_build.py", "native", "pyproject.toml"),
    *("requirements/release.txt", "src/partage"),
)
_NOT_INPUTS = {"__pycache__", "lib"}  # what is made of them
_NO_COMPILER = (
    "the environment of releases, .venv-release, with hatchling and Zig's C compiler is not there "
    "or not complete: remove it if it is there; `make image` and `make wheels` make it"
)


def checksum(checkout: Path = settings.CHECKOUT) -> str:
    """Of all that a wheel is made of."""
    digest = hashlib.sha256()
    for file in _inputs(checkout):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(checkout)} {file.stat().st_mode & 0o111}\n".encode())
        digest.update(f"{len(content)}\n".encode() + content)
    return digest.hexdigest()


def make(machine: settings.Machine, folder: Path, checkout: Path = settings.CHECKOUT) -> None:
    """Put the wheel for a machine into the folder."""
    environment_of_releases = checkout / ".venv-release"
    hatchling = environment_of_releases / "bin" / "hatchling"
    compiler = environment_of_releases.glob("lib/python*/site-packages/ziglang/zig")
    if not hatchling.exists() or not any(compiler):
        raise errors.CannotMake(_NO_COMPILER)
    command = [str(hatchling), "build", "--target", "wheel", "--directory", str(folder)]
    environment = os.environ | {"PARTAGE_RELEASE_FOR": machine.python}
    done = subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip()
        raise errors.CannotMake(f"the wheel for {machine.name} cannot be made; {said}")


def _inputs(checkout: Path) -> Iterator[Path]:
    for name in _INPUTS:
        path = checkout / name
        yield from [path] if path.is_file() else sorted(_below(path))


def _below(folder: Path) -> Iterable[Path]:
    for path in folder.iterdir():
        if path.name not in _NOT_INPUTS:
            yield from _below(path) if path.is_dir() else [path]
