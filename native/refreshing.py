"""Builds a part only if what it is made of changed since it was last built.

Beside what was built lies a digest of everything that decides how it comes out: the sources, the
way of building, the compiler's command line and the version of the headers. Times of files are not
looked at: a checkout, a copy or a branch and back would make them lie. Reading the sources takes
milliseconds, so `make test` can ask each time. The digest is written last and under a lock, so a
build that was killed is done again, and of two builds at once the second finds nothing to do.
"""

import contextlib
import dataclasses
import fcntl
import hashlib
import importlib.metadata
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from native import building
from native.building import HEADERS, HERE, CannotBuild, Compiler

LIB = HERE.parent / "src" / "partage" / "lib"  # where the product looks, in a checkout


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the parts in C: what is made, in which subfolder, and how."""

    name: str
    folder: str
    files: tuple[str, ...]
    build: Callable[[Path, Compiler], object]
    headers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # what it is made of besides its own folder

    def out(self, lib: Path) -> Path:
        return lib / self.folder


PARTS = (
    Part("fence", "", ("libpartage.so",), building.fence, also=("substitute/generating.py",)),
    Part(
        "substitute",
        "substitute",
        tuple(building.DRIVER),
        building.substitute,
        tuple(HEADERS),
        ("fence/hooks.h", "simcuda/reading.py", "simcuda/generating.py"),
    ),
    Part(
        "simcuda",
        "simulated",
        (
            *building.DRIVER,
            *(name.removesuffix(".1") for name in building.DRIVER),
            *("simsmi", "nvidia-smi"),
        ),
        building.simcuda,
        tuple(HEADERS),
        ("substitute/generating.py", "substitute/library.c"),
    ),
)


def refresh(part: Part, lib: Path, compiler: Compiler) -> bool:
    """Build the part below `lib` if need be, and say if it was needed."""
    out = part.out(lib)
    kept = out / f".{part.name}.digest"
    with _alone(out):
        digest = _digest(part, compiler)
        if _is_fresh(part, out, kept, digest):
            return False
        kept.unlink(missing_ok=True)
        part.build(out, compiler)
        kept.write_text(digest)
    return True


def _is_fresh(part: Part, out: Path, kept: Path, digest: str) -> bool:
    if not all((out / file).exists() for file in part.files):
        return False
    return kept.exists() and kept.read_text() == digest


def _digest(part: Part, compiler: Compiler) -> str:
    found = hashlib.sha256(repr((compiler, _versions(part.headers))).encode())
    for file in (*_sources(part), Path(building.__file__)):
        content = file.read_bytes()
        found.update(f"{file.relative_to(HERE)} {len(content)}\n".encode())
        found.update(content)
    return found.hexdigest()


def _sources(part: Part) -> list[Path]:
    files = (HERE / part.name).rglob("*")
    sources = sorted(file for file in files if file.is_file() and file.suffix != ".pyc")
    if not any(file.suffix == ".c" for file in sources):
        raise CannotBuild(f"native/{part.name} has no source in C: the checkout is not complete")
    return [*sources, *(HERE / name for name in part.also)]


def _versions(packages: tuple[str, ...]) -> list[str]:
    if packages:
        building.headers()  # tells what to do where they are missing
    return [importlib.metadata.version(package) for package in packages]


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Hold the folder against other builds; what a killed one left there is removed."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in out.glob(".unfinished-*"):
            shutil.rmtree(left)
        yield
