"""NVML through our one door, on simulated cards: facts, processes, limits, the cost of contexts."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import msgspec
import pytest

from partage.core import cards
from partage.core.cards import Link
from tests import leaving_out, simulated_machines

MIB = 1 << 20
CLIENT = pathlib.Path(__file__).parents[1] / "fence" / "cuda_client.py"

DEVICES = """
import msgspec
from partage.devices import nvml
with nvml.Nvml() as driver:
    print(msgspec.json.encode(driver.devices()).decode())
"""
LIMITS = """
import sys
from partage.core import errors
from partage.devices import nvml
with nvml.Nvml() as driver:
    card = driver.devices()[0].uuid
    for line in sys.argv[1:]:
        action, cgroup, *amounts = line.split()
        try:
            if action == "set":
                soft, hard = map(int, amounts)
                driver.set_memory_limits(card, cgroup, soft_bytes=soft, hard_bytes=hard)
                print("set")
            else:
                limits = driver.memory_limits(card, cgroup)
                print(limits.soft_bytes, limits.hard_bytes, limits.used_bytes)
        except errors.DeviceError as error:
            print(error.reason)
"""
MEASURE = """
import sys
from partage.core import errors
from partage.devices import context_measurement, nvml
with nvml.Nvml() as driver:
    for device in driver.devices():
        try:
            print(context_measurement.context_bytes(driver, device.uuid, timeout_s=20))
        except errors.DeviceError as error:
            print(error.reason, error)
"""


@contextlib.contextmanager
def holding(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program with a context on its first card."""
    with subprocess.Popen(
        [sys.executable, "-I", str(CLIENT)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        yield client
        client.kill()


@pytest.fixture
def machine(tmp_path: pathlib.Path) -> dict[str, str]:
    """A fresh machine with two cards."""
    return simulated_machines.machine(tmp_path, cards="16GiB:Tesla T4,24GiB", context_mib="300")


def devices(machine: dict[str, str]) -> list[dict[str, object]]:
    """What is found."""
    output = simulated_machines.python(DEVICES, environment=machine)
    return msgspec.json.decode(output, type=list[dict[str, object]])


def test_cards_are_found_with_their_facts(machine: dict[str, str]) -> None:
    """In index order, each with a uuid of its own."""
    first, second = devices(machine)

    assert (first["index"], first["memory_mib"]) == (0, 16384)
    assert str(first["model"]).endswith("Tesla T4")
    assert (second["index"], second["memory_mib"], second["used_mib"]) == (1, 24576, 0)
    assert first["compute_capability"] in (None, [8, 0])  # simulated cards need not tell
    assert str(first["uuid"]).startswith("GPU-")
    assert first["uuid"] != second["uuid"]
    assert first["problem"] == second["problem"] == ""
    assert (first["utilization_percent"], first["temperature_c"]) == (0, 40)


def test_readings_are_taken_of_all_cards(machine: dict[str, str]) -> None:
    """What they do now; one that is lost is there without numbers."""
    script = """
import msgspec, subprocess, sys
from partage.devices import nvml
with nvml.Nvml() as driver:
    for words in ("soft 1 5", "ecc 1 7", "lose 0"):
        subprocess.run([sys.argv[1], *words.split()], check=True)
    print(msgspec.json.encode(driver.readings()).decode())
"""
    uuids = [device["uuid"] for device in devices(machine)]
    with holding(machine | {"CUDA_VISIBLE_DEVICES": "1"}):
        output = simulated_machines.python(
            script, simulated_machines.LIBRARIES / "simsmi", environment=machine
        )
    lost, second = msgspec.json.decode(output, type=list[dict[str, object]])

    assert set(lost.values()) == {0, None}
    assert second == {
        "index": 1,
        "uuid": uuids[1],
        "used_bytes": 300 * MIB,
        "utilization_percent": 0,
        "temperature_c": 40,
        "power_mw": 60000,
        "corrected_errors": 5,
        "uncorrected_errors": 7,
    }


def test_a_card_is_told_with_all_who_hold_something_of_it(machine: dict[str, str]) -> None:
    """All that is in use, and by which process; nothing is in use on the other card."""
    script = """
import msgspec
from partage.devices import nvml
with nvml.Nvml() as driver:
    occupancies = [driver.occupancy(device.uuid) for device in driver.devices()]
print(msgspec.json.encode(occupancies).decode())
"""
    with holding(machine) as client:
        output = simulated_machines.python(script, environment=machine)
    first, second = msgspec.json.decode(output, type=list[dict[str, object]])

    assert first["used_bytes"] == 300 * MIB
    assert first["processes"] == [{"pid": client.pid, "used_bytes": 300 * MIB}]
    assert (second["used_bytes"], second["processes"]) == (0, [])


def card_links(machine: dict[str, str]) -> list[dict[int, int]]:
    """What each card tells decisions of its links, by the others' index."""
    script = """
import msgspec
from partage.devices import nvml
with nvml.Nvml() as driver:
    cards = [device.card for device in driver.devices() if device.card]
print(msgspec.json.encode(cards).decode())
"""
    output = simulated_machines.python(script, environment=machine)
    machine_cards = msgspec.json.decode(output, type=list[cards.Card])
    index = {card.uuid: card.index for card in machine_cards}
    return [{index[uuid]: near for uuid, near in card.links} for card in machine_cards]


def test_cards_tell_how_near_they_are(tmp_path: pathlib.Path) -> None:
    """Neighbours below one switch, four below one bridge, others beyond the processors."""
    assert card_links(simulated_machines.machine(tmp_path, cards="5x16GiB"))[1] == {
        0: Link.PIX,
        2: Link.PHB,
        3: Link.PHB,
        4: Link.SYS,
    }


def test_links_of_nvlink_add_up(tmp_path: pathlib.Path) -> None:
    """Two of them between neighbours that have it; the last card has no such neighbour."""
    links = card_links(simulated_machines.machine(tmp_path, cards="3x16GiB:A100-SXM4,16GiB"))

    assert links[0] == {1: 2 * Link.NVLINK, 2: Link.PHB, 3: Link.PHB}
    assert links[1] == {0: 2 * Link.NVLINK, 2: Link.PHB, 3: Link.PHB}
    assert links[2] == {0: Link.PHB, 1: Link.PHB, 3: Link.PIX}


def test_a_lost_card_takes_no_links_from_others(machine: dict[str, str]) -> None:
    """It has none, and is none's neighbour."""
    simsmi = simulated_machines.LIBRARIES / "simsmi"
    machine = machine | {"SIMCUDA_CARDS": "4x16GiB"}
    subprocess.run([simsmi, "lose", "0"], env=machine, check=True, timeout=30)

    assert card_links(machine) == [
        {2: Link.PHB, 3: Link.PHB},
        {1: Link.PHB, 3: Link.PIX},
        {1: Link.PHB, 2: Link.PIX},
    ]


def test_processes_are_found_with_their_memory(machine: dict[str, str]) -> None:
    """By their process id; what a context costs is theirs too."""
    script = """
from partage.devices import nvml
with nvml.Nvml() as driver:
    for device in driver.devices():
        print(*((p.pid, p.used_bytes) for p in driver.processes(device.uuid)))
"""
    with subprocess.Popen(
        [sys.executable, "-I", str(CLIENT)],
        env=machine,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        assert client.stdout.readline() == "ready\n"
        client.stdin.write("alloc 100\n")
        client.stdin.flush()
        assert client.stdout.readline() == "0\n"
        said = simulated_machines.python(script, environment=machine).splitlines()
        client.kill()

    assert said == [f"({client.pid}, {400 * MIB})", ""]


@leaving_out.needs_root  # only root may set limits
def test_limits_of_a_cgroup_are_set_read_and_lifted(
    machine: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """Soft and hard; nothing is found where nothing was set, or where it was lifted."""
    most = (1 << 64) - 1
    said = simulated_machines.python(
        LIMITS,
        f"get {tmp_path}",
        f"set {tmp_path} 0 {2048 * MIB}",
        f"get {tmp_path}",
        f"set {tmp_path} 0 {most}",
        f"get {tmp_path}",
        environment=machine,
    )

    assert said.splitlines() == ["not-found", "set", f"0 {2048 * MIB} 0", "set", "not-found"]


@leaving_out.needs_root  # only root may set limits
def test_limits_that_cannot_be_are_refused_by_name(
    machine: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """A cgroup that is not there; more than the card has; a soft limit above the hard one."""
    said = simulated_machines.python(
        LIMITS,
        f"set {tmp_path}/none 0 1",
        f"get {tmp_path}/none",
        f"set {tmp_path} 0 {99 << 40}",
        f"set {tmp_path} 2 1",
        environment=machine,
    )

    assert said.split() == ["operating-system", "operating-system", *["invalid-argument"] * 2]


def test_a_driver_that_cannot_limit_says_so(tmp_path: pathlib.Path) -> None:
    """It has the function, and does not support it."""
    machine = simulated_machines.machine(tmp_path, memory_limits="0")

    assert (
        simulated_machines.python(LIMITS, f"get {tmp_path}", environment=machine)
        == "not-supported\n"
    )


def test_a_context_is_measured_on_each_card(machine: dict[str, str]) -> None:
    """By a process that does nothing else."""
    said = simulated_machines.python(MEASURE, environment=machine)

    assert said.split() == [str(300 * MIB)] * 2


def test_a_measurement_is_not_disturbed_by_others(machine: dict[str, str]) -> None:
    """Not by a program on the card, and not by a fence in our own environment."""
    with holding(machine):
        fenced = machine | {"PARTAGE_LIMITS": "/nowhere", "CUDA_MPS_PIPE_DIRECTORY": "/nowhere"}
        said = simulated_machines.python(MEASURE, environment=fenced)

    assert said.split() == [str(300 * MIB)] * 2


def test_a_context_that_cannot_be_made_is_told(
    machine: dict[str, str], tmp_path: pathlib.Path
) -> None:
    """A driver without CUDA: the last words of the program that tried."""
    (tmp_path / "libnvidia-ml.so.1").symlink_to(simulated_machines.LIBRARIES / "libnvidia-ml.so.1")
    (tmp_path / "libcuda.so.1").touch()

    said = simulated_machines.python(
        MEASURE, environment=machine | {"LD_LIBRARY_PATH": str(tmp_path)}
    ).splitlines()

    assert len(said) == 2
    for line in said:
        assert line.startswith("no-context no CUDA context could be made on card GPU-")
        assert "libcuda.so.1" in line
