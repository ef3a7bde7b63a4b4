"""Programs that no preload reaches get out and are found, or are held in the driver's place."""

from __future__ import annotations

import functools
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from native import compilers, libraries
from partage.fence.store import layout
from tests import leaving_out
from tests.native import fenced, watch_looks
from tests.native.fenced import CLIENTS, FENCE, GIB, LIBRARIES, OUT_OF_MEMORY

HELD, ESCAPED = f"0 0 {OUT_OF_MEMORY}", "0 0 0"  # 100 MiB and then 2 GiB, of a quota of one
LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
LIMITS = "/etc/partage/fence/limits"
LIST = "/etc/ld.so.preload"
MUSL = "musl-gcc"
NOBODY = 65534
OWN_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")
_SAME: Mapping[str, str] = {}


class Start(NamedTuple):
    """How a program is started, and what of its environment is different then."""

    command: list[str]
    changes: Mapping[str, str] = _SAME


Way = Callable[[dict[str, str], Path], Start]


def taker(folder: Path, *, static: bool = False) -> str:
    """A program that takes too much, and keeps it until its input ends."""
    includes = [f"-isystem{headers}" for headers in libraries.header_folders()]
    compiler = compilers.system("-static" if static else "-g", *includes)
    try:
        return str(compiler.link(folder / "taker", [CLIENTS / "sought.c"], "-ldl"))
    except compilers.CannotBuild as error:
        leaving_out.leave_out("a libc to link with statically", str(error).splitlines()[-1])


def unset(_environment: dict[str, str], folder: Path) -> Start:
    """Without the variable."""
    return Start([taker(folder), "by the program"], {"LD_PRELOAD": ""})


def soname(environment: dict[str, str], folder: Path) -> Start:
    """Behind a library that the loader takes for the fence, since it is called like it."""
    fence = environment["LD_PRELOAD"]
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{fence}")
    other = fenced.compiled(folder / "nothing.so", "nothing.c", *flags)
    return Start([taker(folder), "by the program"], {"LD_PRELOAD": f"{other} {fence}"})


def statically(_environment: dict[str, str], folder: Path) -> Start:
    """Without a loader that would read the variable."""
    return Start([taker(folder, static=True), "by the program"])


def listed(environment: dict[str, str], folder: Path, *command: str) -> Start:
    """As in a container: with a list and limits that the program's user cannot change."""
    etc = folder / "etc"
    (etc / "partage/fence").mkdir(parents=True)
    (etc / Path(LIST).name).write_text(f"{FENCE}\n")
    mounts = f'mount --bind "$0" /etc && mount --bind "$1" {Path(LIMITS).parent}'
    tenant = Path(environment["PARTAGE_LIMITS"]).parent
    inside = [*OWN_NAMESPACE, f'{mounts} && shift && exec "$@"', str(etc), str(tenant)]
    ran = subprocess.run([*inside, "true"], capture_output=True, text=True, check=False)
    if ran.returncode:
        leaving_out.leave_out("a user namespace", ran.stderr.strip())
    return Start([*inside, *command], {"LD_PRELOAD": "", "PARTAGE_LIMITS": ""})


def by_the_list(environment: dict[str, str], folder: Path) -> Start:
    """As it should be."""
    return listed(environment, folder, taker(folder), "by the program")


def unanswered(environment: dict[str, str], folder: Path) -> Start:
    """Where the loader's question for the list is not answered (seccomp)."""
    launcher = fenced.unanswered(folder, fenced.ACCESS_CALLS)
    return listed(environment, folder, *launcher, taker(folder), "by the program")


def traced(environment: dict[str, str], folder: Path) -> Start:
    """Where the loader is made to ask for something else (ptrace)."""
    launcher = fenced.compiled(folder / "traced", "traced.c")
    return listed(environment, folder, str(launcher), taker(folder), "by the program")


def covered(environment: dict[str, str], folder: Path) -> Start:
    """Where an empty list is mounted over it, in a user namespace of the program's own."""
    words = (f'mount --bind /dev/null {LIST} && exec "$0" "$@"', taker(folder), "by the program")
    return listed(environment, folder, *OWN_NAMESPACE, *words)


def loader(environment: dict[str, str], folder: Path) -> Start:
    """By a loader that knows of another list."""
    program, own = taker(folder), folder / "loader"
    content = Path(LOADERS[platform.machine()]).read_bytes()
    assert LIST.encode() in content
    own.write_bytes(content.replace(LIST.encode(), LIST.upper().encode()))
    own.chmod(0o755)
    return listed(environment, folder, str(own), program, "by the program")


def mounted(environment: dict[str, str], folder: Path) -> Start:
    """Where limits of the program's own are mounted over them; there its user counts as root."""
    content = bytearray(Path(environment["PARTAGE_LIMITS"]).read_bytes())
    at = layout.Limits.card.offset + layout.LimitsCard.memory_bytes.offset
    content[at : at + 8] = (8 * GIB).to_bytes(8, "little")
    own = folder / "limits"
    own.write_bytes(content)
    words = (f'mount --bind "$0" {LIMITS} && exec "$@"', str(own), taker(folder), "by the program")
    return listed(environment, folder, *OWN_NAMESPACE, *words)


def looked_up(_environment: dict[str, str], folder: Path, way: str) -> Start:
    """By a lookup that passes a preloaded dlsym by."""
    return Start([taker(folder), way])


def deeply(_environment: dict[str, str], folder: Path) -> Start:
    """By a library that finds its own before ours (RTLD_DEEPBIND)."""
    library = fenced.compiled(folder / "libdeep.so", "sought.c", "-shared", "-fPIC")
    return Start([taker(folder), "by itself", str(library)])


def behind(_environment: dict[str, str], folder: Path) -> Start:
    """By a library that asks for what comes after it, and so after the preload (RTLD_NEXT)."""
    library = fenced.compiled(folder / "libnext.so", "sought.c", "-shared", "-fPIC")
    sources = [CLIENTS / "seeker.c", library, LIBRARIES / "libcuda.so.1"]
    compiler = compilers.system("-Wl,--no-as-needed")
    return Start([str(compiler.link(folder / "seeker", sources))])


def group(_environment: dict[str, str], folder: Path) -> Start:
    """With other rights than its user's, so that the loader believes no variable."""
    if os.geteuid():
        leaving_out.leave_out("root", "to make a set-group-ID program")
    program = taker(folder)
    os.chown(program, 0, NOBODY)
    Path(program).chmod(0o2755)
    return Start([program, str(LIBRARIES / "libcuda.so.1")])


def named(_environment: dict[str, str], folder: Path) -> Start:
    """Statically linked, with the driver by its path."""
    return Start([taker(folder, static=True), str(LIBRARIES / "libcuda.so.1")])


def first(_environment: dict[str, str], folder: Path) -> Start:
    """With the driver's own file preloaded instead of the fence, so that its name is taken."""
    changes = {"LD_PRELOAD": str(LIBRARIES / "libcuda.so.1")}
    return Start([taker(folder), "by the program"], changes)


def chrooted(environment: dict[str, str], folder: Path) -> Start:
    """In a root of its own that has the driver's file and no list, with the one right to go there.

    Libraries could be copied there as well. The simulated driver needs /proc, a real one does not.
    """
    other = folder / "other"
    mounts = [*filter(os.path.isdir, ("/proc", "/usr", "/lib", "/lib64")), str(folder), LIBRARIES]
    script = [f'mkdir -p "$0{path}" && mount --rbind "{path}" "$0{path}"' for path in mounts]
    script.append('exec setpriv --bounding-set=-all,+sys_chroot chroot "$0" "$@"')
    shell = f"exec 2>&1; {' && '.join(script)}"  # what does not work is read in place of an answer
    words = (shell, str(other), taker(folder), "by the program")
    start = listed(environment, folder, "sh", "-c", *words)
    return Start(start.command, {**start.changes, "LD_LIBRARY_PATH": str(LIBRARIES)})


def foreign(environment: dict[str, str], folder: Path) -> Start:
    """For another libc, whose loader knows of no list."""
    return listed(environment, folder, foreign_taker(folder))


def foreign_taker(folder: Path) -> str:
    """A program for musl that takes too much."""
    compiler = compilers.Compiler(
        (MUSL,), tuple(f"-isystem{path}" for path in libraries.header_folders())
    )
    sources = [CLIENTS / "foreign.c", LIBRARIES / "libcuda.so.1"]
    flags = ("-Wl,--export-dynamic", "-Wl,--allow-shlib-undefined")
    return str(compiler.link(folder / "foreign", sources, *flags))


FOREIGN = [foreign] if shutil.which(MUSL) else []  # nobody is asked to install it
PLACED = [unset, soname, statically, unanswered, traced, covered, loader]
LOOKUPS = [functools.partial(looked_up, way=way) for way in ("libc", "version", "namespace")]


def begun(
    machine: fenced.Machine, environment: dict[str, str], folder: Path, way: Way
) -> tuple[fenced.Process, str]:
    """A program that was started so, and what came of it."""
    start = way(environment, folder)
    process = machine.run_in_background(start.command, {**environment, **start.changes})
    return process, process.line()


def name_of(way: Way) -> str:
    """For people who read the tests' names."""
    return way.keywords["way"] if isinstance(way, functools.partial) else way.__name__


@pytest.mark.parametrize(
    "way", [*PLACED, *LOOKUPS, deeply, behind, group, mounted, chrooted, *FOREIGN], ids=name_of
)
def test_past_the_preload_alone_it_gets_out_and_is_found(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, way: Way
) -> None:
    """It holds twice its quota, and the watch names the process and what it holds."""
    honest = tenant.started()
    escaped, said = begun(machine, tenant.environment, tmp_path, way)
    assert said == ESCAPED
    assert machine.truth()[escaped.pid] > 2 * GIB
    assert watch_looks.finds(machine, tenant, escaped.pid, honest.pid)


@pytest.mark.parametrize("way", PLACED, ids=name_of)
def test_in_the_drivers_place_it_is_held(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, way: Way
) -> None:
    """Nobody has to preload what is found with the driver; and it is counted."""
    process, said = begun(machine, tenant.whole_environment, tmp_path, way)
    assert said == HELD
    assert tenant.counted() == machine.truth()
    assert list(tenant.counted()) == [process.pid]


@pytest.mark.parametrize("way", [group, named, first, mounted, chrooted], ids=name_of)
def test_past_both_ways_in_it_is_found_all_the_same(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, way: Way
) -> None:
    """No preload, and the driver by its path; or limits that are not the tenant's."""
    honest = machine.start(tenant.whole_environment)
    honest("context()")
    escaped, said = begun(machine, tenant.whole_environment, tmp_path, way)
    assert said == ESCAPED
    assert watch_looks.finds(machine, tenant, escaped.pid, honest.pid)


def test_the_list_alone_holds_whoever_leaves_it_alone(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """So it is what was done about the list that lets the others out."""
    assert begun(machine, tenant.environment, tmp_path, by_the_list)[1] == HELD


@pytest.mark.skipif(not FOREIGN, reason=f"there is no {MUSL} here")
@pytest.mark.parametrize("way_in", ["preload", "place", "both"])
def test_a_program_for_another_libc_does_not_start_with_the_fence(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, way_in: str
) -> None:
    """Its loader cannot load the library, and goes no further: nothing is taken."""
    program = foreign_taker(tmp_path)
    ran = machine.run(program, environment=tenant.environments[way_in])
    assert (ran.returncode, ran.stdout) == (127, "")
    assert "libpartage.so" in ran.stderr
    assert machine.truth() == {}
