"""`python -m native.symbols FILE|WHEEL...`: would these load where our users are?

A process whose preloaded library asks for a version of a symbol that its glibc does not have dies
before its first line, and a library built on a new distribution asks for new ones without a word:
`dlsym` itself moved into libc in 2.34. So a release is read before it is given away.
"""

import sys
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

from native import elf
from native.compilers import GLIBC
from native.libraries import DRIVER, FENCE
from native.substitute import functions

# What is in every image with glibc. Anything else may be missing there, and that is as fatal.
EVERYWHERE = {
    "libc.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
}
# What stands in the driver's place has the fence and the driver behind it; the simulated driver's
# second name has the first. Each file is loaded where these are.
BEHIND = {
    **{name: {FENCE, behind} for name, (_, behind) in DRIVER.items()},
    **{name.removesuffix(".1"): {name} for name in DRIVER},
}


def main(paths: list[str]) -> int:
    if not paths:
        print("usage: python -m native.symbols FILE|WHEEL...", file=sys.stderr)
        return 2
    try:
        problems = [problem for path in paths for problem in _problems(Path(path))]
    except OSError as error:
        problems = [str(error)]
    for problem in problems:
        print(f"symbols: {problem}", file=sys.stderr)
    return 1 if problems else 0


def _problems(path: Path) -> Iterator[str]:
    """Print what each file needs; gives what is wrong with it."""
    machines = set()
    for name, data in _elf_files(path):
        try:
            file = elf.File(data)
        except elf.NotElf as error:
            yield f"{name} cannot be checked: {error}"
            continue
        print(f"{name}: {_summary(file)}")
        machines.add(file.machine)
        behind = BEHIND.get(name.rpartition("/")[2], set())
        yield from (f"{name} {problem}" for problem in _problems_of(file, behind))
    if path.suffix == ".whl" and machines != {_machine_in(path.stem)}:
        named = ", ".join(sorted(machines)) or "no machine"
        yield f"{path.name} has libraries for {named}: not what its name says"


def _elf_files(path: Path) -> Iterator[tuple[str, bytes]]:
    """The file itself, or the ELF files inside of a wheel."""
    if not zipfile.is_zipfile(path):
        yield str(path), path.read_bytes()
        return
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if (data := wheel.read(name)).startswith(elf.MAGIC):
                yield f"{path.name}: {name}", data


def _summary(file: elf.File) -> str:
    newest = max(file.versions(), key=_order, default="no glibc")
    libraries = ", ".join(file.libraries()) or "no library"
    return f"{file.machine}, {newest}, {libraries}, {len(list(file.exports()))} exports"


def _problems_of(file: elf.File, behind: Collection[str]) -> Iterator[str]:
    limit = "GLIBC_" + ".".join(map(str, GLIBC))
    for version in sorted(set(file.versions()), key=_order):
        if _order(version) > GLIBC:
            yield f"needs {version}, and has to do with {limit}"
    for symbol in file.unversioned():
        if not (FENCE in behind and symbol == functions.table_name()):
            yield f"needs {symbol}, which {limit} does not have"
    for library in file.libraries():
        if library not in EVERYWHERE and library not in behind:
            yield f"needs {library}, which an image may lack"


def _order(version: str) -> tuple[int, ...]:
    """GLIBC_2.17 as numbers; what is not such a name (GLIBC_PRIVATE) counts as newer than all."""
    number = version.removeprefix("GLIBC_")
    if number == version or not number.replace(".", "").isdecimal():
        return (sys.maxsize,)
    return tuple(map(int, number.split(".")))


def _machine_in(stem: str) -> str:
    """The machine at the end of a wheel's name; `any` has none, and so no business with ELF."""
    return next((name for name in elf.MACHINES.values() if stem.endswith(f"_{name}")), "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
