"""Limits of memory for cgroups, by NVML, as drivers since 615 have them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, OUT_OF_MEMORY

INVALID, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 2, 3, 4, 6
OPERATING_SYSTEM, INSUFFICIENT_RESOURCES = 17, 23
NO_LIMIT = 2**64 - 1

pytestmark = leaving_out.needs_root  # only root may set limits


@pytest.fixture
def admin(machine: fenced.Machine) -> fenced.Process:
    """A program that sets limits."""
    process = machine.start()
    process("from nvml_onlooker import *")
    return process


@pytest.fixture
def cgroup(tmp_path: Path) -> str:
    """A folder: to set and read limits, it need not be a real cgroup."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return str(folder)


def test_a_limit_is_read_back_until_it_is_lifted(admin: fenced.Process, cgroup: str) -> None:
    """On its card alone, by every process; set again it is another one."""
    assert admin.code(f"limits(0, {cgroup!r})") == NOT_FOUND
    for soft, hard in ((0, GIB), (MIB, 2 * GIB), (16 * GIB, 16 * GIB), (MIB, NO_LIMIT)):
        admin(f"set_limits(0, {cgroup!r}, {soft}, {hard})")
        assert admin(f"limits(0, {cgroup!r})") == [soft, hard, 0]
        assert admin.code(f"limits(1, {cgroup!r})") == NOT_FOUND
    admin(f"set_limits(0, {cgroup!r}, 0, {NO_LIMIT})")
    assert admin.code(f"limits(0, {cgroup!r})") == NOT_FOUND
    admin(f"set_limits(0, {cgroup!r}, 0, {NO_LIMIT})")


def test_limits_that_cannot_be_are_refused(admin: fenced.Process, cgroup: str) -> None:
    """More than the card has, a soft one above the hard one, or no cgroup at all."""
    assert admin.code(f"set_limits(0, {cgroup!r}, 0, {16 * GIB + 1})") == INVALID
    assert admin.code(f"set_limits(0, {cgroup!r}, 2, 1)") == INVALID
    assert admin.code(f"set_limits(0, {cgroup!r}, {16 * GIB + 1}, {NO_LIMIT})") == INVALID
    assert admin.code("call('nvmlDeviceSetMemoryLimits_v1', card(0), byref(Limits()))") == INVALID
    assert admin.code("call('nvmlDeviceSetMemoryLimits_v1', card(0), None)") == INVALID
    assert admin.code("set_limits(0, '/nowhere', 0, 1)") == OPERATING_SYSTEM
    assert admin.code("limits(0, '/nowhere')") == OPERATING_SYSTEM
    assert admin.code("set_limits(0, '/etc/passwd', 0, 1)") == OPERATING_SYSTEM
    assert admin.code(f"limits(0, {cgroup!r})") == NOT_FOUND


def test_only_root_sets_limits_and_all_may_read_them(admin: fenced.Process) -> None:
    """A tenant that could lift its own would have none."""
    admin(f"set_limits(0, '/tmp', 0, {GIB})")
    admin("import os; os.seteuid(65534)")
    assert admin.code(f"set_limits(0, '/tmp', 0, {NO_LIMIT})") == NO_PERMISSION
    assert admin("limits(0, '/tmp')") == [0, GIB, 0]


@pytest.mark.parametrize("settings", [{"driver": "610.43"}, {"memory_limits": "0"}], ids=str)
def test_a_driver_without_limits_says_so(
    tmp_path: Path, cgroup: str, settings: dict[str, str]
) -> None:
    """One before 615, or one that was told to be without."""
    with fenced.machine(tmp_path, "1GiB", **settings) as machine:
        machine.observer("from nvml_onlooker import *")
        assert machine.observer.code(f"set_limits(0, {cgroup!r}, 0, 1)") == NOT_SUPPORTED
        assert machine.observer.code(f"limits(0, {cgroup!r})") == NOT_SUPPORTED


def test_a_card_has_room_for_64_limits(admin: fenced.Process, tmp_path: Path) -> None:
    """One more is refused, until one of them is lifted."""
    admin(f"import os; folders = [{str(tmp_path)!r} + f'/{{i}}' for i in range(65)]")
    admin("[os.mkdir(folder) for folder in folders]")
    admin("[set_limits(0, folder, 0, GIB) for folder in folders[:64]]")
    assert admin.code("set_limits(0, folders[64], 0, GIB)") == INSUFFICIENT_RESOURCES
    admin("set_limits(0, folders[7], 0, NO_LIMIT)")
    admin("set_limits(0, folders[64], 0, GIB)")
    assert admin.code("limits(0, folders[7])") == NOT_FOUND


# A shell that sees the cgroups of version 2 where they usually are, and goes on in one of them.
IN_A_CGROUP = """
mount -t cgroup2 none /sys/fs/cgroup && mkdir -p /sys/fs/cgroup/$0 &&
echo $$ > /sys/fs/cgroup/$0/cgroup.procs && exec "$@"
"""
REMOVE = """
mount -t cgroup2 none /sys/fs/cgroup && cd /sys/fs/cgroup && rmdir $0/inner $0
"""
UNSHARED = ["unshare", "--mount", "sh", "-c"]


class Group:
    """A real cgroup with another one in it, and programs in either."""

    def __init__(self, machine: fenced.Machine) -> None:
        self.machine = machine
        self.name = f"partage-test-{os.getpid()}"
        self.path = f"/sys/fs/cgroup/{self.name}"

    def start(self, name: str) -> fenced.Process:
        """A program in a cgroup, which is made if need be."""
        client = [sys.executable, "-I", "-S", str(fenced.HERE / "client.py")]
        process = self.machine.run_in_background([*UNSHARED, IN_A_CGROUP, name, *client])
        process("from nvml_onlooker import *")
        return process

    def remove(self) -> None:
        """Without a trace; its programs have ended."""
        subprocess.run([*UNSHARED, REMOVE, self.name], check=True, timeout=60)


@pytest.fixture
def group(machine: fenced.Machine) -> Iterator[Group]:
    """A cgroup of this test's own."""
    try:
        probe = [*UNSHARED, "mount -t cgroup2 none /sys/fs/cgroup"]
        subprocess.run(probe, check=True, timeout=60, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        leaving_out.leave_out("cgroups of version 2", error)
    group = Group(machine)
    group.start(f"{group.name}/inner").end()
    with contextlib.ExitStack() as at_the_end:
        at_the_end.callback(group.remove)
        at_the_end.callback(machine.close)
        yield group


def test_programs_of_a_cgroup_get_no_more_than_its_limit_together(group: Group) -> None:
    """Those in cgroups inside of it too, contexts included; others get the rest of the card."""
    one, other = group.start(group.name), group.start(f"{group.name}/inner")
    outsider = group.start("")
    outsider(f"set_limits(0, {group.path!r}, 0, GIB)")
    for process in (one, other, outsider):
        process("context()")
    one("pointer = alloc(256 * MIB)")
    assert other.code("alloc(256 * MIB + 1)") == OUT_OF_MEMORY
    other("alloc(256 * MIB)")
    assert one.code("alloc(1)") == OUT_OF_MEMORY
    assert outsider(f"limits(0, {group.path!r})") == [0, GIB, GIB]
    assert outsider.code("alloc(14 * GIB)") == 0

    one("free(pointer)")
    assert outsider(f"limits(0, {group.path!r})")[2] == 2 * CONTEXT_BYTES + 256 * MIB
    other.kill()
    assert outsider(f"limits(0, {group.path!r})")[2] == CONTEXT_BYTES
    assert one.code("alloc(768 * MIB)") == 0
    one("context(1)")
    assert one.code("alloc(2 * GIB)") == 0  # the other card has no limit


def test_a_limit_can_be_changed_while_programs_run(group: Group) -> None:
    """Below what is used, nothing is taken away and nothing more is given."""
    program, admin = group.start(group.name), group.start("")
    program("context(); pointer = alloc(GIB)")
    admin(f"set_limits(0, {group.path!r}, 0, MIB)")
    assert program.code("alloc(1)") == OUT_OF_MEMORY
    assert program.code("call('cuMemsetD8_v2', pointer, 1, MIB)") == 0
    admin(f"set_limits(0, {group.path!r}, 0, {2 * GIB})")
    assert program.code("alloc(GIB - 256 * MIB)") == 0
    assert program.code("alloc(1)") == OUT_OF_MEMORY
    admin(f"set_limits(0, {group.path!r}, 0, {NO_LIMIT})")
    assert program.code("alloc(8 * GIB)") == 0
