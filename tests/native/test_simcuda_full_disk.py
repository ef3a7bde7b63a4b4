"""A simulated machine on a full disk: no program starts there, and none that has started dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import disks
from tests.native import fenced

OPERATING_SYSTEM = {"call('cuInit', 0)": 304, "call('nvmlInit_v2')": 17}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small one."""
    with disks.small(tmp_path / "disk") as made:
        yield made


@pytest.fixture
def machine(tmp_path: Path, disk: Path) -> Iterator[fenced.Machine]:
    """A machine whose programs are sent to one on the small disk."""
    with fenced.machine(tmp_path) as made:
        yield made


def test_a_machine_that_has_no_room_is_not_made(machine: fenced.Machine, disk: Path) -> None:
    """The error is that of the operating system; half a file is not left."""
    disks.fill(disk / "filler")
    program = machine.start({"SIMCUDA_STATE": str(disk / "machine")})

    assert {call: program.code(call) for call in OPERATING_SYSTEM} == OPERATING_SYSTEM
    assert [path.name for path in disk.iterdir()] == ["filler"]


def test_who_has_started_works_on_while_the_disk_is_full(
    machine: fenced.Machine, disk: Path
) -> None:
    """As many launches as are remembered; a further process is refused, until there is room."""
    settings = {"SIMCUDA_STATE": str(disk / "machine"), "SIMCUDA_KERNEL_US": "0"}
    program = machine.start(settings)
    program("context(); from timed_kernels import *; from nvml_onlooker import *")
    disks.fill(disk / "filler")

    program("for _ in range(9000): launch(1) or call('cuCtxSynchronize')")
    assert program("card_memory(0)")["used"] >= fenced.CONTEXT_BYTES
    further = machine.start(settings)
    assert further.code("call('cuInit', 0)") == 304
    (disk / "filler").unlink()
    assert further.code("call('cuInit', 0)") == 0
