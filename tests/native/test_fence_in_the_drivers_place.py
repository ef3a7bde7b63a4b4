"""Our libraries are found in the driver's place: programs that find the driver find the fence."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from native import compilers, elf, libraries
from native.substitute import functions
from partage.fence.library import libpartage, originals, substitutes
from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CLIENTS, FENCE, LIBRARIES, MIB, OUT_OF_MEMORY

HELD, ESCAPED = f"0 0 {OUT_OF_MEMORY}\n", "0 0 0\n"
WAYS = ("by the program", "libc", "version", "namespace", "short name")
AROUND_THE_PRELOAD = ("libc", "version", "namespace", "short name")
BEGINNING = substitutes.links(
    libpartage.find(), originals.find({"LD_LIBRARY_PATH": str(LIBRARIES)})
)
LINKERS = [name for name in ("bfd", "gold", "lld", "mold") if shutil.which(f"ld.{name}")]
NEWER_DRIVER = """
int cuInit(unsigned flags) { return 4711 + (int)flags; }
int cuMemAllocOfTomorrow(void) { return 4712; }
int cuDeviceTotalMem_v2(void) { return 4713; }
"""


def linked(target: Path, *sources: Path, flags: tuple[str, ...] = (), first: str = "-g") -> Path:
    """A program, or a library; what every call of the compiler needs comes `first`."""
    includes = [f"-isystem{folder}" for folder in libraries.header_folders()]
    return compilers.system(first, *includes).link(target, sources, *flags, "-ldl")


def sought(target: Path, *flags: str, first: str = "-g") -> Path:
    """A program, or a library, that takes more than its share."""
    return linked(target, CLIENTS / "sought.c", flags=flags, first=first)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is linked with nothing of the driver's."""
    return sought(tmp_path_factory.mktemp("sought") / "program")


@pytest.fixture(params=["place", "both"])
def held(tenant: fenced.Tenant, request: pytest.FixtureRequest) -> dict[str, str]:
    """The environment of a program with ours in the driver's place; with both, preloaded too."""
    return tenant.environments[request.param]


def folder_of(place: Path, links: dict[str, Path]) -> Path:
    """A folder of links."""
    place.mkdir()
    for name, target in links.items():
        (place / name).symlink_to(target)
    return place


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_looking_up_finds_the_fence(
    machine: fenced.Machine, held: dict[str, str], program: Path, way: str
) -> None:
    """The libc's own dlsym, dlvsym, another namespace, the other file name."""
    ran = machine.run(program, way, environment=held)
    assert (ran.stdout, ran.stderr) == (HELD, "")


@pytest.mark.parametrize("way", AROUND_THE_PRELOAD)
def test_the_preload_alone_is_passed_by(
    machine: fenced.Machine, tenant: fenced.Tenant, program: Path, way: str
) -> None:
    """These are what the driver's place is for; if one is held by the preload, it may go here."""
    ran = machine.run(program, way, environment=tenant.environment)
    assert (ran.stdout, ran.stderr) == (ESCAPED, "")


@pytest.mark.parametrize("way", ["linked", "by itself"])
def test_a_library_that_is_bound_to_its_own_finds_the_fence(
    machine: fenced.Machine, tenant: fenced.Tenant, program: Path, tmp_path: Path, way: str
) -> None:
    """RTLD_DEEPBIND: of a library that is linked with the driver, or that opens it by itself."""
    flags = ["-DLINKED", f"-L{LIBRARIES}", "-l:libcuda.so.1"] if way == "linked" else []
    other = sought(tmp_path / "libdeep.so", "-shared", *flags)
    said = {
        name: machine.run(program, way, other, environment=environment).stdout
        for name, environment in tenant.environments.items()
    }
    assert said == {"preload": ESCAPED, "place": HELD, "both": HELD}


def test_the_next_function_behind_a_library_is_the_fence(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """RTLD_NEXT from a library that comes before the driver, and behind what is preloaded."""
    other = sought(tmp_path / "libnext.so", "-shared")
    sources = (CLIENTS / "seeker.c", other, LIBRARIES / "libcuda.so.1")
    seeker = linked(tmp_path / "seeker", *sources, first="-Wl,--no-as-needed")
    said = {
        name: machine.run(seeker, environment=environment).stdout
        for name, environment in tenant.environments.items()
    }
    assert said == {"preload": ESCAPED, "place": HELD, "both": HELD}


def test_a_static_program_that_opens_the_driver_finds_the_fence(
    machine: fenced.Machine, held: dict[str, str], tmp_path: Path
) -> None:
    """It reads the library path, though nothing can be preloaded into it."""
    try:
        static = sought(tmp_path / "static", first="-static")
    except compilers.CannotBuild as error:
        leaving_out.leave_out("a libc to link with statically", str(error).splitlines()[-1])
    ran = machine.run(static, "by the program", environment=held)
    assert (ran.stdout, ran.stderr) == (HELD, "")


@pytest.mark.parametrize("name", libraries.DRIVER)
def test_every_function_of_the_driver_is_found(
    machine: fenced.Machine, tenant: fenced.Tenant, name: str
) -> None:
    """Under either file name; those that are not wrapped are the driver's own."""
    names = sorted(elf.File((LIBRARIES / name).read_bytes()).exports())
    assert len(names) > 400
    program = machine.start(tenant.place_environment)
    program(WHERE)
    library_of = program(f"{{n: where({name!r}, n) for n in {names}}}")
    assert library_of == program(f"{{n: where({name.removesuffix('.1')!r}, n) for n in {names}}}")
    wrapped = set(functions.wrapped())
    behind = originals.BEHIND[name]
    assert library_of == {function: name if function in wrapped else behind for function in names}


def test_each_jump_leads_to_the_wrapper_of_its_name(machine: fenced.Machine) -> None:
    """The table is in the order in which the jumps were counted."""
    names = functions.wrapped()
    program = machine.start()
    program(WHERE)
    program(f"fence = ctypes.CDLL({str(FENCE)!r})")
    program(f"table = (ctypes.c_void_p * {len(names)}).in_dll(fence, {functions.table_name()!r})")
    assert program("[named(pointer) for pointer in table]") == names


WHERE = """
class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_char_p) for n in ("path", "base", "name", "address")]

def told(pointer):
    info = Info()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(pointer), byref(info))
    return info

def where(name, function):
    pointer = ctypes.cast(library(name)[function], ctypes.c_void_p).value
    return told(pointer).path.decode().rpartition("/")[2]

def named(pointer):
    return told(pointer).name.decode()
"""


def test_a_driver_newer_than_this_build_is_found_whole(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """A function that no header has yet is found, and one that a driver lacks is not."""
    source = tmp_path / "newer.c"
    source.write_text(NEWER_DRIVER)
    soname = f"-Wl,-soname,{originals.CUDA}"
    newer = compilers.system("-w").link(tmp_path / "newer", [source], "-shared", soname)
    links = {**BEGINNING, originals.BEHIND[originals.CUDA]: newer}
    place = folder_of(tmp_path / "place", links)
    for preload in ("", str(FENCE)):
        program = machine.start(LD_LIBRARY_PATH=str(place), LD_PRELOAD=preload)
        assert program("answer('cuMemAllocOfTomorrow')") == 4712
        assert program("answer('cuInit', 1)") == 4712
        assert program("hasattr(library('libcuda.so.1'), 'cuDeviceGetCount')") is False
        # What is wrapped is there by the loader's rules alone; asked through ours, it is not.
        assert program("hasattr(library('libcuda.so.1'), 'cuMemAlloc_v2')") is not bool(preload)


def test_what_the_fence_does_not_find_is_no_error_of_the_programs(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """A program that asks dlerror after a lookup that went well hears nothing of our own."""
    source = tmp_path / "small.c"
    source.write_text(NEWER_DRIVER)
    (tmp_path / "small").mkdir()
    soname = f"-Wl,-soname,{originals.CUDA}"
    target = tmp_path / "small" / originals.CUDA
    compilers.system("-w").link(target, [source], "-shared", soname)
    program = machine.start(tenant.environment, LD_LIBRARY_PATH=str(target.parent))
    program("dlerror = ctypes.CDLL(None).dlerror; dlerror.restype = ctypes.c_char_p")
    program("driver = ctypes.CDLL('libcuda.so.1')")
    assert program("[driver.cuDeviceTotalMem_v2 is None, dlerror()]") == [False, None]


def test_both_ways_in_count_once(machine: fenced.Machine, tenant: fenced.Tenant) -> None:
    """One library, one slot, and what the card says."""
    program = machine.start(tenant.whole_environment)
    program("context(); alloc(100 * MIB)")
    assert program(LOADED) == 1
    assert tenant.counted() == machine.truth() == {program.pid: fenced.CONTEXT_BYTES + 100 * MIB}
    assert program("card_memory()")["total"] == fenced.GIB


LOADED = """
len({line.split()[-1] for line in open("/proc/self/maps") if "libpartage.so" in line})
"""


def test_two_namespaces_of_a_program_share_its_quota(
    machine: fenced.Machine, tenant: fenced.Tenant, program: Path
) -> None:
    """Each has a fence and a driver of its own, and both take from the same share."""
    ran = machine.run(program, "namespace", environment=tenant.whole_environment)
    assert ran.stdout == HELD
    assert tenant.usage().refused > 0


@pytest.mark.parametrize("opened", ["the driver", "a library with it"])
def test_a_program_with_two_drivers_has_the_functions_of_each(
    machine: fenced.Machine, held: dict[str, str], tmp_path: Path, opened: str
) -> None:
    """One it is linked with, one in another namespace: both work, and both are held."""
    twice = fenced.compiled(tmp_path / "twice", "twice.c")
    flags = ("-shared", f"-L{LIBRARIES}", "-l:libcuda.so.1", "-DLINKED")
    other = sought(tmp_path / "libother.so", *flags)
    ran = machine.run(twice, *([] if opened == "the driver" else [other]), environment=held)
    assert (ran.stdout, ran.stderr) == (f"0 0 0 {OUT_OF_MEMORY}\n" * 2, "")


def test_a_driver_that_is_closed_and_opened_again_is_still_fenced(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """The name is not left to the driver behind."""
    process = machine.start(tenant.place_environment)
    process("import _ctypes")
    for _ in range(3):
        process("library.cache_clear(); context()")
        assert process.code("alloc(2 * GIB)") == OUT_OF_MEMORY
        process("call('cuDevicePrimaryCtxRelease_v2', 0)")
        process("_ctypes.dlclose(library('libcuda.so.1')._handle)")


@pytest.mark.parametrize("linker", LINKERS)
@pytest.mark.parametrize("flag", ["-Wl,--as-needed", "-Wl,-z,now", "-Wl,--no-undefined"])
def test_programs_are_linked_against_what_stands_there(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, linker: str, flag: str
) -> None:
    """With -lcuda, by any linker, also where only what is used is kept; and they are held."""
    place = tenant.whole_environment["LD_PRELOAD"].rpartition("/")[0]
    flags = (flag, f"-L{place}", "-lcuda")
    program = linked(
        tmp_path / "linked", CLIENTS / "linked.c", flags=flags, first=f"-fuse-ld={linker}"
    )
    assert originals.CUDA in elf.File(program.read_bytes()).libraries()
    for environment in tenant.environments.values():
        ran = machine.run(program, "500", "500", environment=environment)
        assert (ran.stdout, ran.stderr) == (f"0 0 {OUT_OF_MEMORY}\n", "")


def test_what_stands_there_and_the_fence_are_of_one_build(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """With the fence of another build nothing is found, instead of something wrong."""
    other = tmp_path / "other.so"
    table = functions.table_name().encode()
    other.write_bytes(FENCE.read_bytes().replace(table, table[::-1]))
    place = folder_of(tmp_path / "place", {**BEGINNING, libpartage.NAME: other})
    program = machine.start(LD_LIBRARY_PATH=str(place))
    program(OPENED)
    for name in libraries.DRIVER:
        assert "undefined symbol" in program(f"opened({name!r})")


OPENED = """
def opened(name):
    try:
        return ctypes.CDLL(name)._name
    except OSError as error:
        return str(error)
"""


def test_the_simulated_driver_has_both_names(machine: fenced.Machine) -> None:
    """Both are one driver: what one has begun, the other goes on with."""
    program = machine.start()
    program("context()")
    program("other = ctypes.CDLL('libcuda.so')")
    assert program("other.cuMemAlloc_v2(byref(c_uint64()), c_size_t(MIB))") == 0
    assert program("ctypes.CDLL('libnvidia-ml.so').nvmlInit_v2()") == 0
