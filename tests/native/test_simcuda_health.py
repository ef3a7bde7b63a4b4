"""Cards of a simulated machine become unhealthy and recover while programs run on them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB

UNAVAILABLE = 46  # of CUDA
NOT_SUPPORTED, NOT_LOADED, TIMED_OUT, LOST = 3, 9, 10, 15  # of NVML
RECOVERY = 230  # the field that says what it takes to recover a card
DOUBLE_BIT, XID = 2, 8  # kinds of events
WRONG_USAGE, NO_CARD, NO_MACHINE = 2, 6, 9  # exit codes of simsmi


def simsmi(machine: fenced.Machine, *words: object) -> subprocess.CompletedProcess[str]:
    """Run it on the machine."""
    return machine.run(fenced.LIBRARIES / "simsmi", *map(str, words))


def do(machine: fenced.Machine, *words: object) -> None:
    """Have it do something, without a word."""
    done = simsmi(machine, *words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def onlooker(machine: fenced.Machine) -> fenced.Process:
    """A program that watches by NVML."""
    process = machine.start()
    process("from nvml_onlooker import *")
    return process


def test_an_xid_is_told_to_one_who_waits_in_another_process(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """With the card and the number; each of them once, in their order."""
    onlooker(f"events = listen(0, {XID})")
    onlooker.tell("next_event(events, 60_000)")
    do(machine, "xid", 0, 48)
    do(machine, "xid", machine.uuids[0], 63)
    assert onlooker.heard() == [True, XID, 48]
    assert onlooker("next_event(events, 60_000)") == [True, XID, 63]
    assert onlooker.code("next_event(events, 0)") == TIMED_OUT


def test_only_what_was_asked_for_is_told(machine: fenced.Machine, onlooker: fenced.Process) -> None:
    """Not of another card, of another kind, or from before; and each set has its own place."""
    do(machine, "xid", 0, 1)
    onlooker(f"xids, errors_ = listen(0, {XID}), listen(1, {DOUBLE_BIT})")
    do(machine, "xid", 1, 2)
    do(machine, "ecc", 0, 3)
    assert onlooker.code("next_event(xids, 20)") == TIMED_OUT
    assert onlooker.code("next_event(errors_, 20)") == TIMED_OUT
    do(machine, "ecc", 1, 4)
    do(machine, "xid", 0, 5)
    assert onlooker("next_event(errors_, 60_000)") == [False, DOUBLE_BIT, 0]
    assert onlooker("next_event(xids, 60_000)") == [True, XID, 5]


def test_errors_of_memory_are_counted_until_the_card_is_healed(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """Each card's own."""
    do(machine, "ecc", 0, 3)
    do(machine, "ecc", 0, 4)
    assert onlooker("[errors(0), errors(1)]") == [7, 0]
    do(machine, "heal", 0)
    assert onlooker("[errors(0), errors(1)]") == [0, 0]


def test_a_lost_card_answers_nobody_and_comes_back_as_it_was(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """A program on it fails in every call, and goes on with its memory once it is healed."""
    program = machine.start()
    program("context(); pointer = alloc(MIB); call('cuMemsetD32_v2', pointer, 77, 1)")
    onlooker(f"events = listen(0, {XID})")
    do(machine, "lose", 0)

    assert onlooker("next_event(events, 60_000)") == [True, XID, 79]
    assert program.code("alloc(MIB)") == UNAVAILABLE
    assert program.code("call('cuCtxSynchronize')") == UNAVAILABLE
    assert machine.start().code("context(0)") == UNAVAILABLE
    assert onlooker.code("card_memory(0)") == LOST
    assert machine.start().code("card(0)") == LOST
    assert onlooker("made('nvmlDeviceGetCount_v2', kind=c_uint)") == 2
    assert onlooker("card_memory(1)")["total"] == 16 * GIB
    assert "lost" in simsmi(machine).stdout

    do(machine, "heal", machine.uuids[0])
    assert program("call('cuMemcpyDtoH_v2', byref(x := c_uint()), pointer, 4) or x.value") == 77
    assert machine.truth() == {program.pid: CONTEXT_BYTES + MIB}


def test_one_who_waits_for_a_card_that_is_lost_is_told(machine: fenced.Machine) -> None:
    """And does not wait for the end of its work, which will never come."""
    program = machine.start()
    program("context(); from timed_kernels import *; launch(120_000_000)")
    program.tell("answer('cuCtxSynchronize')")
    time.sleep(0.1)
    do(machine, "lose", 0)
    began = time.monotonic()
    assert program.heard() == UNAVAILABLE
    assert time.monotonic() - began < 30


def test_a_program_on_another_card_notices_nothing(machine: fenced.Machine) -> None:
    """Losing a card is that card's misfortune alone."""
    program = machine.start()
    program("context(1); pointer = alloc(MIB)")
    do(machine, "lose", 0)
    program("free(pointer); call('cuCtxSynchronize')")
    assert program("visible_devices()") == 2


def test_a_reset_heals_all_cards(machine: fenced.Machine, onlooker: fenced.Process) -> None:
    """Whatever they have."""
    do(machine, "lose", 0)
    do(machine, "ecc", 1, 9)
    do(machine, "reset")
    assert onlooker("[card_memory(0)['total'], errors(1)]") == [16 * GIB, 0]


def test_the_driver_tells_what_it_takes_to_recover_a_card(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """A reset, after an Xid that is no application's or an error of memory, until it is healed."""
    onlooker("call('nvmlInit_v2')")
    do(machine, "xid", 0, 31)
    do(machine, "soft", 0, 5)
    assert onlooker(f"field({RECOVERY}, 0)") == [0, 0]
    for words in (["xid", 0, 48], ["ecc", 0, 1]):
        do(machine, *words)
        assert onlooker(f"[field({RECOVERY}, 0), field({RECOVERY}, 1)]") == [[0, 1], [0, 0]]
        do(machine, "heal", 0)
        assert onlooker(f"field({RECOVERY}, 0)") == [0, 0]
    assert onlooker(f"field({RECOVERY + 1}, 0)")[0] == NOT_SUPPORTED


def test_an_older_driver_does_not_tell_it(tmp_path: Path) -> None:
    """And answers that it does not."""
    with fenced.machine(tmp_path, driver="550.54") as machine:
        onlooker = machine.start()
        onlooker("from nvml_onlooker import *; call('nvmlInit_v2')")
        assert onlooker(f"field({RECOVERY}, 0)")[0] == NOT_SUPPORTED


def test_a_card_that_needs_a_reset_takes_no_new_program(machine: fenced.Machine) -> None:
    """Those that are there go on."""
    program = machine.start()
    program("context(0)")
    do(machine, "xid", 0, 119)
    program("alloc(MIB)")
    assert machine.start().code("context(0)") == UNAVAILABLE
    machine.start()("context(1)")
    do(machine, "heal", 0)
    machine.start()("context(0)")


def test_an_alarm_is_an_event_without_a_card(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """For all who wait for its kind on any card."""
    onlooker(f"xids, others = listen(0, {XID}), listen(1, {DOUBLE_BIT})")
    do(machine, "alarm", 77)
    assert onlooker("next_event(xids, 60_000)") == [False, XID, 77]
    assert onlooker.code("next_event(others, 20)") == TIMED_OUT


def test_rows_of_memory_wait_to_be_remapped_or_fail_to_be(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """As the card tells until it is healed."""
    rows = (
        "call('nvmlDeviceGetRemappedRows', card(0), *map(byref, r := [c_uint() for _ in '1234']))"
        " or [count.value for count in r]"
    )
    onlooker("call('nvmlInit_v2')")
    do(machine, "remap", 0, 0)
    assert onlooker(rows) == [0, 0, 1, 0]
    do(machine, "remap", 0, 1)
    assert onlooker(rows) == [0, 0, 1, 1]
    do(machine, "heal", 0)
    assert onlooker(rows) == [0, 0, 0, 0]


def test_nvml_finds_no_driver_while_it_is_unloaded(
    machine: fenced.Machine, onlooker: fenced.Process
) -> None:
    """Neither one who has begun, nor one who waits, nor one who begins."""
    onlooker(f"events = listen(0, {XID})")
    onlooker.tell("next_event(events, 60_000)")
    do(machine, "unload")
    assert onlooker.outcome() == NOT_LOADED
    assert onlooker.code("card_memory(0)") == NOT_LOADED
    assert machine.start().code("call('nvmlInit_v2')") == NOT_LOADED
    do(machine, "load")
    assert onlooker("card_memory(0)")["total"] == 16 * GIB


def test_simsmi_says_that_all_is_simulated(machine: fenced.Machine) -> None:
    """In its list, and in its table with the memory and the processes of each card."""
    program = machine.start()
    program("context(); alloc(744 * MIB)")
    listed, shown = simsmi(machine, "-L").stdout, simsmi(machine).stdout
    assert listed.splitlines() == [
        f"GPU {index}: Simulated GPU (UUID: {uuid})" for index, uuid in enumerate(machine.uuids)
    ]
    assert "everything here is simulated" in shown
    assert "1000MiB /   16384MiB" in shown
    assert str(program.pid) in shown


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["lose"], WRONG_USAGE),
        (["lose", "0", "1"], WRONG_USAGE),
        (["xid", "0"], WRONG_USAGE),
        (["xid", "0", "seven"], WRONG_USAGE),
        (["ecc", "0", ""], WRONG_USAGE),
        (["explode", "0"], WRONG_USAGE),
        (["alarm"], WRONG_USAGE),
        (["alarm", "loud"], WRONG_USAGE),
        (["unload", "0"], WRONG_USAGE),
        (["-L", "0"], WRONG_USAGE),
        (["lose", "2"], NO_CARD),
        (["lose", "-1"], NO_CARD),
        (["lose", ""], NO_CARD),
        (["heal", "GPU-00000000-0000-0000-0000-000000000000"], NO_CARD),
    ],
)
def test_simsmi_says_what_it_does_not_understand(
    machine: fenced.Machine, words: list[str], code: int
) -> None:
    """With a code that scripts can tell apart, and does nothing."""
    done = simsmi(machine, *words)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("simsmi")
    assert machine.observer("card_memory()")["total"] == 16 * GIB


def test_simsmi_without_a_machine_says_so(machine: fenced.Machine) -> None:
    """And helps without one."""
    nowhere = {"SIMCUDA_STATE": "/nowhere/at/all"}
    done = machine.run(fenced.LIBRARIES / "simsmi", environment=nowhere)
    assert (done.returncode, done.stdout) == (NO_MACHINE, "")
    assert "/nowhere/at/all" in done.stderr
    helped = machine.run(fenced.LIBRARIES / "simsmi", "--help", environment=nowhere)
    assert (helped.returncode, helped.stderr) == (0, "")
    assert "simsmi lose CARD" in helped.stdout
