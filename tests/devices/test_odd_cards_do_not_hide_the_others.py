"""NVML of an old driver with unhealthy, silent and vague cards: a small library of our own."""

from __future__ import annotations

import os
import pathlib

import msgspec
import pytest

from native import compilers
from tests import leaving_out, simulated_machines

GOOD, GONE, MUTE, VAGUE = range(4)

DEVICES = """
import msgspec, pathlib, sys
from partage.devices import nvml
with nvml.Nvml(pathlib.Path(sys.argv[1])) as driver:
    print(msgspec.json.encode(driver.devices()).decode())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which that library is the driver's."""
    folder = tmp_path_factory.mktemp("driver")
    try:
        compiler = compilers.system()
    except compilers.CannotBuild as error:
        leaving_out.leave_out("a C compiler", error)
    source = pathlib.Path(__file__).with_name("odd_driver.c")
    compiler.link(folder / "libnvidia-ml.so.1", [source], "-shared")
    return {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def devices(environment: dict[str, str], pci: pathlib.Path) -> list[dict[str, object]]:
    """What is found."""
    output = simulated_machines.python(DEVICES, pci, environment=environment)
    return msgspec.json.decode(output, type=list[dict[str, object]])


def test_every_card_is_there_in_its_place(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Unhealthy ones too, with what is wrong with them."""
    rows = devices(environment, tmp_path)

    assert [device["index"] for device in rows] == [0, 1, 2, 3]
    assert [bool(device["problem"]) for device in rows] == [False, True, True, False]
    assert rows[GONE]["problem"] == (
        "card 1: GPU is lost; reset the card or reboot: it has fallen off the bus"
    )


def test_what_a_card_does_not_tell_is_none(
    environment: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """And what it tells is kept."""
    numa = tmp_path / "0000:a1:00.0" / "numa_node"
    numa.parent.mkdir()
    numa.write_text("1\n")
    unknown = tmp_path / "0000:a4:00.0" / "numa_node"
    unknown.parent.mkdir()
    unknown.write_text("-1\n")

    rows = devices(environment, tmp_path)

    assert rows[GOOD] == {
        "index": 0,
        "uuid": "GPU-00000001-0000-4000-8000-000000000001",
        "minor": 7,
        "model": "Odd 1",
        "memory_mib": 16384,
        "used_mib": 1024,
        "utilization_percent": None,
        "temperature_c": None,
        "bus": "00000000:a1:00.0",
        "numa": 1,
        "compute_capability": None,
        "mig": None,
        "links": [],
        "problem": "",
    }
    assert rows[VAGUE]["numa"] is None
    assert rows[MUTE]["model"] == "Odd 3"
    assert [rows[MUTE][name] for name in ("uuid", "memory_mib", "bus")] == [None] * 3


def test_cards_are_given_to_decisions_if_they_can_be_named(environment: dict[str, str]) -> None:
    """The one that is vague about its processes is as good as any; the mute one is left out."""
    script = """
from partage.devices import nvml
with nvml.Nvml() as driver:
    print(*(device.card.healthy if device.card else None for device in driver.devices()))
"""
    assert simulated_machines.python(script, environment=environment) == "True None None True\n"


def test_a_lost_card_hides_no_reading(environment: dict[str, str]) -> None:
    """Each card is there with what it tells, which may be nothing."""
    script = """
import msgspec
from partage.devices import nvml
with nvml.Nvml() as driver:
    print(msgspec.json.encode(driver.readings()).decode())
"""
    output = simulated_machines.python(script, environment=environment)
    rows = msgspec.json.decode(output, type=list[dict[str, object]])

    assert [device["index"] for device in rows] == [0, 1, 2, 3]
    assert [device["used_bytes"] for device in rows] == [1 << 30, None, None, 1 << 30]
    assert rows[GOOD]["uuid"] == "GPU-00000001-0000-4000-8000-000000000001"
    assert set(rows[GONE].values()) == {GONE, None}
    unknown = ("utilization_percent", "temperature_c", "power_mw", "corrected_errors")
    assert [rows[GOOD][name] for name in unknown] == [None] * 4


def test_processes_are_there_once_with_all_their_memory(environment: dict[str, str]) -> None:
    """One that computes and draws; memory that the driver does not tell is None."""
    script = """
from partage.core import errors
from partage.devices import nvml
with nvml.Nvml() as driver:
    for number in (1, 4):
        processes = driver.processes(f"GPU-{number:08x}")
        print(*((process.pid, process.used_bytes) for process in processes))
    for uuid in ("GPU-00000003", "GPU-00000009"):
        try:
            driver.processes(uuid)
        except errors.DeviceError as error:
            print(error.reason)
"""
    assert simulated_machines.python(script, environment=environment).splitlines() == [
        "(10, 250) (20, 300)",
        "(10, None) (20, None)",
        "not-supported",
        "not-found",
    ]


def test_an_old_driver_has_no_limits_of_memory(environment: dict[str, str]) -> None:
    """It is said, with the version that has them, before anything is called."""
    script = """
from partage.core import errors
from partage.devices import nvml
with nvml.Nvml() as driver:
    print(driver.driver_version())
    for action in (
        lambda: driver.memory_limits("GPU-00000001", "/sys/fs/cgroup"),
        lambda: driver.set_memory_limits("GPU-1", "/", soft_bytes=0, hard_bytes=1),
    ):
        try:
            action()
        except errors.DeviceError as error:
            print(error.reason, error)
"""
    first, *others = simulated_machines.python(script, environment=environment).splitlines()

    assert first == "470.5"
    assert len(others) == 2
    for line in others:
        assert line.startswith("function-not-found this driver has no nvmlDevice")
        assert line.endswith("install a driver of version 615 or newer")


def test_a_machine_without_a_driver_is_told(tmp_path: pathlib.Path) -> None:
    """What is missing, and what has it."""
    script = """
from partage.core import errors
from partage.devices import nvml
try:
    nvml.Nvml().__enter__()
except errors.DeviceError as error:
    print(error.reason, error)
"""
    (tmp_path / "libnvidia-ml.so.1").touch()  # no library, whatever else this machine has

    said = simulated_machines.python(
        script, environment={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    )

    assert said.startswith("library-not-found NVML: ")
    assert "install NVIDIA's driver" in said
