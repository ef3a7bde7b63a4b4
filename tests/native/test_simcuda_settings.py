"""A simulated machine is what its environment or its file says, and mistakes there are told."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.native import fenced
from tests.native.fenced import GIB, MIB, NO_DEVICE

INVALID_SETTINGS = {"call('cuInit', 0)": 1, "call('nvmlInit_v2')": 2}
NOT_FOUND = 6  # NVML's
UUID = "GPU-00112233-4455-6677-8899-aabbccddeeff"
FILE = f"""
# What the README shows. {"A comment may be as long as it likes. " * 30}
driver = 580.65.06
cuda = 13.0
context_mib = 100
[card]
model = Tesla T4
memory = 15GiB
capability = 7.5
[card]
memory = 24GiB  # of another kind
uuid = {UUID}
sms = 40
"""


Fresh = Callable[..., fenced.Process]


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fenced.Machine]:
    """A machine whose programs are sent to others, each to its own."""
    with fenced.machine(tmp_path_factory.mktemp("elsewhere")) as machine:
        yield machine


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Where the machine is to be."""
    return tmp_path / "machine"


@pytest.fixture
def fresh(elsewhere: fenced.Machine, state: Path) -> Fresh:
    """Starts a program on a new machine, with these settings and no others."""

    def start(**settings: str) -> fenced.Process:
        given = {"SIMCUDA_CARDS": "", "SIMCUDA_STATE": str(state)}
        given |= {f"SIMCUDA_{name.upper()}": value for name, value in settings.items()}
        process = elsewhere.start(given)
        process("from nvml_onlooker import *")
        return process

    return start


def digits(uuid: str) -> str:
    """The 32 of an identity."""
    return uuid.removeprefix("GPU-").replace("-", "")


def described(process: fenced.Process) -> list[list[Any]]:
    """Each card that CUDA sees, as it describes it."""
    process("call('cuInit', 0)")
    facts = process("[facts_by_cuda(index) for index in range(visible_devices())]")
    assert isinstance(facts, list)
    return facts


def test_without_settings_there_is_one_card(fresh: Fresh) -> None:
    """That can be told from a real one."""
    program = fresh()
    [[name, _, *numbers]] = described(program)
    assert (name, numbers) == ("Simulated GPU", [16 * GIB, 108, 8, 0])
    assert program("text('nvmlSystemGetDriverVersion')") == "615.71"
    assert program("made('cuDriverGetVersion', kind=c_int)") == 13040


def test_a_machine_is_set_by_the_environment(fresh: Fresh) -> None:
    """Number, memory and model of cards; versions; what all cards have in common."""
    program = fresh(
        cards="2x16GiB:Tesla T4,512MiB,1x8G:H100 80GB HBM3",
        driver="570.12",
        cuda="12.8",
        sms="40",
        capability="9.0",
    )
    cards = described(program)
    assert [(name, memory) for name, _, memory, *_ in cards] == [
        ("Simulated Tesla T4", 16 * GIB),
        ("Simulated Tesla T4", 16 * GIB),
        ("Simulated GPU", 512 * MIB),
        ("Simulated H100 80GB HBM3", 8 * GIB),
    ]
    assert all(numbers == [40, 9, 0] for _, _, _, *numbers in cards)
    assert len({uuid for _, uuid, *_ in cards}) == 4
    assert cards == program("[facts_by_nvml(index) for index in range(4)]")
    assert program("text('nvmlSystemGetDriverVersion')") == "570.12"
    assert program("text('nvmlSystemGetNVMLVersion')") == "12.570.12"
    assert program("made('nvmlSystemGetCudaDriverVersion_v2', kind=c_int)") == 12080


def test_a_machine_is_set_by_a_file(fresh: Fresh, tmp_path: Path) -> None:
    """Each card with its own memory, model, identity, multiprocessors and capability."""
    config = tmp_path / "config"
    config.write_text(FILE)
    program = fresh(config=str(config))
    first, second = described(program)
    assert (first[0], first[2:]) == ("Simulated Tesla T4", [15 * GIB, 108, 7, 5])
    assert second == ["Simulated GPU", digits(UUID), 24 * GIB, 40, 8, 0]
    assert [first, second] == program("[facts_by_nvml(0), facts_by_nvml(1)]")
    assert program("text('nvmlSystemGetDriverVersion')") == "580.65.06"
    program("context(1)")
    assert program("card_memory(1)")["used"] == 100 * MIB


def test_the_environment_wins_over_the_file(fresh: Fresh, tmp_path: Path) -> None:
    """Key by key: what only the file says still holds."""
    config = tmp_path / "config"
    config.write_text(FILE)
    program = fresh(config=str(config), cards="3x1GiB", context_mib="7")
    assert [memory for _, _, memory, *_ in described(program)] == [GIB] * 3
    assert program("text('nvmlSystemGetDriverVersion')") == "580.65.06"
    program("context()")
    assert program("card_memory(0)")["used"] == 7 * MIB


def test_cards_are_the_same_on_every_run(fresh: Fresh, elsewhere: fenced.Machine) -> None:
    """So that what was written about them stays true; and any few digits tell two apart."""
    uuids = [card[1] for card in described(fresh(cards="32x1GiB"))]
    assert uuids[0] == digits(elsewhere.uuids[0])
    assert len({uuid[:4] for uuid in uuids}) == 32


def test_no_card_is_divided(fresh: Fresh) -> None:
    """MIG is off, and no process is in an instance."""
    program = fresh()
    program("call('nvmlInit_v2'); modes = (c_uint(9), c_uint(9))")
    program("call('nvmlDeviceGetMigMode', card(0), byref(modes[0]), byref(modes[1]))")
    assert program("[mode.value for mode in modes]") == [0, 0]
    assert program("number('nvmlDeviceGetMaxMigDeviceCount', 0)") == 0
    assert program.code(
        "call('nvmlDeviceGetMigDeviceHandleByIndex', card(0), 0, byref(c_uint64()))"
    )


MISTAKES = [
    {"cards": "two"},
    {"cards": "0x16GiB"},
    {"cards": "0GiB"},
    {"cards": "16GiB,"},
    {"cards": "16 GiB"},
    {"cards": "16TB"},
    {"cards": "-1GiB"},
    {"cards": "33x1GiB"},
    {"cards": "16GiB:"},
    {"cards": "16GiB:" + "x" * 60},
    {"cards": "1GiB," * 500 + "1GiB"},
    {"cards": "99999999999GiB"},
    {"cards": "99999999999999999999999999"},
    {"driver": "newest"},
    {"driver": "9" * 40},
    {"cuda": "13"},
    {"cuda": "13.4.1"},
    {"cuda": "thirteen"},
    {"sms": "0"},
    {"sms": "many"},
    {"capability": "80"},
    {"capability": "8.12"},
    {"memory_limits": "yes"},
    {"context_mib": "-1"},
    {"context_mib": "1.5"},
    {"pool_mib": "0"},
    {"kernel_us": "fast"},
    {"kernel_us": "-1"},
    {"kernel_us": "nan"},
    {"kernel_us_vadd": "slow"},
]
MISTAKES_IN_FILES = {
    "no value": "cards",
    "an unknown key": "colour = red",
    "a wrong value": "cards = none",
    "an unknown section": "[device]",
    "memory in words": "[card]\nmemory = much",
    "no memory": "[card]\nmemory = 0GiB",
    "a short uuid": "[card]\nuuid = GPU-0011",
    "a long uuid": f"[card]\nuuid = {UUID}0",
    "the uuid of something else": "[card]\nuuid = MIG-00112233-4455-6677-8899-aabbccddeeff",
    "the same uuid twice": f"[card]\nuuid = {UUID}\n[card]\nuuid = {UUID}",
    "no multiprocessors": "[card]\nsms = 0",
    "a capability in words": "[card]\ncapability = new",
    "what is not a card's": "[card]\ndriver = 615.71",
    "a card without a name": "[card]\nmodel =",
    "too many cards": "[card]\n" * 33,
    "a duration in words": "kernel_us.vadd = slow",
    "a line that is too long": "driver = 615.71" + " " * 600 + "colour = red",
}


def refused(process: fenced.Process) -> str:
    """Both libraries refuse to begin; what they say."""
    for line, code in INVALID_SETTINGS.items():
        assert process.code(line) == code, line
    return process.end()


@pytest.mark.parametrize("settings", MISTAKES, ids=lambda settings: str(settings)[:40])
def test_a_mistake_in_the_environment_is_told(
    fresh: Fresh, state: Path, settings: dict[str, str]
) -> None:
    """In one line that names the setting, by an error and not by a crash; nothing is made."""
    said = refused(fresh(**settings))
    name = next(iter(settings)).removesuffix("_vadd")
    assert re.fullmatch(rf"(simcuda: {name} cannot be .*README.*\n){{2}}", said)
    assert not state.exists()


@pytest.mark.parametrize("mistake", MISTAKES_IN_FILES)
def test_a_mistake_in_a_file_is_told(fresh: Fresh, tmp_path: Path, mistake: str) -> None:
    """The same as in the environment."""
    config = tmp_path / "config"
    config.write_text(f"driver = 600.1\n{MISTAKES_IN_FILES[mistake]}\n")
    assert re.fullmatch(r"(simcuda: .*\n){2}", refused(fresh(config=str(config))))


def test_a_file_that_is_not_there_is_told(fresh: Fresh) -> None:
    """By its name."""
    assert "/nowhere/config" in refused(fresh(config="/nowhere/config"))


def identity(place: Path) -> tuple[int, int, int] | None:
    """What tells whether something else is there now, or something else in it."""
    if not place.exists():
        return None
    about = place.stat()
    return about.st_ino, about.st_mode, about.st_mtime_ns


@pytest.mark.parametrize("kind", ["in no folder", "a folder", "a pipe", "somebody's file"])
def test_a_place_where_no_machine_can_be_is_told(fresh: Fresh, tmp_path: Path, kind: str) -> None:
    """An error of the operating system, with the name of the place; what is there stays there."""
    place = tmp_path / "taken"
    if kind == "a folder":
        place.mkdir()
    elif kind == "a pipe":
        os.mkfifo(place)
    elif kind == "somebody's file":
        place.write_text("a diary\n" * 100_000)
    else:
        place /= "state"
    before = identity(place)
    process = fresh(state=str(place))
    assert process.code("call('cuInit', 0)") == 304
    assert process.code("call('nvmlInit_v2')") == 17
    assert str(place) in process.end()
    assert identity(place) == before


@pytest.mark.parametrize(("folder_mode", "mode"), [(0o2770, 0o660), (0o770, 0o600)])
def test_a_machine_is_shared_where_its_folder_is(
    fresh: Fresh, tmp_path: Path, folder_mode: int, mode: int
) -> None:
    """By a group whose folder it is, whatever the umask says; else it is one user's."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder").chmod(folder_mode)
    state = tmp_path / "folder" / "machine"
    fresh(state=str(state))("call('cuInit', 0)")
    assert stat.S_IMODE(state.stat().st_mode) == mode


def test_a_machine_of_another_version_is_made_anew(fresh: Fresh, state: Path) -> None:
    """By the next who comes, so that nobody has to clean up after an upgrade."""
    first = fresh(cards="3x1GiB")
    assert len(described(first)) == 3
    first.end()
    with state.open("r+b", buffering=0) as file:
        file.seek(8)  # behind the magic number
        file.write(b"\xff")
        assert len(described(fresh(cards="3x1GiB"))) == 3
        assert os.fstat(file.fileno()).st_nlink == 0


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        (None, [0, 1, 2, 3]),
        ("2", [2]),
        ("3,0", [3, 0]),
        (" 1 , 2", [1, 2]),
        ("0,7,1", [0]),
        ("1,x,2", [1]),
        ("0,1,0", []),
        ("", []),
        ("-1", []),
        ("none", []),
        ("{2}", [2]),
        ("{1},{0}", [1, 0]),
        ("{3:.9},0", [3, 0]),
        ("GPU-", []),
        ("GPU-ffffffff", []),
        ("0,{0}", []),
    ],
)
def test_programs_see_the_cards_they_were_told_to(
    fresh: Fresh, visible: str | None, cards: list[int]
) -> None:
    """By number or the beginning of an identity, in that order, up to the first wrong one.

    As NVIDIA describes CUDA_VISIBLE_DEVICES; NVML does not look at it.
    """
    program = fresh(cards="4x1GiB")
    uuids = program("[uuid(index) for index in range(4)]")
    if visible is not None:
        value = visible.format(*uuids)
        program(f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}")
    if cards:
        assert [card[1] for card in described(program)] == [digits(uuids[i]) for i in cards]
    else:
        assert program.code("call('cuInit', 0)") == NO_DEVICE
    assert program("made('nvmlDeviceGetCount_v2', kind=c_uint)") == 4


@pytest.mark.parametrize(
    ("present", "visible", "cards"),
    [
        ([0, 1, 2, 3], None, [0, 1, 2, 3]),
        ([2], None, [2]),
        ([1, 3], None, [1, 3]),
        ([1, 3], "1", [3]),
        ([1, 3], "2", []),
        ([1, 3], "{3}", [3]),
        ([1, 3], "{0}", []),
        ([], None, []),
    ],
)
def test_programs_see_the_cards_whose_device_nodes_are_there(
    fresh: Fresh, tmp_path: Path, present: list[int], visible: str | None, cards: list[int]
) -> None:
    """As in a container: both libraries count from 0 what is there; the rest does not exist."""
    everything = fresh(cards="4x1GiB")
    uuids = everything("[uuid(index) for index in range(4)]")
    nodes = tmp_path / "dev"
    nodes.mkdir()
    for minor in present:
        (nodes / f"nvidia{minor}").touch()
    program = fresh(cards="4x1GiB", nodes=str(nodes))
    if visible is not None:
        value = visible.format(*uuids)
        program(f"import os; os.environ['CUDA_VISIBLE_DEVICES'] = {value!r}")
    if cards:
        assert [card[1] for card in described(program)] == [digits(uuids[i]) for i in cards]
    else:
        assert program.code("call('cuInit', 0)") == NO_DEVICE
    program("call('nvmlInit_v2')")
    seen = range(len(present))
    assert program("made('nvmlDeviceGetCount_v2', kind=c_uint)") == len(present)
    assert [program(f"uuid({index})") for index in seen] == [uuids[minor] for minor in present]
    assert [program(f"number('nvmlDeviceGetIndex', {index})") for index in seen] == [*seen]
    assert [program(f"number('nvmlDeviceGetMinorNumber', {index})") for index in seen] == present


def test_a_card_without_device_node_is_not_found_by_name(fresh: Fresh, tmp_path: Path) -> None:
    """Neither by its UUID nor by its place on the bus."""
    everything = fresh(cards="2x1GiB")
    uuids = everything("[uuid(index) for index in range(2)]")
    (tmp_path / "nvidia1").touch()
    program = fresh(cards="2x1GiB", nodes=str(tmp_path))
    program("call('nvmlInit_v2')")
    codes = {}
    for minor, name in enumerate(uuids):
        by_uuid = f"call('nvmlDeviceGetHandleByUUID', {name.encode()!r}, byref(c_uint64()))"
        bus = f"0000:{0x10 + minor:02X}:00.0".encode()
        by_bus = f"call('nvmlDeviceGetHandleByPciBusId_v2', {bus!r}, byref(c_uint64()))"
        codes[minor] = program.code(by_uuid), program.code(by_bus)
    assert codes == {0: (NOT_FOUND, NOT_FOUND), 1: (0, 0)}
