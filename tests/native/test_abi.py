"""The fence's own picture of the driver's interface is the one in NVIDIA's headers."""

import re
import subprocess
from pathlib import Path

import pytest

from native import compilers, libraries

FENCE = Path("native/fence").resolve()

STRUCTS = {
    "CUuuid": ["bytes"],
    "CUmemLocation": ["type", "id"],
    "CUmemAllocationProp": ["type", "requestedHandleTypes", "location", "allocFlags"],
    "CUarrayMapInfo": ["resourceType", "memOperationType", "memHandle", "offset", "reserved"],
    "CUmemPoolProps": ["allocType", "handleTypes", "location", "maxSize", "usage"],
    "CUDA_MEM_ALLOC_NODE_PARAMS": ["poolProps", "accessDescs", "accessDescCount", "bytesize"],
    "CUDA_GRAPH_INSTANTIATE_PARAMS": ["flags", "hUploadStream", "hErrNode_out", "result_out"],
    "CUgraphNodeParams": ["type", "graph", "reserved2"],
    "CUDA_ARRAY_DESCRIPTOR": ["Width", "Height", "Format", "NumChannels"],
    "CUDA_ARRAY3D_DESCRIPTOR": ["Width", "Height", "Depth", "Format", "NumChannels", "Flags"],
    "CUDA_ARRAY_DESCRIPTOR_v1": ["Width", "Height", "Format", "NumChannels"],
    "CUDA_ARRAY3D_DESCRIPTOR_v1": ["Width", "Height", "Depth", "Format", "NumChannels", "Flags"],
    "CUDA_ARRAY_MEMORY_REQUIREMENTS": ["size", "alignment", "reserved"],
    "CUlaunchConfig": ["gridDimX", "blockDimZ", "hStream", "attrs", "numAttrs"],
    "CUDA_LAUNCH_PARAMS": ["function", "gridDimX", "blockDimZ", "hStream", "kernelParams"],
    "CUdeviceptr": [],
    "CUdevice": [],
    "nvmlMemory_t": ["total", "free", "used"],
    "nvmlMemory_v2_t": ["version", "total", "reserved", "free", "used"],
    "nvmlProcessInfo_v1_t": ["pid", "usedGpuMemory"],
    "nvmlProcessInfo_t": ["pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId"],
    "nvmlProcessUtilizationSample_t": ["pid", "timeStamp", "smUtil", "decUtil"],
    "nvmlProcessUtilizationInfo_v1_t": ["timeStamp", "pid", "smUtil", "ofaUtil"],
    "nvmlProcessesUtilizationInfo_v1_t": ["processSamplesCount", "procUtilArray"],
}
NUMBERS = re.findall(
    r"^\s+((?:CU|CUDA|NVML)_[A-Z0-9_]+) = ", (FENCE / "cuda_abi.h").read_text(), re.MULTILINE
)


def facts(folder: Path, includes: list[str], flags: list[str]) -> dict[str, int]:
    """Sizes, offsets and numbers, as a program compiled with those headers prints them."""
    lines = [f"#include <{header}>" for header in includes]
    lines += ["#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for name, members in STRUCTS.items():
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        for member in members:
            lines.append(f'printf("{name}.{member} %zu\\n", offsetof({name}, {member}));')
    lines += [f'printf("{name} %ld\\n", (long){name});' for name in NUMBERS]
    source, program = folder / "facts.c", folder / "facts"
    source.write_text("\n".join([*lines, "}"]))
    compiler = compilers.system()
    subprocess.run([*compiler.command, *flags, "-o", program, source], check=True, timeout=60)
    printed = subprocess.run([program], check=True, timeout=60, capture_output=True, text=True)
    return {line.split()[0]: int(line.split()[1]) for line in printed.stdout.splitlines()}


def test_sizes_offsets_and_numbers_are_those_of_the_headers(tmp_path: Path) -> None:
    """A struct that is laid out differently would be read in the wrong place."""
    flags = [f"-isystem{folder}" for folder in libraries.header_folders()]
    theirs = facts(tmp_path, ["cuda.h", "nvml.h"], ["-D__CUDA_API_VERSION_INTERNAL", *flags])
    assert facts(tmp_path, ["cuda_abi.h"], [f"-I{FENCE}"]) == theirs
    assert len(NUMBERS) > 20


def typedefs() -> set[tuple[str, int, bool]]:
    """Every form of every function that the headers know: name, first version, per-thread."""
    text = "".join(
        (folder / "cudaTypedefs.h").read_text()
        for folder in libraries.header_folders()
        if (folder / "cudaTypedefs.h").exists()
    )
    matches = re.findall(r"\*PFN_(\w+?)_v(\d+)(_ptsz|_ptds)?\)", text)
    return {(name, int(version), bool(suffix)) for name, version, suffix in matches}


HOOKS = [
    (symbol, name, int(version), per_thread == "1")
    for symbol, name, version, per_thread in re.findall(
        r"X\((\w+), (\w+), (\d+), ([01])\)", (FENCE / "hooks.h").read_text()
    )
]


@pytest.mark.parametrize(("symbol", "name", "version", "per_thread"), HOOKS, ids=str)
def test_every_hook_is_a_form_that_the_headers_know(
    symbol: str, name: str, version: int, per_thread: bool
) -> None:
    """A version that is off by one release would hand out a function of another form."""
    assert (name, version, per_thread) in typedefs()


def test_every_form_of_a_hooked_function_is_hooked() -> None:
    """A form that was left out would be a way around the fence."""
    hooked = {(name, version, per_thread) for _, name, version, per_thread in HOOKS}
    names = {name for name, _, _ in hooked}
    assert {form for form in typedefs() if form[0] in names} - hooked == set()
