"""Inside a tenant the machine has the tenant's cards and no others, in CUDA and in NVML alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, INVALID_DEVICE, MIB, NO_DEVICE

INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND = 2, 4, 6  # of NVML
DEVICES = """
def devices():
    text, uuids = (ctypes.c_ubyte * 16)(), []
    for device in range(visible_devices()):
        call("cuDeviceGetUuid_v2", text, device)
        plain = bytes(text).hex()
        cuts = (0, 8, 12, 16, 20, 32)
        uuids.append("GPU-" + "-".join(plain[a:b] for a, b in zip(cuts, cuts[1:])))
    return uuids
"""
NVML_CARDS = """
def nvml_cards():
    call("nvmlInit_v2")
    count = made("nvmlDeviceGetCount_v2", kind=c_uint)
    return [uuid(index) for index in range(count)]
"""


@pytest.fixture
def four(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine with four cards."""
    with fenced.machine(tmp_path / "four", "4x16GiB") as made:
        yield made


def started(tenant: fenced.Tenant, **changes: str) -> fenced.Process:
    """A program of the tenant that has begun with CUDA."""
    process = tenant.start(**changes)
    process(DEVICES)
    process(NVML_CARDS)
    process("begun = answer('cuInit', 0)")
    return process


@pytest.mark.parametrize("cards", [(0,), (2,), (3, 1), (0, 1, 2, 3)])
def test_both_lists_have_the_cards_of_the_share(
    four: fenced.Machine, cards: tuple[int, ...]
) -> None:
    """In the order of the share, with the same numbers in both, whatever the machine's are."""
    process = started(four.tenant(cards=cards))
    expected = [four.uuids[card] for card in cards]
    assert process("devices()") == process("nvml_cards()") == expected
    for index in range(len(cards)):
        process(f"number = c_uint(); call('nvmlDeviceGetIndex', card({index}), byref(number))")
        assert process("number.value") == index
        assert process(f"total_memory({index})") == GIB
        assert process(f"card_memory({index})")["total"] == GIB


@pytest.mark.parametrize(
    ("visible", "seen"),
    [
        ("1", [3]),
        ("1,0", [3, 2]),
        ("0, 1", [2, 3]),
        ("0,7,1", [2]),
        ("{3}", [3]),
        ("{2},{3}", [2, 3]),
        ("{2},{0},{3}", [2]),
    ],
)
def test_the_variable_counts_the_cards_of_the_share(
    four: fenced.Machine, visible: str, seen: list[int]
) -> None:
    """As on a machine that has no others; up to the first that is not there, as drivers read it."""
    process = started(four.tenant(cards=(2, 3)), CUDA_VISIBLE_DEVICES=visible.format(*four.uuids))
    assert process("devices()") == [four.uuids[card] for card in seen]
    process("context()")
    assert [bool(four.truth(card)) for card in range(4)] == [card == seen[0] for card in range(4)]


@pytest.mark.parametrize("visible", ["1", "{1}", "MIG-17", "-1", "", "none"])
def test_without_a_card_of_the_share_there_is_no_device(four: fenced.Machine, visible: str) -> None:
    """Not one that answers that it has no memory; and who named another card is told so, once."""
    tenant = four.tenant(cards=(0,))
    process = started(tenant, CUDA_VISIBLE_DEVICES=visible.format(*four.uuids))
    assert process("begun") == NO_DEVICE
    again = started(tenant, CUDA_VISIBLE_DEVICES=visible.format(*four.uuids))
    words = process.end()
    names_a_card = visible in ("1", "{1}", "MIG-17")
    assert words.count("\n") == names_a_card
    assert ("names a card that this program has no share of" in words) == names_a_card
    assert again.end() == ""


def test_what_the_program_told_the_driver_is_still_in_its_environment(
    four: fenced.Machine,
) -> None:
    """Also where it told nothing: children, and others who read it, find what was there."""
    tenant = four.tenant(cards=(2, 3))
    for before in ({"CUDA_VISIBLE_DEVICES": "1"}, {}):
        process = started(tenant, **before)
        assert process("begun") == 0
        process("libc = ctypes.CDLL(None); libc.getenv.restype = ctypes.c_char_p")
        value = process("(libc.getenv(b'CUDA_VISIBLE_DEVICES') or b'nothing').decode()")
        assert value == before.get("CUDA_VISIBLE_DEVICES", "nothing")


def test_nvml_finds_other_cards_by_no_name(four: fenced.Machine) -> None:
    """Not by uuid, not by bus, not by a number beyond the share."""
    process = started(four.tenant(cards=(1,)))
    process("call('nvmlInit_v2'); handle, busid = c_uint64(), ctypes.create_string_buffer(64)")
    find = "answer('nvmlDeviceGetHandleBy{}', {}, byref(handle))"
    for card, expected in ((0, NOT_FOUND), (1, 0), (2, NOT_FOUND)):
        name = f"{four.uuids[card]!r}.encode()"
        bus = four.observer(
            "[busid := ctypes.create_string_buffer(64), "
            f"call('cuDeviceGetPCIBusId', busid, 64, {card}), busid.value.decode()][-1]"
        )
        assert process(find.format("UUID", name)) == expected
        assert process(find.format("PciBusId_v2", f"{bus!r}.encode()")) == expected
    assert process(find.format("Index_v2", 1)) == INVALID_ARGUMENT
    assert process(find.format("Index_v2", 0)) == 0


def test_a_handle_of_another_card_shows_nothing_of_it(four: fenced.Machine) -> None:
    """NVML gives some out by ways of its own, such as lists of what is near."""
    process = started(four.tenant(cards=(0,)))
    process("near, count = (c_uint64 * 8)(), c_uint()")
    for level in (10, 20, 30, 40, 50):
        process("count.value = 8")
        process(f"call('nvmlDeviceGetTopologyNearestGpus', card(0), {level}, byref(count), near)")
    assert process("near[0]")
    process("memory = Memory(total=7, free=7, used=7)")
    question = "answer('nvmlDeviceGetMemoryInfo', near[0], byref(memory))"
    assert process(question) == NO_PERMISSION
    assert process("[memory.total, memory.free, memory.used]") == [0, 0, 0]
    question = "answer('nvmlDeviceGetComputeRunningProcesses_v3', near[0], byref(count), None)"
    assert process(question) == NO_PERMISSION


def test_a_driver_that_was_begun_without_the_fence_shows_cards_without_memory(
    four: fenced.Machine,
) -> None:
    """Its numbers stay; but no context is made there, and the error says that it is no device."""
    process = four.tenant(cards=(0,)).start()
    address = "ctypes.cast(library('libcuda.so.1').{}, ctypes.c_void_p).value"
    places = [four.observer(address.format(name)) for name in ("cuInit", "cuDriverGetVersion")]
    process(f"begin = {address.format('cuDriverGetVersion')} + {places[0] - places[1]}")
    process("assert ctypes.CFUNCTYPE(c_int, c_uint)(begin)(0) == 0")
    assert process("visible_devices()") == 4
    assert [process(f"total_memory({device})") for device in range(4)] == [GIB, 0, 0, 0]
    assert process.code("made('cuDevicePrimaryCtxRetain', 1)") == INVALID_DEVICE
    assert process.code("made('cuCtxCreate_v2', 0, 2)") == INVALID_DEVICE
    process("context(0); alloc(MIB)")
    assert four.truth(0) == {process.pid: CONTEXT_BYTES + MIB}
