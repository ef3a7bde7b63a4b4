"""Libraries: how each library in C is built, and the headers that they need.

What needs no building is for `native.parts` to know. Files are put in place by a rename, so that a
process which loads one meanwhile sees the old one or the new one, never half of one, and a build
that fails changes nothing.
"""

import contextlib
import dataclasses
import importlib.metadata
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from native.compilers import CannotBuild, Compiler, LeftOut
from native.simcuda import generated_code
from native.substitute import functions

SOURCES = Path(__file__).parent
FENCE = "libpartage.so"
SPANK = "partage_spank.so"
# The driver's libraries: the header, and how each is called behind the one in its place.
DRIVER = {
    "libcuda.so.1": ("cuda.h", "libpartage-cuda.so.1"),
    "libnvidia-ml.so.1": ("nvml.h", "libpartage-nvidia-ml.so.1"),
}
# Where a library in the driver's place finds the others: in a container at fixed places, else
# beside itself.
BEHIND = "/etc/partage/fence:$ORIGIN"
SPANK_HEADER = "slurm/spank.h"
HIDDEN = ("-fvisibility=hidden", "-ftls-model=initial-exec")
# The distribution of each set of headers, and the header that tells where they are.
HEADERS = {"nvidia-cuda-runtime": "cuda.h", "nvidia-nvml-dev": "nvml.h"}


@dataclasses.dataclass(frozen=True)
class Facade:
    """A library that has the functions of a header from others, which stand behind it."""

    header: str
    needed: tuple[str, ...]  # those others, in the order in which they are searched
    places: str  # where they are
    jumping: tuple[str, ...] = ()  # the fence's table: what is in it is not searched, but jumped to


def fence(out: Path, compiler: Compiler) -> Path:
    """Build `libpartage.so`, the library that holds a process to its share."""
    source = SOURCES / "fence"
    # Its parts call each other on every allocation; as one whole they cost a sixth less.
    whole = dataclasses.replace(compiler, flags=(*compiler.flags, "-flto"))
    with _staged(out) as stage:
        whole.link(
            stage / FENCE,
            sorted(source.glob("*.c")),
            *HIDDEN,
            f"-DHOOKS_TABLE={functions.table_name()}",
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
            kind = Facade(header, (FENCE, behind), BEHIND, tuple(functions.wrapped()))
            _facade(stage / name, compiler, kind)


def _facade(target: Path, compiler: Compiler, kind: Facade) -> None:
    """Build a library whose functions are found in those that it needs."""
    # It is there for what it needs, whether or not it names anything of that.
    whole = dataclasses.replace(compiler, flags=(*compiler.flags, "-Wl,--no-as-needed"))
    names = functions.declared(kind.header, header_folders(), compiler.command)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "functions.h").write_text(functions.c_list(names, kind.jumping))
        whole.link(
            target,
            [SOURCES / "substitute" / "library.c", *_promised(folder, compiler, kind.needed)],
            f"-I{folder}",
            f'-DHOOKS_TABLE="{functions.table_name()}"',
            "-shared",
            "-nostdlib",
            "-s",
            f"-Wl,-soname,{target.name}",
            # A driver that is found under its own name once this one is gone would have no fence.
            "-Wl,-z,nodelete,-z,noexecstack",
            # The old tag comes before LD_LIBRARY_PATH: what is behind is not for that to choose.
            f"-Wl,--disable-new-dtags,-rpath,{kind.places}",
        )
    functions.hollow(target, kind.jumping)


def _promised(folder: Path, compiler: Compiler, names: Iterable[str]) -> list[Path]:
    """Libraries of these names for the linker, who asks for no more of them than the table."""
    source = folder / "promised.c"
    table = functions.table_name()
    source.write_text(f"extern void *const {table}[];\nvoid *const {table}[1];\n")
    return [
        compiler.link(folder / name, [source], "-shared", "-nostdlib", f"-Wl,-soname,{name}")
        for name in names
    ]


def simcuda(out: Path, compiler: Compiler) -> None:
    """Build the simulated driver: its libraries, by both of their names, and `simsmi`.

    It is `nvidia-smi` as well, which programs look for.
    """
    source = SOURCES / "simcuda"
    with _staged(out) as stage, tempfile.TemporaryDirectory() as scratch:
        generated = Path(scratch)
        includes = [f"-I{folder}" for folder in (source, generated)]
        includes += [
            f"-isystem{folder}" for folder in header_folders()
        ]  # whose warnings are not ours
        includes.append("-D_GNU_SOURCE")
        generated_code.generate(header_folders(), generated, compiler.command)
        common = compiler.compile(
            generated, sorted((source / "common").glob("*.c")), *includes, *HIDDEN, "-pthread"
        )
        for name, part in (("libcuda.so.1", "cuda"), ("libnvidia-ml.so.1", "nvml")):
            own = [*(source / part).glob("*.c"), *generated.glob(f"{part}_*.c")]
            compiler.link(
                stage / name,
                # By name: in order of folders, two checkouts would get different libraries.
                [*common, *sorted(own, key=lambda file: file.name)],
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


def spank(out: Path, compiler: Compiler) -> Path:
    """Build the plugin of Slurm; it fits the Slurm whose headers are here, and no other."""
    if not compiler.definitions(SPANK_HEADER):
        raise LeftOut(
            f"there is no {SPANK_HEADER}; to hold jobs of Slurm to shares, install the headers "
            "of the same Slurm as on the nodes (`apt install libslurm-dev`)"
        )
    source = SOURCES / "spank"
    with _staged(out) as stage:
        compiler.link(
            stage / SPANK,
            sorted(source.glob("*.c")),
            "-fvisibility=default",  # Slurm looks its functions up by name
            "-shared",
            f"-Wl,--version-script={source / 'exports.map'}",
            "-Wl,-z,now,-z,relro,-z,noexecstack",
        )
    return out / SPANK


def header_folders() -> tuple[Path, ...]:
    """Where pip put the headers of CUDA's driver and of NVML; they are a build requirement."""
    folders = []
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
        folders.append(Path(str(match[0].locate())).parent)
    return tuple(dict.fromkeys(folders))


@contextlib.contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """A folder whose files move to `out` when the block ends well, and vanish when it does not."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=out) as folder:
        yield Path(folder)
        for file in Path(folder).iterdir():
            file.replace(out / file.name)
