"""Generated layout: the description as a C header and as ctypes structures; both are committed.

`python -m native.layout` writes them, `--check` (part of `make lint`) says whether they are what
the description gives.
"""

from pathlib import Path

from native.layout import description
from native.layout.description import Field, Struct

ROOT = Path(__file__).parents[2]
C_TYPES = {"u8": "uint8_t", "i32": "int32_t", "u32": "uint32_t", "u64": "uint64_t"}
PYTHON_TYPES = {"u8": "c_uint8", "i32": "c_int32", "u32": "c_uint32", "u64": "c_uint64"}
SIZES = {"u8": 1, "i32": 4, "u32": 4, "u64": 8}
NOTICE = "Made from native/layout/description.py by `python -m native.layout`; change that one."


def files() -> dict[Path, str]:
    """The two texts by the path they belong at."""
    return {
        ROOT / "native/fence/layout.h": header(),
        ROOT / "src/partage/fence/store/layout.py": mirror(),
    }


def header() -> str:
    """The layout in C."""
    lines = [f"/* {NOTICE} */", "#pragma once", "#include <assert.h>", "#include <stdint.h>", ""]
    for name, value in _constants().items():
        suffix = "ull" if value >= 1 << 32 else "u"
        lines.append(f"#define PARTAGE_{name} {value:#x}{suffix}")
    for struct in description.STRUCTS:
        lines += ["", f"/* {struct.note}. */", f"struct partage_{struct.name} {{"]
        lines += [f"    {_c_field(field)}" for field in struct.fields]
        lines += ["};", _c_size(struct)]
    return "\n".join(lines) + "\n"


def mirror() -> str:
    """The layout in Python."""
    lines = [f'"""The files that the fence shares with the node side, as ctypes.\n\n{NOTICE}\n"""']
    lines += ["", "import ctypes", "from typing import ClassVar", ""]
    lines += [f"{name} = {_python_number(value)}" for name, value in _constants().items()]
    for struct in description.STRUCTS:
        lines += ["", "", f"class {_class_name(struct.name)}(ctypes.LittleEndianStructure):"]
        lines += [f'    """{struct.note}."""', "", "    _fields_: ClassVar = ["]
        lines += [line for field in struct.fields for line in _python_field(field)]
        lines.append("    ]")
    return "\n".join(lines) + "\n"


def size_of(kind: str) -> int:
    """How many bytes a type takes."""
    if kind in SIZES:
        return SIZES[kind]
    struct = next(struct for struct in description.STRUCTS if struct.name == kind)
    return sum(size_of(field.kind) * field.count * field.rows for field in struct.fields)


def _constants() -> dict[str, int]:
    plain = ("VERSION", "CARDS", "SLOTS", "SEATS", "FIRST_SEATS", "WHOLE")
    named: dict[str, int] = {name: getattr(description, name) for name in plain}
    named |= {f"{file.upper()}_MAGIC": value for file, value in description.MAGIC.items()}
    named |= {f"MODE_{name}": value for name, value in description.MODES.items()}
    return named | {f"ON_FAILURE_{name}": value for name, value in description.ON_FAILURE.items()}


def _c_field(field: Field) -> str:
    kind = C_TYPES.get(field.kind, f"struct partage_{field.kind}")
    rows = f"[{field.rows}]" if field.rows > 1 else ""
    count = f"[{field.count}]" if field.count > 1 else ""
    note = f" /* {field.note} */" if field.note else ""
    return f"{kind} {field.name}{rows}{count};{note}"


def _c_size(struct: Struct) -> str:
    size = size_of(struct.name)
    return f'static_assert(sizeof(struct partage_{struct.name}) == {size}, "no gaps");'


def _python_field(field: Field) -> list[str]:
    kind = f"ctypes.{PYTHON_TYPES[field.kind]}" if field.kind in SIZES else _class_name(field.kind)
    kind = f"{kind} * {field.count}" if field.count > 1 else kind
    kind = f"({kind}) * {field.rows}" if field.rows > 1 else kind
    note = f"  # {field.note}" if field.note else ""
    line = f'        ("{field.name}", {kind}),{note}'
    if len(line) <= 100:
        return [line]
    return [f"        # {field.note}", f'        ("{field.name}", {kind}),']


def _python_number(value: int) -> str:
    return f"0x{value:X}" if value >= 1 << 32 else f"{value:_}" if value >= 100_000 else str(value)


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))
