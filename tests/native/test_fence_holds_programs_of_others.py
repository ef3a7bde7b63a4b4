"""Programs that nobody here wrote, and that call the driver directly, keep to their share.

PyTorch and its like are not among them: they need NVIDIA's own runtime, which needs more of a
driver than is documented.
"""

from __future__ import annotations

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest

from native import libraries
from tests import leaving_out
from tests.local import sites
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB

ROOT = libraries.SOURCES.parent
FITS_MIB, TOO_MUCH_MIB = 1000, 3000  # of a share of 2 GiB
REFUSALS = {
    "taichi": ("Arch.cuda", r"RuntimeError: .*CUDA Error CUDA_ERROR_OUT_OF_MEMORY: out of memory"),
    "tinygrad": ("CUDA", r"MemoryError: Allocation of 2\.93 GB failed on CUDA"),
}
WAYS = [("taichi", "place"), ("taichi", "both")]
WAYS += [("tinygrad", way) for way in ("preload", "place", "both")]


def command(name: str) -> list[str]:
    """How the program is started."""
    if importlib.util.find_spec(name) is None:
        leaving_out.leave_out(name, "there is no wheel of it for this Python or this machine")
    program = f"tests.native.clients.other_{name}"
    return [sys.executable, "-m", program, str(FITS_MIB), str(TOO_MUCH_MIB)]


def is_held(name: str, report: dict[str, Any]) -> bool:
    """Whether it was refused in its own words, and went on."""
    card, refusal = REFUSALS[name]
    said = re.match(refusal, report["refused"])
    return report["on"] == card and said is not None and report["holds"] is True


@pytest.mark.parametrize(("name", "way"), WAYS)
def test_past_its_share_it_is_refused_in_its_own_words(
    machine: fenced.Machine, tmp_path: pathlib.Path, name: str, way: str
) -> None:
    """And goes on, by either way in; what is counted is what the card says, to the byte."""
    tenant = machine.tenant(memory_bytes=2 * GIB)
    environment = {**tenant.environments[way], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    process = machine.run_in_background(command(name), environment)
    assert is_held(name, process.heard())
    truth = machine.truth()
    assert tenant.counted() == truth
    assert FITS_MIB * MIB + CONTEXT_BYTES <= truth[process.pid] <= 2 * GIB
    process.running.communicate(b"\n", timeout=fenced.TIMEOUT_S)
    assert machine.truth() == {}
    assert tenant.usage().refused > 0


def test_a_library_that_is_bound_to_its_own_passes_the_preload_by(
    machine: fenced.Machine, tmp_path: pathlib.Path
) -> None:
    """Taichi is why the fence is in the driver's place, too."""
    tenant = machine.tenant(memory_bytes=2 * GIB)
    environment = {**tenant.environment, "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    report = machine.run_in_background(command("taichi"), environment).heard()
    assert (report["refused"], tenant.counted()) == ("nothing", {})


@pytest.mark.parametrize("name", REFUSALS)
def test_started_by_run_it_is_shown_as_it_is(tmp_path: pathlib.Path, name: str) -> None:
    """`partage run` holds it, and `partage ps` agrees with the card to the MiB."""
    site = sites.Site(tmp_path, cards="1x16GiB")
    variables = {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    try:
        program = site.run(
            "--memory", "2GiB", command=command(name), env=variables, stdin=subprocess.PIPE
        )
        assert program.stdout is not None
        assert is_held(name, json.loads(program.stdout.readline())["value"])
        view = site.view()
        (tenant,), (card,) = view["tenants"], view["cards"]
        assert tenant["used_bytes"] // MIB == card["used_mib"] >= FITS_MIB + CONTEXT_BYTES // MIB
        assert tenant["refused"] > 0
        program.communicate("\n", timeout=sites.PATIENCE_S)
        assert program.returncode == 0
    finally:
        site.end()
