"""Generated code: the C that follows mechanically from the headers of CUDA's driver and of NVML.

A driver library is some 680 functions, NVML another 430; what is worth writing by hand is a
part of them. The rest is derived here, as weak functions that a hand-written one replaces:

* a version of a name whose parameters fit those of the next version calls that one;
* a function ending in _ptsz or _ptds calls the one without, with the default stream of the thread;
* everything else answers "not supported".

Also derived: the table of cuGetProcAddress and the names of the errors.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from native.simcuda import headers
from native.simcuda.headers import Function, Offer

# Declared in a header that is not published on PyPI, yet in every driver since CUDA 4.
PROFILER = ("cuProfilerStart", "cuProfilerStop")
PROFILER_VERSION = 4000

# Parameters of an old version that may be passed on, by value, where the new one wants the second.
WIDENED = {("unsigned int", "size_t"), ("CUdeviceptr_v1", "CUdeviceptr")}
VERSIONS = range(2, 10)


def generate(folders: headers.Folders, out: Path, cc: Sequence[str] = ("cc",)) -> None:
    """Write all generated sources into `out`; names begin with the library they belong to."""
    driver = headers.preprocessed("cuda.h", folders, cc, "__CUDA_API_VERSION_INTERNAL")
    nvml = headers.preprocessed("nvml.h", folders, cc, "NVML_NO_UNVERSIONED_FUNC_DEFS")
    functions = headers.functions(driver)
    for name, text in (
        ("cuda_weak.c", driver_functions(functions)),
        ("cuda_offers.c", offers(functions, headers.offers(folders))),
        ("cuda_errors.c", errors("driver_errors", headers.errors(driver))),
        ("nvml_weak.c", nvml_functions(headers.functions(nvml))),
        ("nvml_errors.c", errors("nvml_errors", headers.errors(nvml))),
    ):
        (out / name).write_text(text, encoding="utf-8")


def driver_functions(functions: dict[str, Function]) -> str:
    """Every function of the driver, weak."""
    lines = ['#include "cuda/api.h"', '#include "cuda/thread.h"', ""]
    for function in functions.values():
        lines += weak("CUresult", function, driver_body(function, functions))
    return "\n".join(lines)


def driver_body(function: Function, functions: dict[str, Function]) -> str:
    name, _, suffix = function.name.rpartition("_")
    if suffix in {"ptsz", "ptds"}:
        return f"WITH_STREAM_OF_THREAD({function.call(name)})"
    newer = successor(function, functions)
    if newer:
        return f"return {function.call(newer)};"
    return "return CUDA_ERROR_NOT_SUPPORTED;"


def successor(function: Function, functions: dict[str, Function]) -> str | None:
    """The next version of a function, if a call of this one can be passed on to it as it is."""
    for name in versions(function.name, functions)[1:]:
        if fits(function.types, functions[name].types):
            return name
    return None


def versions(name: str, functions: dict[str, Function]) -> list[str]:
    """`cuCtxCreate_v2` and what followed it: cuCtxCreate_v3, cuCtxCreate_v4."""
    base, _, number = name.rpartition("_v")
    if not base or not number.isdigit():
        base, number = name, "1"
    later = (f"{base}_v{i}" for i in VERSIONS if i > int(number))
    return [name, *(name for name in later if name in functions)]


def fits(old: Sequence[str], new: Sequence[str]) -> bool:
    pairs = list(zip(old, new, strict=False))
    return len(old) == len(new) and all(a == b or (a, b) in WIDENED for a, b in pairs)


def nvml_functions(functions: dict[str, Function]) -> str:
    """Every function of NVML, weak."""
    lines = ['#include "nvml/api.h"', ""]
    for function in functions.values():
        lines += weak("nvmlReturn_t", function, "return NVML_ERROR_NOT_SUPPORTED;")
    return "\n".join(lines)


def weak(result: str, function: Function, body: str) -> list[str]:
    unused = [f"    (void)({name});" for _, name in function.parameters]
    head = f"__attribute__((weak)) {result} {function.declaration()}"
    return [head, "{", *unused, f"    {body}", "}", ""]


def offers(functions: dict[str, Function], rows: Iterable[Offer]) -> str:
    """The table of cuGetProcAddress, sorted by name and version, and checked by the compiler."""
    named = [(row, symbol(row, rows, functions)) for row in rows]
    checks = [
        f"_Static_assert(__builtin_types_compatible_p(__typeof__(&{name}), {row.typedef}),"
        f' "{name} is not {row.typedef}");'
        for row, name in named
    ]
    named += [(Offer(name, PROFILER_VERSION, ""), name) for name in PROFILER]
    named.sort(key=lambda pair: (pair[0].name, pair[0].version, pair[0].per_thread))
    table = [
        f'    {{"{row.name}", {row.version}, {int(bool(row.per_thread))}, (void *){name}}},'
        for row, name in named
    ]
    return "\n".join(
        [
            '#include "cuda/offers.h"',
            "#include <cudaTypedefs.h>",
            "",
            *checks,
            "",
            "const struct offer offers[] = {",
            *table,
            "};",
            "const unsigned offer_count = sizeof(offers) / sizeof(offers[0]);",
            "",
        ]
    )


def symbol(row: Offer, rows: Iterable[Offer], functions: dict[str, Function]) -> str:
    """The function of an offer: the n-th last version offered is the n-th last exported."""
    offered = sorted(
        other.version
        for other in rows
        if (other.name, other.per_thread) == (row.name, row.per_thread)
    )
    suffix = f"_{row.per_thread}" if row.per_thread else ""
    spelled = (row.name, *(f"{row.name}_v{i}" for i in VERSIONS))
    exported = [name + suffix for name in spelled if name + suffix in functions]
    return exported[offered.index(row.version) - len(offered)]


def errors(table: str, codes: Iterable[tuple[str, int]]) -> str:
    """Names of errors, and words for them that are the name in lower case."""
    lines = ['#include "common/errors.h"', "", f"const struct error_name {table}[] = {{"]
    for name, number in codes:
        words = name.removeprefix("CUDA_").removeprefix("NVML_").removeprefix("ERROR_")
        lines.append(f'    {{{number}, "{name}", "{words.replace("_", " ").lower()}"}},')
    lines += ["    {0, 0, 0},", "};", ""]
    return "\n".join(lines)
