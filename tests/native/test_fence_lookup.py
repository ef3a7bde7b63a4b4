"""However a program finds the driver's functions, it finds the fence, in the form it asked for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from native import elf, libraries
from native.substitute import functions
from tests.native import fenced
from tests.native.fenced import FENCE, LIBRARIES, OUT_OF_MEMORY

HOOKS = re.findall(
    r"X\((cu\w+), (\w+), \d+, [01]\)", (libraries.SOURCES / "fence/hooks.h").read_text()
)
HOOKED = {symbol for symbol, _ in HOOKS}
NEWER = (13041, 14000, 99999)  # than any that is known
FLAGS = (0, 1, 2)  # the default, the legacy stream, the thread's own stream

# For each name, version and flag: the library and the function that the answer is, or the error.
LOOK_UP = """
import itertools

class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_void_p) for n in ("fname", "base", "sname", "address")]

@functools.cache
def where(pointer):
    info = Info()
    if not ctypes.CDLL(None).dladdr(ctypes.c_void_p(pointer), byref(info)) or not info.sname:
        return ["", ""]
    path = ctypes.cast(info.fname, ctypes.c_char_p).value.decode()
    return [path.rpartition("/")[2], ctypes.cast(info.sname, ctypes.c_char_p).value.decode()]

def look_up(function, name, version, flags):
    address, status = c_uint64(), c_int(-1)
    last = (byref(status),) if function.endswith("_v2") else ()
    code = answer(function, name.encode(), byref(address), version, flags, *last)
    return [code, status.value, *(where(address.value) if address.value else ["", "NULL"])]

def matrix(function, names, versions, flags):
    return {
        f"{name} {version} {flag}": look_up(function, name, version, flag)
        for name, version, flag in itertools.product(names, versions, flags)
    }
"""


def typedefs() -> str:
    """The header that names every form of every function."""
    paths = (folder / "cudaTypedefs.h" for folder in libraries.header_folders())
    return next(path for path in paths if path.exists()).read_text()


def names_and_versions() -> tuple[list[str], list[int]]:
    """Every name and every version that there is."""
    matches = re.findall(r"\*PFN_(\w+?)_v(\d+)", typedefs())
    return sorted({name for name, _ in matches}), sorted({int(version) for _, version in matches})


def exports(library: Path) -> set[str]:
    """What a library offers to others."""
    return set(elf.File(library.read_bytes()).exports())


Answers = dict[str, tuple[int, int, str, str]]


def matrix(
    process: fenced.Process, function: str, names: list[str], versions: list[int]
) -> Answers:
    """All answers to one who asks for all of it."""
    process(LOOK_UP)
    answers = process(f"matrix({function!r}, {names}, {versions}, {FLAGS})")
    return {request: tuple(answer) for request, answer in answers.items()}


def expected(theirs: tuple[int, int, str, str], *, alias: bool) -> tuple[int, int, str, str]:
    """The same function, ours if it is hooked; an alias that is not is of no library."""
    code, status, library, symbol = theirs
    if symbol in HOOKED:
        return code, status, "libpartage.so", symbol
    return (code, status, "", "") if alias and library else theirs


@pytest.mark.parametrize("function", ["cuGetProcAddress", "cuGetProcAddress_v2"])
def test_each_form_that_the_driver_would_give_is_the_one_that_is_given(
    machine: fenced.Machine, tenant: fenced.Tenant, function: str
) -> None:
    """Every name in every version with every flag: the driver's own answer, or our wrapper of it.

    Also where the driver answers with addresses that no exported function has: aliases.
    """
    names, versions = names_and_versions()
    questions = (function, names, [*versions, *NEWER])
    theirs = matrix(machine.start(), *questions)
    assert len(theirs) > 60_000
    assert {symbol for _, _, _, symbol in theirs.values()} >= HOOKED
    for alias in (False, True):
        ours = matrix(tenant.start(SIMCUDA_ALIAS="1" if alias else ""), *questions)
        wrong = {
            request: answer
            for request, answer in ours.items()
            if answer != expected(theirs[request], alias=alias)
        }
        assert wrong == {}


def test_what_is_exported_is_what_is_hooked() -> None:
    """No other name of ours can come before one of the program's."""
    nvml = re.findall(r"X\((nvml\w+)\)", (libraries.SOURCES / "fence/hooks.h").read_text())
    offered = exports(FENCE) - {"dlsym", functions.table_name()}
    assert HOOKED <= offered <= HOOKED | set(nvml)
    assert exports(LIBRARIES / "libcuda.so.1") >= HOOKED


def test_a_program_linked_with_the_driver_is_fenced(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """By the plain rules of ELF."""
    program = fenced.compiled(tmp_path / "linked", "linked.c")
    assert machine.run(program, "500", "500").stdout == "0 0 0\n"
    ran = machine.run(program, "500", "500", environment=tenant.environment)
    assert (ran.stdout, ran.stderr) == (f"0 0 {OUT_OF_MEMORY}\n", "")


OPENED = {
    "by soname": "driver = cuda = ctypes.CDLL('libcuda.so.1')",
    "by path": f"driver = cuda = ctypes.CDLL({str(LIBRARIES / 'libcuda.so.1')!r})",
    "by a name of its own": "driver = cuda = ctypes.CDLL(copied)",
    "for all": "driver = cuda = ctypes.CDLL('libcuda.so.1', ctypes.RTLD_GLOBAL)",
    "by the program": "driver, cuda = ctypes.CDLL('libcuda.so.1'), ctypes.CDLL(None)",
}


@pytest.mark.parametrize("way", OPENED)
def test_a_lookup_in_a_handle_finds_the_fence(
    tenant: fenced.Tenant, tmp_path: Path, way: str
) -> None:
    """Whichever way the handle was come by; the last is that of dlopen(NULL), or RTLD_DEFAULT."""
    copied = tmp_path / "libcuda.so.999.99"
    copied.write_bytes((LIBRARIES / "libcuda.so.1").read_bytes())
    process = tenant.start()
    process(f"copied = {str(copied)!r}")
    process(OPENED[way])
    assert process("driver.cuInit(0)") == 0
    assert process("cuda.cuDevicePrimaryCtxRetain(byref(context := c_uint64()), 0)") == 0
    assert process("driver.cuCtxSetCurrent(context)") == 0
    assert process("cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(2 * GIB))") == OUT_OF_MEMORY
    assert process("cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(MIB))") == 0


def test_a_driver_that_is_closed_and_opened_again_is_still_fenced(tenant: fenced.Tenant) -> None:
    """Programs that look whether there is CUDA do that; the first addresses are then no more."""
    process = tenant.start()
    process("import _ctypes")
    for _ in range(3):
        process("library.cache_clear(); context()")
        assert process.code("alloc(2 * GIB)") == OUT_OF_MEMORY
        assert process.code("free(alloc(MIB))") == 0
        process("call('cuDevicePrimaryCtxRelease_v2', 0)")
        process("_ctypes.dlclose(library('libcuda.so.1')._handle)")


@pytest.mark.parametrize("order", ["before", "behind"])
def test_the_next_of_a_name_is_the_one_behind_the_caller(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path, order: str
) -> None:
    """RTLD_NEXT from a second preloaded library, twice: as if `dlsym` were not ours."""
    program = fenced.compiled(tmp_path / "linked", "linked.c")
    other = fenced.compiled(tmp_path / "interposer.so", "interposer.c", "-shared")
    preload = f"{other} {FENCE}" if order == "before" else f"{FENCE} {other}"
    ran = machine.run(program, "2000", environment=tenant.environment, LD_PRELOAD=preload)

    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(r"^getppid is followed by that of \S*libc\.so", ran.stdout, re.MULTILINE)
    assert re.search(rf"^0.* {OUT_OF_MEMORY}$", ran.stdout, re.MULTILINE | re.DOTALL)
    assert (f"cuMemAlloc_v2 is followed by that of {FENCE}" in ran.stdout) == (order == "before")


def test_a_function_of_another_library_is_left_alone(tenant: fenced.Tenant, tmp_path: Path) -> None:
    """Being called like the driver's does not make it that, before that is there and after."""
    other = fenced.compiled(tmp_path / "libcurious.so", "lookalike.c", "-shared")
    process = tenant.start()
    process(f"other = ctypes.CDLL({str(other)!r})")
    assert process("[other.cuMemAlloc_v2(), other.nvmlDeviceGetMemoryInfo()]") == [4711, 4712]
    process("context(); card_memory()")
    process(f"other = ctypes.CDLL({str(other)!r})")
    assert process("[other.cuMemAlloc_v2(), other.nvmlDeviceGetMemoryInfo()]") == [4711, 4712]


def test_without_a_driver_there_is_no_device(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """A wrapper that is found where no driver is loaded says what a machine without cards says."""
    process = tenant.start(LD_LIBRARY_PATH="")
    process("fence = ctypes.CDLL(None)")
    for name in ("cuMemAlloc_v2", "cuGetProcAddress_v2", "cuCtxDestroy_v2", "cuLaunchKernel"):
        assert process(f"fence.{name}(*[None] * 11)") == fenced.NO_DEVICE
    assert process("fence.nvmlDeviceGetMemoryInfo(None, None)") == 12  # library not found
    assert tenant.counted() == {}
