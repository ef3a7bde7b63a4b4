"""A CUDA program that does what it is told: the other half of `fenced.Process`.

Each line that comes in is Python, run with the names of this module and of `ways`; each line that
goes out is what came of it. Calls go by symbol name through `dlsym`, as ctypes does it, so they
reach the fence as those of any Python program do. It needs the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import signal
import sys
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64
from typing import Any

MIB = 1 << 20
GIB = 1 << 30
MEMORY_INFO_V2, UTILIZATION_V1 = 0x2000028, 0x1000018  # version and size, as NVML wants them


class Refused(Exception):
    """What was called answered with something else than success."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__(f"{name}: {code}")
        self.code = code


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = (("total", c_uint64), ("free", c_uint64), ("used", c_uint64))


class MemoryV2(ctypes.Structure):
    """nvmlMemory_v2_t."""

    _fields_ = (
        ("version", c_uint),
        ("total", c_uint64),
        ("reserved", c_uint64),
        ("free", c_uint64),
        ("used", c_uint64),
    )


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t, of versions 2 and 3."""

    _fields_ = (
        ("pid", c_uint),
        ("used_bytes", c_uint64),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    )


class ProcessInfoV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t."""

    _fields_ = (("pid", c_uint), ("used_bytes", c_uint64))


class FullSample(ctypes.Structure):
    """nvmlProcessUtilizationInfo_v1_t."""

    _fields_ = (("time", c_uint64), ("pid", c_uint), ("percent", c_uint * 6))


class Utilization(ctypes.Structure):
    """nvmlProcessesUtilizationInfo_v1_t."""

    _fields_ = (
        ("version", c_uint),
        ("count", c_uint),
        ("since", c_uint64),
        ("samples", ctypes.c_void_p),
    )


class Sample(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = (("pid", c_uint), ("time", c_uint64), ("percent", c_uint * 4))


@functools.cache
def library(name: str) -> ctypes.CDLL:
    """Opened at its first use, as programs do."""
    return ctypes.CDLL(name)


def _passed(argument: object) -> object:
    """Whole numbers fill a register, whatever their type in C is."""
    return c_uint64(argument & (2**64 - 1)) if isinstance(argument, int) else argument


def answer(name: str, *arguments: object) -> int:
    """Call a function of the driver or of NVML; its result."""
    source = library("libcuda.so.1" if name.startswith("cu") else "libnvidia-ml.so.1")
    return int(source[name](*map(_passed, arguments)))


def call(name: str, *arguments: object) -> None:
    """Call a function that is to succeed."""
    if code := answer(name, *arguments):
        raise Refused(name, code)


def made(name: str, *arguments: object, kind: type[Any] = c_uint64) -> int:
    """Call a function that is to succeed, and whose first argument is where its result goes."""
    out = kind()
    call(name, byref(out), *arguments)
    return int(out.value or 0)


# ---- CUDA ----------------------------------------------------------------------------------------


def context(device: int = 0) -> int:
    """Begin, with the primary context of a device."""
    call("cuInit", 0)
    handle = made("cuDevicePrimaryCtxRetain", device)
    call("cuCtxSetCurrent", handle)
    return handle


def alloc(size: int) -> int:
    """Linear memory."""
    return made("cuMemAlloc_v2", size)


def free(pointer: int) -> None:
    """Any memory that has an address of its own."""
    call("cuMemFree_v2", pointer)


def memory_info() -> tuple[int, int]:
    """What the card is said to have, free and in all."""
    left, total = c_size_t(), c_size_t()
    call("cuMemGetInfo_v2", byref(left), byref(total))
    return left.value, total.value


def total_memory(device: int = 0) -> int:
    """How large the card is said to be."""
    return made("cuDeviceTotalMem_v2", device, kind=c_size_t)


def error_text(code: int) -> str:
    """What people read of an error."""
    text = ctypes.c_char_p()
    call("cuGetErrorString", code, byref(text))
    return (text.value or b"").decode()


def in_a_child(line: str) -> Any:
    """What a line gives in a child that is forked for it."""
    out, into = os.pipe()
    if not os.fork():
        os.write(into, json.dumps(run(line), default=str).encode())
        os._exit(0)
    os.close(into)
    with open(out, "rb") as answers:  # noqa: PTH123
        said = json.loads(answers.read())
    os.wait()
    if "refused" in said:
        raise Refused(said["what"], said["refused"])
    return said["value"]


def child_that_stays(line: str = "None") -> int:
    """The pid of a child that runs a line and then stays, for ever, with all that it inherited."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        run(line)
        for fd in (0, 1, 2, into):
            os.close(fd)
        signal.pause()
    os.close(into)
    os.read(out, 1)
    os.close(out)
    return child


def close_all() -> None:
    """Close every descriptor that is not a standard one, as daemons do.

    But for the driver's own: what it would do without them is not the question.
    """
    for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if fd > 2 and os.environ["SIMCUDA_STATE"] not in os.readlink(f"/proc/self/fd/{fd}"):  # noqa: PTH115
                os.close(fd)


# ---- NVML ----------------------------------------------------------------------------------------


@functools.cache
def card(index: int) -> int:
    """The handle of a card."""
    call("nvmlInit_v2")
    handle = c_uint64()
    call("nvmlDeviceGetHandleByIndex_v2", index, byref(handle))
    return handle.value


def uuid(index: int) -> str:
    """GPU-8-4-4-4-12."""
    text = ctypes.create_string_buffer(96)
    call("nvmlDeviceGetUUID", card(index), text, len(text))
    return text.value.decode()


def card_memory(index: int = 0) -> dict[str, int]:
    """Memory as `nvidia-smi` shows it."""
    memory = Memory()
    call("nvmlDeviceGetMemoryInfo", card(index), byref(memory))
    return {name: getattr(memory, name) for name in ("total", "free", "used")}


def card_memory_v2(index: int = 0) -> dict[str, int]:
    """The same, as newer programs ask for it."""
    memory = MemoryV2(version=MEMORY_INFO_V2)
    call("nvmlDeviceGetMemoryInfo_v2", card(index), byref(memory))
    return {name: getattr(memory, name) for name in ("total", "reserved", "free", "used")}


def processes(index: int = 0, version: str = "_v3", kind: str = "Compute") -> dict[str, int]:
    """Bytes by pid, of the processes that the card is said to have."""
    info = ProcessInfo if version else ProcessInfoV1
    count, infos = c_uint(1024), (info * 1024)()
    name = f"nvmlDeviceGet{kind}RunningProcesses{version}"
    call(name, card(index), byref(count), infos)
    return {str(info_row.pid): info_row.used_bytes for info_row in infos[: count.value]}


def how_many_processes(index: int = 0) -> tuple[int, int]:
    """The answer to one who asks without room for any, and the number."""
    count = c_uint(0)
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    return answer(name, card(index), byref(count), None), count.value


def busy_pids(index: int = 0) -> list[int]:
    """The processes that kept the card busy of late."""
    count, samples = c_uint(256), (Sample * 256)()
    call("nvmlDeviceGetProcessUtilization", card(index), samples, byref(count), 0)
    return [sample.pid for sample in samples[: count.value]]


def busy_pids_in_full(index: int = 0) -> list[int]:
    """The same, as newer programs ask for it."""
    samples = (FullSample * 256)()
    utilization = Utilization(UTILIZATION_V1, 256, 0, ctypes.addressof(samples))
    call("nvmlDeviceGetProcessesUtilizationInfo", card(index), byref(utilization))
    return [sample.pid for sample in samples[: utilization.count]]


def visible_devices() -> int:
    """How many cards CUDA sees."""
    return made("cuDeviceGetCount", kind=c_int)


# ---- doing what is told --------------------------------------------------------------------------


NAMES: dict[str, Any] = {}  # of what was told: these, those of `ways`, and its own


def run(line: str) -> dict[str, object]:
    """One line: an expression with its value, or a statement without."""
    try:
        try:
            compiled = compile(line, "<told>", "eval")
        except SyntaxError:
            exec(compile(line, "<told>", "exec"), NAMES)
            return {"value": None}
        return {"value": eval(compiled, NAMES)}
    except Refused as refused:
        return {"refused": refused.code, "what": str(refused)}


def main() -> None:
    """Do what comes in, until nothing does."""
    NAMES.update(globals())
    exec("from tests.native.ways import *", NAMES)
    # Not a byte more than the line: another program may be told the next one (exec).
    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115
        sys.stdout.write(json.dumps(run(json.loads(line)), default=str) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.path[:0] = [__file__.rsplit("/", 1)[0], __file__.rsplit("/", 3)[0]]
    sys.modules["client"] = sys.modules["tests.native.client"] = sys.modules["__main__"]
    main()
