"""Headers of CUDA's driver and of NVML: the functions they declare, versions, names of errors.

The compiler preprocesses, because the headers rename functions with macros; what is left is plain
declarations that a regular expression reads exactly. Nothing of the headers is kept: the generated
C includes them, and the compiler then checks every line that was derived from this reading.
"""

import dataclasses
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

Folders = Sequence[Path]

DECLARED = re.compile(
    r"(?:^|[;}{])\s*(?:extern )?(?:CUresult|nvmlReturn_t) (\w+) ?\(([^;{}]*)\) ?(?=;)"
)
TYPEDEF = re.compile(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(?:_(ptsz|ptds))?\)\(")
ENUMERATOR = re.compile(r"\b(CUDA_(?:SUCCESS|ERROR_\w+)|NVML_(?:SUCCESS|ERROR_\w+)) = (\d+)")
PARAMETER = re.compile(r"^(.*?)(\w+)(?:\[\w*\])?$")  # its type, its name
ATTRIBUTES = re.compile(r"__attribute__ ?\(\(.*?\)\)")


class CannotRead(Exception):
    """A header could not be preprocessed; the text is the compiler's."""


@dataclasses.dataclass(frozen=True)
class Function:
    """A declared function: its name and its parameters, each as (type, name)."""

    name: str
    parameters: tuple[tuple[str, str], ...]

    @property
    def types(self) -> tuple[str, ...]:
        return tuple(kind for kind, _ in self.parameters)

    def declaration(self) -> str:
        inside = ", ".join(f"{kind} {name}" for kind, name in self.parameters) or "void"
        return f"{self.name}({inside})"

    def call(self, target: str) -> str:
        return f"{target}({', '.join(name for _, name in self.parameters)})"


@dataclasses.dataclass(frozen=True)
class Offer:
    """A row of cuGetProcAddress: a name, the CUDA version it came with, its default stream."""

    name: str
    version: int
    per_thread: str  # "ptsz", "ptds" or nothing

    @property
    def typedef(self) -> str:
        return f"PFN_{self.name}_v{self.version}" + (f"_{self.per_thread}" * bool(self.per_thread))


def preprocessed(header: str, folders: Folders, cc: Sequence[str], *defines: str) -> str:
    """The header as the compiler sees it, on one line."""
    flags = [*(f"-I{folder}" for folder in folders), *(f"-D{name}" for name in defines)]
    done = subprocess.run(
        [*cc, "-E", "-P", "-x", "c", *flags, "-"],
        input=f"#include <{header}>\n",
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        message = f"{header} cannot be preprocessed:\n{done.stderr.strip()}"
        raise CannotRead(message)
    return ATTRIBUTES.sub("", re.sub(r"\s+", " ", done.stdout))


def functions(text: str) -> dict[str, Function]:
    """All functions that return an error code, in the order of their declaration."""
    declared = (Function(name, parameters(inside)) for name, inside in DECLARED.findall(text))
    return {function.name: function for function in declared}


def parameters(inside: str) -> tuple[tuple[str, str], ...]:
    """Split `unsigned int *bytes, CUdevice dev`; no parameter of these headers contains a comma."""
    if inside.strip() in {"", "void"}:
        return ()
    pairs = []
    for text in inside.split(","):
        kind, _, name = PARAMETER.sub(r"\1 \2", text.strip()).rpartition(" ")
        pairs.append((re.sub(r"\s*\*\s*", "*", kind).strip(), name))
    return tuple(pairs)


def offers(folders: Folders) -> list[Offer]:
    """What cuGetProcAddress offers: the typedefs that NVIDIA publishes name every version."""
    header = next(folder / "cudaTypedefs.h" for folder in folders if (folder / "cuda.h").exists())
    rows = TYPEDEF.findall(header.read_text(encoding="utf-8"))
    return [Offer(name, int(version), per_thread) for name, version, per_thread in rows]


def errors(text: str) -> list[tuple[str, int]]:
    """The names and numbers of the error codes."""
    return [(name, int(number)) for name, number in ENUMERATOR.findall(text)]
