"""Python packages: the locked wheels for one machine, chosen by its markers and fetched by pip.

pip can fetch for another machine, but answers a requirement's markers for the Python that runs it.
Then the image would depend on who made it, so the markers are answered here.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
from packaging.requirements import Requirement

from image import errors, settings

_GLIBC = 41  # Debian 13 has 2.41; wheels for that or for an older one will do
_OLDEST_GLIBC = 17
_FAILED = (
    "pip cannot fetch the wheels for {}; is there a network, and a package index that pip can "
    "reach? It says:\n{}"
)


class Pin(msgspec.Struct, frozen=True):
    """One package at one version, and what its wheels may be."""

    name: str
    version: str
    hashes: tuple[str, ...]

    def __str__(self) -> str:
        """As pip reads it."""
        return " ".join([f"{self.name}=={self.version}", *(f"--hash={h}" for h in self.hashes)])


def pins(texts: Iterable[str], machine: settings.Machine) -> tuple[Pin, ...]:
    """Those of requirements files that hold for the image on this machine, each once."""
    environment = _environment(machine)
    lines = (line for text in texts for line in _lines(text))
    chosen = {pin.name: pin for line in lines if (pin := _pin(line, environment))}
    return tuple(chosen[name] for name in sorted(chosen))


def fetch(chosen: Iterable[Pin], machine: settings.Machine, folder: Path) -> None:
    """Put the wheels into the folder."""
    with tempfile.TemporaryDirectory() as scratch:
        requirements = Path(scratch) / "requirements.txt"
        requirements.write_text("\n".join(map(str, chosen)))
        command = [*pip(), "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--only-binary=:all:", *_tags(machine)]
        command += ["--dest", str(folder), "--requirement", str(requirements)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise errors.CannotMake(_FAILED.format(machine.name, done.stderr.strip()))


def pip() -> list[str]:
    """pip of this environment, or of the Python below it, whose pip scripts/setup may have lent."""
    if importlib.util.find_spec("pip"):
        return [sys.executable, "-m", "pip"]
    return [str(Path(sys.base_prefix) / "bin" / "python3"), "-m", "pip"]


def _lines(text: str) -> Iterable[str]:
    """Each requirement with its hashes, without comments."""
    whole = text.replace("\\\n", " ").splitlines()
    return (line.strip() for line in whole if line.strip() and not line.lstrip().startswith("#"))


def _pin(line: str, environment: dict[str, str]) -> Pin | None:
    requirement_text, *hashes = line.split("--hash=")
    requirement = Requirement(requirement_text.strip())
    if requirement.marker and not requirement.marker.evaluate(environment):
        return None
    version = str(requirement.specifier).removeprefix("==")
    return Pin(requirement.name, version, tuple(text.strip() for text in hashes))


def _environment(machine: settings.Machine) -> dict[str, str]:
    """What markers can ask for, as Python in the image would answer."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{settings.PYTHON}.0",
        "os_name": "posix",
        "platform_machine": machine.python,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{settings.PYTHON}.0",
        "python_version": settings.PYTHON,
        "sys_platform": "linux",
    }


def _tags(machine: settings.Machine) -> list[str]:
    glibcs = range(_GLIBC, _OLDEST_GLIBC - 1, -1)
    platforms = [f"manylinux_2_{minor}_{machine.python}" for minor in glibcs]
    abis = [f"cp{settings.PYTHON.replace('.', '')}", "abi3", "none"]
    return [
        *(f"--platform={name}" for name in (*platforms, f"manylinux2014_{machine.python}")),
        *(f"--abi={abi}" for abi in abis),
        f"--python-version={settings.PYTHON}",
        "--implementation=cp",
    ]
