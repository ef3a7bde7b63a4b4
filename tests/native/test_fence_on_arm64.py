"""On arm64, in an emulator: programs are held by every way in, through jumps written for it.

It takes a compiler for arm64, its libraries and an emulator (Debian's gcc-aarch64-linux-gnu and
qemu-user-static), which nobody is asked to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from native import compilers, libraries
from partage.fence.library import libpartage, originals, substitutes
from partage.fence.store import limits, tenants
from tests.native import fenced
from tests.native.fenced import CLIENTS, CONTEXT_BYTES, GIB, MIB, OUT_OF_MEMORY

COMPILER = "aarch64-linux-gnu-gcc"
EMULATOR = next(filter(shutil.which, ("qemu-aarch64-static", "qemu-aarch64")), "")
SYSTEM = Path(os.environ.get("QEMU_LD_PREFIX", "/usr/aarch64-linux-gnu"))
# The simulated driver reserves what addresses it can get, and the emulator keeps a record of each
# page of them: of all that there are, more than a machine has memory for.
ADDRESSES = 28 * GIB
AROUND_THE_PRELOAD = ("libc", "version", "namespace", "short name")
HELD, ESCAPED = f"0 0 {OUT_OF_MEMORY}\n", "0 0 0\n"

pytestmark = pytest.mark.skipif(
    not (EMULATOR and shutil.which(COMPILER) and (SYSTEM / "lib/libc.so.6").exists()),
    reason="there is no emulator of arm64 here, or no compiler for it",
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All parts for arm64, and programs that take more than their share."""
    folder = tmp_path_factory.mktemp("arm64")
    includes = tuple(f"-isystem{path}" for path in libraries.header_folders())
    compiler = compilers.Compiler((COMPILER,))
    libraries.fence(folder, compiler)
    libraries.substitute(folder / libpartage.SUBSTITUTES, compiler)
    libraries.simcuda(folder / "simulated", compiler)
    driver = folder / "simulated" / originals.CUDA
    for source, more in {"linked.c": [driver], "twice.c": [driver], "sought.c": []}.items():
        target = (folder / source).with_suffix("")
        compiler.link(target, [CLIENTS / source, *more], *includes, "-ldl")
    return folder


@pytest.fixture
def tenant(machine: fenced.Machine, built: Path) -> fenced.Tenant:
    """A tenant with a GiB whose libraries are those for arm64."""
    drivers = {name: built / "simulated" / name for name in originals.BEHIND}
    links = substitutes.links(libpartage.Library(built / libpartage.NAME), drivers)
    card = limits.CardLimits(uuid=machine.uuids[0], memory_bytes=GIB, context_bytes=CONTEXT_BYTES)
    tenants.create(machine.root, "job", limits.Limits((card,)), links=links)
    return fenced.Tenant(machine, "job")


def environments(tenant: fenced.Tenant, built: Path) -> dict[str, dict[str, str]]:
    """What puts a program behind the fence, by the names of the ways in.

    The machine's state is not the one of this machine's own programs: their locks are different.
    """
    entered = tenant.whole_environment
    apart = {
        "SIMCUDA_STATE": f"{tenant.machine.environment['SIMCUDA_STATE']}-arm64",
        "LD_LIBRARY_PATH": str(built / "simulated"),
        "PARTAGE_LIMITS": entered["PARTAGE_LIMITS"],
    }
    preload = {"LD_PRELOAD": entered["LD_PRELOAD"]}
    place = {"LD_LIBRARY_PATH": entered["LD_LIBRARY_PATH"]}
    return {"preload": apart | preload, "place": apart | place, "both": apart | preload | place}


def ran(tenant: fenced.Tenant, environment: Mapping[str, str], *command: str | Path) -> str:
    """What a program for arm64 says, which has no complaints."""
    emulated = (EMULATOR, "-R", hex(ADDRESSES), "-L", SYSTEM, *command)
    done = tenant.machine.run(*emulated, environment=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("way_in", ["preload", "place", "both"])
def test_a_program_that_is_linked_with_the_driver_is_held(
    tenant: fenced.Tenant, built: Path, way_in: str
) -> None:
    """And what it had is counted, as this machine reads it."""
    environment = environments(tenant, built)[way_in]
    assert ran(tenant, environment, built / "linked", "500", "500") == HELD
    assert tenant.usage().peak_bytes == CONTEXT_BYTES + 500 * MIB
    assert tenant.usage().refused == 1


@pytest.mark.parametrize("way", ["by the program", *AROUND_THE_PRELOAD])
def test_lookups_end_where_they_do_elsewhere(tenant: fenced.Tenant, built: Path, way: str) -> None:
    """Some get out past the preload alone; in the driver's place all of them are held."""
    by_the_preload = ESCAPED if way in AROUND_THE_PRELOAD else HELD
    said = {
        name: ran(tenant, environment, built / "sought", way)
        for name, environment in environments(tenant, built).items()
    }
    assert said == {"preload": by_the_preload, "place": HELD, "both": HELD}


def test_a_program_with_two_drivers_has_the_functions_of_each(
    tenant: fenced.Tenant, built: Path
) -> None:
    """One it is linked with, and one in another namespace."""
    environment = environments(tenant, built)["both"]
    assert ran(tenant, environment, built / "twice") == f"0 0 0 {OUT_OF_MEMORY}\n" * 2
