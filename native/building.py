"""Compiles the C parts: with the system's compiler here, with a release compiler for wheels.

One module for every build: `python -m native` on a developer's machine, the hook that hatchling
runs when it makes a wheel, and the tests, which build again with sanitizers. It only knows files
and flags; what needs no building is for `native.refreshing` to know. Files are put in place by a
rename, so that a process which loads one meanwhile sees the old one or the new one, never half of
one, and a build that fails changes nothing.
"""

import concurrent.futures
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from native.simcuda import generating
from native.substitute import generating as facades

HERE = Path(__file__).parent
STRICT = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O2", "-g", "-fPIC")
FENCE = "libpartage.so"
# The driver's libraries: the header, and how each is called behind the one in its place.
DRIVER = {
    "libcuda.so.1": ("cuda.h", "libpartage-cuda.so.1"),
    "libnvidia-ml.so.1": ("nvml.h", "libpartage-nvidia-ml.so.1"),
}
# Where a library in the driver's place finds the others: in a container at fixed places, else
# beside itself.
BEHIND = "/etc/partage/fence:$ORIGIN"
HIDDEN = ("-fvisibility=hidden", "-ftls-model=initial-exec")
# The distribution of each set of headers, and the header that tells where they are.
HEADERS = {"nvidia-cuda-runtime": "cuda.h", "nvidia-nvml-dev": "nvml.h"}

# A release runs on what its users have: any glibc since 2012 (CentOS 7), on these machines.
MACHINES = ("x86_64", "aarch64")
GLIBC = (2, 17)
# Zig adds run-time checks to C that abort a program on what C leaves open; a library that lives in
# other people's processes must not. Unless told otherwise, it also lets a library ask for functions
# that the old glibc does not have. Without debug information it is small and names no path of ours.
RELEASE = ("-fno-sanitize=all", "-Wl,-z,defs", "-s")


class CannotBuild(Exception):
    """A part in C could not be built; the text says what is missing and what to do."""


@dataclasses.dataclass(frozen=True)
class Facade:
    """A library that has the functions of a header from others, which stand behind it."""

    header: str
    needed: tuple[str, ...]  # those others, in the order in which they are searched
    places: str  # where they are
    jumping: tuple[str, ...] = ()  # the fence's table: what is in it is not searched, but jumped to


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
        wanted = [flag for flag in (*self.flags, *flags) if not _is_for_linking(flag)]

        def one(source: Path) -> Path:
            if source.suffix != ".c":
                return source
            made = folder / f"{source.parent.name}-{source.stem}.o"
            if failure := self._failure(*STRICT, *wanted, "-c", "-o", made, source):
                raise CannotBuild(f"{source.name} does not compile:\n{failure}")
            return made

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            return list(pool.map(one, sources))

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


def system_compiler(*flags: str) -> Compiler:
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


def release_compiler(machine: str) -> Compiler:
    """The compiler of release wheels: Zig's, which links against an old glibc for any machine."""
    if machine not in MACHINES:
        raise CannotBuild(f"there are no wheels for {machine}, only for {' and '.join(MACHINES)}")
    package = importlib.util.find_spec("ziglang")
    if package is None or package.origin is None:
        raise CannotBuild("ziglang is not installed here: `make wheels` runs where it is")
    zig = Path(package.origin).with_name("zig")  # itself, as `python -m ziglang` takes 0.1 s more
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    return Compiler((str(zig), "cc"), ("-target", target, *RELEASE))


def fence(out: Path, compiler: Compiler) -> Path:
    """Build `libpartage.so`, the library that holds a process to its share."""
    source = HERE / "fence"
    # Its parts call each other on every allocation; as one whole they cost a sixth less.
    whole = dataclasses.replace(compiler, flags=(*compiler.flags, "-flto"))
    with _staged(out) as stage:
        whole.link(
            stage / FENCE,
            sorted(source.glob("*.c")),
            *HIDDEN,
            f"-DHOOKS_TABLE={facades.table()}",
            "-shared",
            "-pthread",
            "-ldl",
            f"-Wl,-soname,{FENCE}",
            "-Wl,-z,nodelete",  # it may have been opened with the driver, which programs close
            "-Wl,-Bsymbolic",
            f"-Wl,--version-script={source / 'exports.map'}",
            # Lazily bound: it is loaded into every process, and most never call it.
            "-Wl,-z,lazy,-z,relro,-z,noexecstack",
        )
    return out / FENCE


def substitute(out: Path, compiler: Compiler) -> None:
    """Build what stands in the driver's place: its libraries, with the fence and it behind them."""
    with _staged(out) as stage:
        for name, (header, behind) in DRIVER.items():
            kind = Facade(header, (FENCE, behind), BEHIND, tuple(facades.wrapped()))
            _facade(stage / name, compiler, kind)


def _facade(target: Path, compiler: Compiler, kind: Facade) -> None:
    """Build a library whose functions are found in those that it needs."""
    # It is there for what it needs, whether or not it names anything of that.
    whole = dataclasses.replace(compiler, flags=(*compiler.flags, "-Wl,--no-as-needed"))
    names = facades.declared(kind.header, headers(), compiler.command)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "functions.h").write_text(facades.functions(names, kind.jumping))
        whole.link(
            target,
            [HERE / "substitute" / "library.c", *_promised(folder, compiler, kind.needed)],
            f"-I{folder}",
            f'-DHOOKS_TABLE="{facades.table()}"',
            "-shared",
            "-nostdlib",
            "-s",
            f"-Wl,-soname,{target.name}",
            # A driver that is found under its own name once this one is gone would have no fence.
            "-Wl,-z,nodelete,-z,noexecstack",
            # The old tag comes before LD_LIBRARY_PATH: what is behind is not for that to choose.
            f"-Wl,--disable-new-dtags,-rpath,{kind.places}",
        )
    facades.hollow(target, kind.jumping)


def _promised(folder: Path, compiler: Compiler, names: Iterable[str]) -> list[Path]:
    """Libraries of these names for the linker, who asks for no more of them than the table."""
    source = folder / "promised.c"
    source.write_text(
        f"extern void *const {facades.table()}[];\nvoid *const {facades.table()}[1];\n"
    )
    return [
        compiler.link(folder / name, [source], "-shared", "-nostdlib", f"-Wl,-soname,{name}")
        for name in names
    ]


def simcuda(out: Path, compiler: Compiler) -> None:
    """Build the simulated driver: its libraries, by both of their names, and `simsmi`.

    It is `nvidia-smi` as well, which programs look for.
    """
    source = HERE / "simcuda"
    with _staged(out) as stage, tempfile.TemporaryDirectory() as scratch:
        generated = Path(scratch)
        includes = [f"-I{folder}" for folder in (source, generated)]
        includes += [f"-isystem{folder}" for folder in headers()]  # whose warnings are not ours
        includes.append("-D_GNU_SOURCE")
        generating.generate(headers(), generated, compiler.command)
        common = compiler.compile(
            generated, sorted((source / "common").glob("*.c")), *includes, *HIDDEN, "-pthread"
        )
        for name, part in (("libcuda.so.1", "cuda"), ("libnvidia-ml.so.1", "nvml")):
            own = [*(source / part).glob("*.c"), *generated.glob(f"{part}_*.c")]
            compiler.link(
                stage / name,
                [*common, *sorted(own)],
                *includes,
                *HIDDEN,
                "-shared",
                "-pthread",
                "-ldl",
                f"-Wl,-soname,{name}",
                "-Wl,-Bsymbolic",
            )
            # A wheel holds no links, and a copy would be a second driver in the same process.
            second = Facade(DRIVER[name][0], (name,), "$ORIGIN")
            _facade(stage / name.removesuffix(".1"), compiler, second)
        compiler.link(stage / "simsmi", [source / "simsmi.c", *common], *includes, "-pthread")
        (stage / "nvidia-smi").symlink_to("simsmi")


def headers() -> tuple[Path, ...]:
    """Where pip put the headers of CUDA's driver and of NVML; they are a build requirement."""
    found = []
    for package, header in HEADERS.items():
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            files = ()
        match = [file for file in files if file.name == header]
        if not match:
            message = (
                f"{header} was not found, so the simulated driver cannot be built: "
                f"install it with `pip install {package}`"
            )
            raise CannotBuild(message)
        found.append(Path(str(match[0].locate())).parent)
    return tuple(dict.fromkeys(found))


@contextlib.contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A folder whose files move to `out` when the block ends well, and vanish when it does not."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out) as folder:
        yield Path(folder)
        for file in Path(folder).iterdir():
            file.replace(out / file.name)
