"""Every function of the driver and of NVML is there, and is found as NVIDIA's headers say."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from native import compilers, elf, libraries
from native.simcuda import generated_code, headers
from tests.native import fenced

CUDA, NVML = "libcuda.so.1", "libnvidia-ml.so.1"
HEADERS = {  # of each library, with what makes it declare every version of every function
    CUDA: ("cuda.h", "__CUDA_API_VERSION_INTERNAL"),
    NVML: ("nvml.h", "NVML_NO_UNVERSIONED_FUNC_DEFS"),
}
BESIDES = {  # in no header of those two, or not answering with an error code
    CUDA: set(generated_code.PROFILER),
    NVML: {"nvmlErrorString"},
}
NOT_SUPPORTED = {CUDA: 801, NVML: 3}
LATEST = 13040
PER_THREAD = 2  # CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2  # of CUdriverProcAddressQueryResult
INTERPOSED = 4711

# In a program: the address of a function by its name, and as cuGetProcAddress_v2 gives it.
LOOK_UP = """
def exported(name):
    return ctypes.cast(library("libcuda.so.1")[name], ctypes.c_void_p).value

def look_up(name, version, flags):
    address, status = c_uint64(), c_int(-1)
    results = byref(address), version, flags, byref(status)
    code = answer("cuGetProcAddress_v2", name.encode(), *results)
    return code, status.value, address.value

def differing(rows):
    return [
        [name, version, flags, symbol]
        for name, version, flags, symbol in rows
        if look_up(name, version, flags) != (0, 0, exported(symbol))
    ]
"""

Row = tuple[str, int, int, str]  # name, version, flags, the function that is to be found


@functools.cache
def functions(library: str) -> dict[str, headers.Function]:
    """What its header declares."""
    compiler = compilers.system()
    header, define = HEADERS[library]
    text = headers.preprocessed(header, libraries.header_folders(), compiler.command, define)
    return headers.functions(text)


@functools.cache
def offers() -> list[headers.Offer]:
    """Every form of every function that cuGetProcAddress offers, by NVIDIA's typedefs."""
    return headers.offers(libraries.header_folders())


def flags_of(offer: headers.Offer) -> int:
    """What one who wants that form asks with."""
    return PER_THREAD if offer.per_thread else 0


def linked(folder: Path, *defines: str) -> Iterator[Row]:
    """For each name in a program, the function that cuda.h makes of it, if that is the newest."""
    names = sorted({offer.name for offer in offers()})
    source = folder / "names.h"
    source.write_text(
        "#include <cuda.h>\n" + "".join(f"ASKED {name[2:]} {name}\n" for name in names)
    )
    command = compilers.system().command
    text = headers.preprocessed(str(source), libraries.header_folders(), command, *defines)
    for name, symbol in re.findall(r"ASKED (\w+) (\w+)", text):
        form = re.fullmatch(rf"cu{name}(?:_v(\d+))?(_ptsz|_ptds)?", symbol)
        if not form or symbol not in functions(CUDA):
            continue  # a function of another name, or of the header itself
        newer = f"cu{name}_v{int(form[1] or 1) + 1}{form[2] or ''}"
        if newer not in functions(CUDA):
            yield f"cu{name}", LATEST, PER_THREAD if defines else 0, symbol


@pytest.fixture
def program(machine: fenced.Machine) -> fenced.Process:
    """A program without a fence that can look functions up."""
    process = machine.start()
    process(LOOK_UP)
    return process


@pytest.mark.parametrize("library", [CUDA, NVML])
def test_every_function_of_the_header_is_exported_and_nothing_else(library: str) -> None:
    """A program that is linked with the real library starts with this one."""
    exports = set(elf.File((fenced.LIBRARIES / library).read_bytes()).exports())
    assert exports == set(functions(library)) | BESIDES[library]
    assert len(exports) > 400


def written(library: str) -> set[str]:
    """The functions that somebody wrote: their names begin a definition, or a macro makes one."""
    folder = libraries.SOURCES / "simcuda" / ("cuda" if library == CUDA else "nvml")
    text = "".join(file.read_text() for file in folder.glob("*.c"))
    return set(re.findall(r"^(?:(?:CUresult|nvmlReturn_t) |ALWAYS\()(\w+)[(,]", text, re.MULTILINE))


def unsupported(library: str) -> list[str]:
    """Those that nobody wrote, and that do not follow from another one."""
    declared = functions(library)
    derived = set()
    if library == CUDA:
        bodies = {name: generated_code.driver_body(declared[name], declared) for name in declared}
        derived = {name for name, body in bodies.items() if "NOT_SUPPORTED" not in body}
    return sorted(set(declared) - written(library) - derived)


@pytest.mark.parametrize("library", [CUDA, NVML])
def test_what_is_not_simulated_says_so(program: fenced.Process, library: str) -> None:
    """Whether the library was initialized or not."""
    names = unsupported(library)
    assert len(names) > 100
    for begin in ("None", "context()", "card(0)"):
        program(begin)
        answers = program(f"answers(*{names})")
        assert set(answers) == {NOT_SUPPORTED[library]}, dict(zip(names, answers, strict=True))


@pytest.mark.parametrize("library", [CUDA, NVML])
def test_every_function_survives_arguments_that_are_all_null(
    program: fenced.Process, library: str
) -> None:
    """Before the library is initialized, and after: with an error, if there is something to say."""
    names = sorted(functions(library))
    for begin in ("None", "context()", "card(0)"):
        program(begin)
        answers = dict(zip(names, program(f"answers(*{names})"), strict=True))
        assert all(0 <= answer <= 999 for answer in answers.values()), answers


@pytest.mark.parametrize("defines", [(), ("CUDA_API_PER_THREAD_DEFAULT_STREAM",)], ids=str)
def test_a_lookup_finds_what_a_program_would_be_linked_with(
    program: fenced.Process, tmp_path: Path, defines: tuple[str, ...]
) -> None:
    """By name and the newest version, for both kinds of default streams."""
    rows = list(linked(tmp_path, *defines))
    assert len(rows) > 470
    assert program(f"differing({rows})") == []


def before(offer: headers.Offer) -> bool:
    """Is there an older form, for one who asks with the same flags?"""
    return any(
        other.name == offer.name
        and other.version < offer.version
        and other.per_thread in {"", offer.per_thread}
        for other in offers()
    )


def test_each_published_form_is_found_from_its_version_on(program: fenced.Process) -> None:
    """At its version it is new; just below, the answer is what was there before, or nothing."""
    questions = [(offer.name, offer.version, flags_of(offer)) for offer in offers()]
    at = program(f"[look_up(*row) for row in {questions}]")
    below = program(f"[look_up(name, version - 1, flags) for name, version, flags in {questions}]")
    for offer, (code, status, address), (_, status_below, address_below) in zip(
        offers(), at, below, strict=True
    ):
        assert (code, status) == (0, FOUND), offer
        assert (status_below == FOUND) == bool(address_below) == before(offer), offer
        assert address != address_below, offer
    assert len({address for _, _, address in at}) == len(offers())


def test_one_who_asks_too_early_or_for_nothing_is_told_apart(program: fenced.Process) -> None:
    """A known name in a version before its first, and a name that nobody knows."""
    assert program("look_up('cuMemAllocAsync', 11010, 0)") == [0, TOO_OLD, 0]
    assert program("look_up('cuMemAllocTomorrow', 13040, 0)") == [0, NOT_FOUND, 0]
    assert (
        program("answer('cuGetProcAddress', b'cuMemAllocAsync', byref(c_uint64()), 11010, 0)")
        == 500
    )
    assert program(f"look_up('cuInit', {LATEST + 10}, 0)")[0] == fenced.INVALID_VALUE


def test_the_newest_function_of_a_name_is_the_newest_the_driver_has(
    machine: fenced.Machine,
) -> None:
    """A driver of an earlier CUDA does not know what came later."""
    program = machine.start(SIMCUDA_STATE=f"{machine.root}-older", SIMCUDA_CUDA="12.4")
    program(LOOK_UP)
    assert program("made('cuDriverGetVersion', kind=c_int)") == 12040
    assert program("look_up('cuInit', 12050, 0)")[0] == fenced.INVALID_VALUE
    assert program("look_up('cuCtxCreate', 12040, 0)")[2] == program("exported('cuCtxCreate_v3')")
    assert program("look_up('cuMemGetMemPool', 12040, 0)") == [0, NOT_FOUND, 0]


def test_an_alias_is_another_address_of_the_same_function(machine: fenced.Machine) -> None:
    """With SIMCUDA_ALIAS=1 no lookup gives an address that is exported, and each can be called."""
    program = machine.start(SIMCUDA_ALIAS="1")
    program(LOOK_UP)
    questions = [(offer.name, offer.version, flags_of(offer)) for offer in offers()]
    program(f"addresses = {{look_up(*row)[2] for row in {questions}}}")
    assert program("len(addresses)") == len(offers())
    assert (
        program(f"len(addresses & {{exported(name) for name in {sorted(functions(CUDA))}}})") == 0
    )
    program("context()")
    program("total = ctypes.CFUNCTYPE(c_int, *[ctypes.c_void_p] * 2)")
    program("total = total(look_up('cuMemGetInfo', 3020, 0)[2])")
    assert program("[total(byref(c_size_t()), byref(size := c_size_t())), size.value]") == [
        0,
        16 * fenced.GIB,
    ]


def test_a_preloaded_library_does_not_reach_into_the_driver(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """One that stands before every name gets the program's calls, not those of the libraries."""
    names = sorted(set(functions(CUDA)) | set(functions(NVML)))
    source = tmp_path / "interposer.c"
    source.write_text("".join(f"int {name}(void) {{ return {INTERPOSED}; }}\n" for name in names))
    compiler = compilers.system("-w", "-O0")
    interposer = compiler.link(tmp_path / "interposer.so", [source], "-shared")

    program = machine.start(LD_PRELOAD=str(interposer))
    assert program("ctypes.CDLL(None).cuInit(0)") == INTERPOSED
    program("context(); take_all(); card_memory(); processes()")
    assert program(f"{INTERPOSED} in answers(*{names})") is False


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [(2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"), (0, "CUDA_SUCCESS", "success")],
)
def test_errors_have_their_names_and_words(
    program: fenced.Process, code: int, name: str, words: str
) -> None:
    """As people meet them in messages."""
    program("text = ctypes.c_char_p()")
    program(f"call('cuGetErrorName', {code}, byref(text))")
    assert program("text.value.decode()") == name
    assert program(f"error_text({code})") == words


def test_no_table_of_nvidias_is_given_out(machine: fenced.Machine) -> None:
    """Libraries that ask for one are told that it is not there, instead of getting another."""
    process = machine.start()
    question = "answer('cuGetExportTable', byref(c_uint64()), bytes(range(16)))"
    assert process(question) == NOT_SUPPORTED[CUDA]
