"""Functions of a library in the driver's place: all of the driver's header, in two kinds.

A function that the fence wraps is a jump to the wrapper, through the fence's own table. So it is
found by whoever searches from here on, and not before: by a handle of the driver, or behind a
library that looks for the next one of a name (RTLD_NEXT).

All others are names without an address. A linker takes what has a section for defined, so `-lcuda`
is content; a loader takes what has no address for missing, and goes on searching, into the driver
behind. There it finds what the driver has, and nothing that it does not have, at no cost. `hollow`
takes the addresses away, since no compiler makes such names.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from native import elf
from native.simcuda import generated_code, headers

HOOKS = Path(__file__).parents[1] / "fence" / "hooks.h"
_TABLES = re.compile(r"#define (?:CUDA|NVML)_HOOKS\(X\)(.*?)\n\n", re.DOTALL)
_WRAPPED = re.compile(r"^ +X\((\w+)", re.MULTILINE)
_POINTER_BYTES = 8
_HEADERS = {  # what makes it declare every version of every function, and what is in no header
    "cuda.h": ("__CUDA_API_VERSION_INTERNAL", generated_code.PROFILER),
    "nvml.h": ("NVML_NO_UNVERSIONED_FUNC_DEFS", ("nvmlErrorString",)),
}


def declared(header: str, folders: headers.Folders, cc: Sequence[str]) -> list[str]:
    """All functions of the driver, or of NVML."""
    define, besides = _HEADERS[header]
    return [*headers.functions(headers.preprocessed(header, folders, cc, define)), *besides]


def wrapped() -> list[str]:
    """The functions that the fence wraps, in the order of its table."""
    tables = _TABLES.findall(HOOKS.read_text(encoding="utf-8"))
    return [name for table in tables for name in _WRAPPED.findall(table)]


def table_name() -> str:
    """The name of the fence's table: another one for other functions, or another order of them."""
    return f"partage_hooks_{hashlib.sha256(' '.join(wrapped()).encode()).hexdigest()[:16]}"


def c_list(names: Iterable[str], jumping: Sequence[str]) -> str:
    """The list that library.c includes; `jumping` is the fence's table, or nothing."""
    places = {name: _POINTER_BYTES * place for place, name in enumerate(jumping)}
    lines = [
        f"WRAPPED({name}, {places[name]})" if name in places else f"HOLLOW({name})"
        for name in sorted(set(names))
    ]
    return "\n".join([*lines, ""])


def hollow(library: Path, jumping: Collection[str]) -> None:
    """Take the addresses of all functions away that do not jump."""
    data = bytearray(library.read_bytes())
    for symbol in elf.File(bytes(data)).symbols():
        if symbol.is_defined and symbol.bound != elf.LOCAL and symbol.name not in jumping:
            elf.VALUE_AND_SIZE.pack_into(data, symbol.at + elf.VALUE_AT, 0, 0)
    library.write_bytes(data)
