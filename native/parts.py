"""Parts: what is built in C, and only if what it is made of changed since it was last built.

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

from native import compilers, libraries
from native.compilers import CannotBuild, Compiler
from native.libraries import HEADERS, SOURCES

LIB = SOURCES.parent / "src" / "partage" / "lib"  # where the product looks, in a checkout


@dataclasses.dataclass(frozen=True)
class Part:
    """One of the parts in C: what is made, in which subfolder, and how."""

    name: str
    folder: str
    files: tuple[str, ...]
    build: Callable[[Path, Compiler], object]
    headers: tuple[str, ...] = ()
    also: tuple[str, ...] = ()  # what it is made of besides its own folder
    foreign: str = ""  # a header of the system, whose version decides as well

    def out(self, lib: Path) -> Path:
        return lib / self.folder


PARTS = (
    Part("fence", "", ("libpartage.so",), libraries.fence, also=("substitute/functions.py",)),
    Part(
        "substitute",
        "substitute",
        tuple(libraries.DRIVER),
        libraries.substitute,
        tuple(HEADERS),
        ("fence/hooks.h", "simcuda/headers.py", "simcuda/generated_code.py"),
    ),
    Part(
        "simcuda",
        "simulated",
        (
            *libraries.DRIVER,
            *(name.removesuffix(".1") for name in libraries.DRIVER),
            *("simsmi", "nvidia-smi"),
        ),
        libraries.simcuda,
        tuple(HEADERS),
        ("substitute/functions.py", "substitute/library.c"),
    ),
    Part(
        "spank",
        "spank",
        (libraries.SPANK,),
        libraries.spank,
        also=("fence/layout.h",),
        foreign=libraries.SPANK_HEADER,
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
    foreign = compiler.definitions(part.foreign) if part.foreign else ""
    digest = hashlib.sha256(repr((compiler, _versions(part.headers), foreign)).encode())
    for file in (*_sources(part), Path(compilers.__file__), Path(libraries.__file__)):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(SOURCES)} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _sources(part: Part) -> list[Path]:
    files = (SOURCES / part.name).rglob("*")
    sources = sorted(file for file in files if file.is_file() and file.suffix != ".pyc")
    if not any(file.suffix == ".c" for file in sources):
        raise CannotBuild(f"native/{part.name} has no source in C: the checkout is not complete")
    return [*sources, *(SOURCES / name for name in part.also)]


def _versions(packages: tuple[str, ...]) -> list[str]:
    if packages:
        libraries.header_folders()  # tells what to do where they are missing
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
