"""Whatever a program passes, the fence answers what the driver answers, and nobody crashes."""

from __future__ import annotations

import re

import pytest

from native import libraries
from tests.native import fenced

TEXT = (libraries.SOURCES / "fence/hooks.h").read_text()
WRAPPED = TEXT[: TEXT.index("/* Called, not wrapped. */")]
CUDA = re.findall(r"X\((cu\w+), \w+, \d+, [01]\)", WRAPPED)
NVML = re.findall(r"X\((nvml\w+)\)", WRAPPED)

# What ends the context comes last: everything after it would only be told that there is none.
LAST = [name for name in CUDA if re.search("Destroy|Detach|Release|Reset", name)]
ORDER = [name for name in CUDA if name not in LAST] + LAST

# The buffer is a place for results, or a description in which everything is 0.
PATTERNS = {
    "nothing": "(0,) * 11",
    "a place for the result": "(byref(buffer),) + (0,) * 10",
    "all but the place": "(0, byref(buffer)) + (0,) * 9",
    "a place, and an empty description": "(byref(buffer), byref(buffer)) + (0,) * 9",
}
WITH_A_SECOND = [name for name, values in PATTERNS.items() if ", byref(buffer))" in values]
SIZED = [name for name in CUDA if re.match("cuMemAlloc|cuMemCreate", name)]  # the second is a size
BEGINNINGS = {
    "before cuInit": "0",
    "without a context": "call('cuInit', 0)",
    "with one": "context()",
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_driver_judges_the_arguments(
    machine: fenced.Machine, tenant: fenced.Tenant, beginning: str, pattern: str
) -> None:
    """Every wrapped function of CUDA with nearly no arguments: as without a fence."""
    sized = SIZED if pattern in WITH_A_SECOND else []
    names = [name for name in ORDER if name not in sized]
    line = f"[answer(name, *{PATTERNS[pattern]}) for name in {names} if clear()]"
    tenant.change(memory_bytes=8 * fenced.GIB)  # so that what succeeds without a fence may do so
    answers = []
    for process in (machine.start(), tenant.start()):
        process("buffer = (c_uint64 * 64)()")
        process("clear = lambda: ctypes.memset(buffer, 0, 512)")
        process(BEGINNINGS[beginning])
        answers.append(dict(zip(names, process(line), strict=True)))
    assert answers[1] == answers[0]


@pytest.mark.parametrize(
    "place", ["0, 0, 0, 0", "byref(buffer), 0, 0, 0", "0, byref(buffer), 0, 0"]
)
@pytest.mark.parametrize("device", ["0", "card(0)"])
def test_nvml_judges_the_arguments(
    machine: fenced.Machine, tenant: fenced.Tenant, device: str, place: str
) -> None:
    """The same for every wrapped function of NVML, with a device and without one."""
    finding = [] if device == "0" else [name for name in NVML if re.search("Count|HandleBy", name)]
    names = [name for name in NVML if name not in finding]  # which take no device, but give one
    line = f"[answer(name, {device}, {place}) for name in {names}]"
    answers = []
    for process in (machine.start(), tenant.start()):
        process("card(0); buffer = (c_uint64 * 64)()")
        answers.append(dict(zip(names, process(line), strict=True)))
    assert answers[1] == answers[0]


def test_handles_that_were_never_given_are_the_drivers_to_refuse(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """An unknown pointer is passed on: it may be one that the fence did not see."""
    names = [name for name in CUDA if re.search("Free_v2|Destroy|Unload|MemRelease", name)]
    assert len(names) > 8
    line = f"[answer(name, 0x7ff000001000) for name in {names}]"
    unfenced, behind = machine.start(), tenant.start()
    assert unfenced(f"[context(), {line}][1]") == behind(f"[context(), {line}][1]")
    assert tenant.counted() == {behind.pid: fenced.CONTEXT_BYTES}
