"""The fence driver over our NVML, on simulated cards: the same code as on real ones."""

from __future__ import annotations

import pathlib

from tests import leaving_out, simulated_machines

FENCE = """
import sys
from partage.core import errors
from partage.devices import nvml
from partage.fence.levels import catalog, driver
from partage.fence.store import limits
job = catalog.Subject(name="job", cgroup=sys.argv[1])
with nvml.Nvml() as port:
    cards = [device.uuid for device in port.devices()]
    fence = driver.Driver(port)
    for memory_bytes in map(int, sys.argv[2:]):
        job_limits = limits.Limits(
            tuple(limits.CardLimits(uuid=uuid, memory_bytes=memory_bytes) for uuid in cards)
        )
        try:
            assert fence.apply(job, job_limits).limits == job_limits
            print(*(port.memory_limits(uuid, job.cgroup).hard_bytes for uuid in cards))
        except errors.FenceError as error:
            print(error)
    fence.release(job, job_limits)
    fence.release(job, job_limits)
"""
GIB = 1 << 30


@leaving_out.needs_root  # only root may set limits
def test_limits_are_in_force_on_all_cards(tmp_path: pathlib.Path) -> None:
    """Set, read back, set again, and lifted at the end; too much is refused with what to do."""
    machine = simulated_machines.machine(tmp_path)

    first, second, refused = simulated_machines.python(
        FENCE, tmp_path, 2 * GIB, GIB, 99 * GIB, environment=machine
    ).splitlines()

    assert first == f"{2 * GIB} {2 * GIB}"
    assert second == f"{GIB} {GIB}"
    assert refused.endswith("Invalid Argument; request no more memory than the card has")


def test_a_driver_that_cannot_is_told(tmp_path: pathlib.Path) -> None:
    """With the level that can."""
    machine = simulated_machines.machine(tmp_path, memory_limits="0")
    script = FENCE.replace("    fence.release(job, job_limits)\n", "")

    said = simulated_machines.python(script, tmp_path, GIB, environment=machine)

    assert "Not Supported; use the level hook" in said
