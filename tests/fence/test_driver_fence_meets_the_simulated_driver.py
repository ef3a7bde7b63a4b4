"""The fence driver over our NVML, on simulated cards: the same code as on real ones."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import simulated

FENCE = """
import sys
from partage.core import errors
from partage.devices import nvml
from partage.fence import driver, levels, limits
job = levels.Subject(name="job", cgroup=sys.argv[1])
with nvml.Nvml() as port:
    cards = [device.uuid for device in port.devices()]
    fence = driver.Driver(port)
    for memory_bytes in map(int, sys.argv[2:]):
        asked = limits.Limits(
            tuple(limits.CardLimits(uuid=uuid, memory_bytes=memory_bytes) for uuid in cards)
        )
        try:
            assert fence.apply(job, asked).limits == asked
            print(*(port.memory_limits(uuid, job.cgroup).hard_bytes for uuid in cards))
        except errors.FenceError as error:
            print(error)
    fence.release(job, asked)
    fence.release(job, asked)
"""
GIB = 1 << 30


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may set limits")
def test_limits_are_in_force_on_all_cards(tmp_path: pathlib.Path) -> None:
    """Set, read back, set again, and lifted at the end; too much is refused with what to do."""
    machine = simulated.machine(tmp_path)

    one, other, refused = simulated.python(
        FENCE, tmp_path, 2 * GIB, GIB, 99 * GIB, environment=machine
    ).splitlines()

    assert one == f"{2 * GIB} {2 * GIB}"
    assert other == f"{GIB} {GIB}"
    assert refused.endswith("Invalid Argument; ask for no more memory than the card has")


def test_a_driver_that_cannot_is_told(tmp_path: pathlib.Path) -> None:
    """With the levels that can."""
    machine = simulated.machine(tmp_path, memory_limits="0")
    script = FENCE.replace("    fence.release(job, asked)\n", "")

    said = simulated.python(script, tmp_path, GIB, environment=machine)

    assert "Not Supported; use the level mps or hook" in said


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"driver": "580.95"}, "driver 580.95 has no memory limits"), ({}, "")],
)
def test_levels_are_probed_on_the_drivers_own_word(
    tmp_path: pathlib.Path, settings: dict[str, str], says: str
) -> None:
    """Its version is what NVML says."""
    line = [sys.executable, "-c", "from partage.cli.main import main; main()"]
    done = subprocess.run(
        [*line, "fence", "levels", "-o", "json"],
        env=simulated.machine(tmp_path, **settings),
        capture_output=True,
        check=True,
    )

    driver = json.loads(done.stdout)[0]

    assert says in driver["reason"]
    assert "the NVIDIA driver does not answer" not in driver["reason"]
