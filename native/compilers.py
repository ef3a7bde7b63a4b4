"""Compilers: the system's for this machine, and a release compiler for wheels.

Every build goes through here: `python -m native` on a developer's machine, the hook that hatchling
runs when it makes a wheel, and the tests, which build again with sanitizers. A compiler only knows
files and flags; what is built of which files is for `native.libraries` to know.
"""

import concurrent.futures
import dataclasses
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-fPIC")

# A release runs on what its users have: any glibc since 2012 (CentOS 7), on these machines.
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 17)
# Zig adds run-time checks to C that abort a program on what C leaves open; a library that lives in
# other people's processes must not. Unless told otherwise, it also lets a library ask for functions
# that the old glibc does not have. Without debug information it is small and names no path of ours.
RELEASE = ("-fno-sanitize=all", "-Wl,-z,defs", "-s")


class CannotBuild(Exception):
    """A part in C could not be built; the text says what is missing and what to do."""


class LeftOut(CannotBuild):
    """A part that most machines have no use for is not built here; the text says why."""


@dataclasses.dataclass(frozen=True)
class Compiler:
    """A C compiler as a command line, with flags that every call gets (a target, sanitizers)."""

    command: tuple[str, ...]
    flags: tuple[str, ...] = ()

    def link(self, target: Path, sources: Iterable[Path], *flags: str) -> Path:
        """Make a program or a library of sources, and of what is compiled already."""
        with tempfile.TemporaryDirectory() as scratch:
            objects = self.compile(Path(scratch), sources, *flags)
            linking = [flag for flag in flags if _is_for_linking(flag) or flag == "-pthread"]
            failure = self._failure(*self.flags, "-o", target, *objects, *linking)
        if failure:
            raise CannotBuild(f"{target.name} cannot be linked:\n{failure}")
        return target

    def compile(self, folder: Path, sources: Iterable[Path], *flags: str) -> list[Path]:
        """Compile to objects in the folder, several at a time; what is no source stays as it is."""
        compiling = [flag for flag in (*self.flags, *flags) if not _is_for_linking(flag)]

        def compiled(source: Path) -> Path:
            if source.suffix != ".c":
                return source
            made = folder / f"{source.parent.name}-{source.stem}.o"
            if failure := self._failure(*STRICT, *compiling, "-c", "-o", made, source):
                raise CannotBuild(f"{source.name} does not compile:\n{failure}")
            return made

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(compiled, sources))

    def definitions(self, header: str) -> str:
        """What a header of this system defines; nothing if there is no such header."""
        with tempfile.TemporaryDirectory() as scratch:
            source, result = Path(scratch) / "header.c", Path(scratch) / "definitions"
            source.write_text(f"#include <{header}>\n")
            failure = self._failure(*self.flags, "-E", "-dM", "-o", result, source)
            return "" if failure else result.read_text()

    def _failure(self, *arguments: str | Path) -> str:
        """Run the compiler; gives what it says if it fails."""
        line = [*self.command, *map(str, arguments)]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if not done.returncode:
            return ""
        return done.stderr.strip() or f"{line[0]} ended with {done.returncode}"


def _is_for_linking(flag: str) -> bool:
    """Whether only the linker knows what to do with it: clang complains when it only compiles."""
    return flag.startswith(("-Wl,", "-l", "-L")) or flag in {"-shared", "-nostdlib", "-s"}


def system(*flags: str) -> Compiler:
    """The compiler that $CC names, else `cc`, else `gcc`, else `clang`."""
    if platform.system() != "Linux":
        raise CannotBuild("the fence is for Linux only; the rest of Partage works without it")
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return Compiler(tuple(command), flags)
    missing = f"CC names {named[0]}, which was not found" if named else "no C compiler was found"
    message = (
        f"{missing}, so the fence cannot be built: install gcc "
        "(`apt install gcc libc6-dev`, `dnf install gcc`) or name one in CC, then install again"
    )
    raise CannotBuild(message)


def release(machine: str) -> Compiler:
    """The compiler of release wheels: Zig's, which links against an old glibc for any machine."""
    if machine not in MACHINES:
        raise CannotBuild(f"there are no wheels for {machine}, only for {' and '.join(MACHINES)}")
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise CannotBuild("ziglang is not installed here: `make wheels` runs where it is")
    zig = Path(package.origin).with_name("zig")  # itself, as `python -m ziglang` takes 0.1 s more
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    return Compiler((str(zig), "cc"), ("-target", target, *RELEASE))
