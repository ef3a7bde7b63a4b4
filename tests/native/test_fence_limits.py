"""Whose limits hold, what happens where they cannot be read, and how they change."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from partage.fence.store import limits
from tests import leaving_out
from tests.native import fenced
from tests.native.fenced import CONTEXT_BYTES, GIB, MIB, NOT_PERMITTED, OUT_OF_MEMORY

VERSION_AT, MAGIC_AT, SIZE_AT, CARDS_AT = 8, 0, 12, 16  # in every file's header


def patched(name: str, at: int, value: bytes) -> Callable[[Path], object]:
    """Write bytes into a file of the tenant."""

    def patch(folder: Path) -> None:
        with (folder / name).open("r+b") as file:
            file.seek(at)
            file.write(value)

    return patch


def owned_by_another(folder: Path) -> None:
    """Give the limits to somebody else."""
    if os.geteuid():
        leaving_out.leave_out("root", "to give a file to another user")
    os.chown(folder / "limits", 12345, -1)


def renamed(name: str) -> Callable[[Path], object]:
    """Take a file away."""
    return lambda folder: (folder / name).rename(folder / f"no-{name}")


def cut(name: str, size: int) -> Callable[[Path], object]:
    """Make a file shorter, or longer."""
    return lambda folder: os.truncate(folder / name, size)


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "limits missing": (renamed("limits"), "/limits cannot be read"),
    "limits writable for all": (lambda folder: (folder / "limits").chmod(0o666), "somebody else"),
    "limits writable for a group": (
        lambda folder: (folder / "limits").chmod(0o664),
        "somebody else",
    ),
    "limits of another user": (owned_by_another, "somebody else"),
    "limits of another version": (patched("limits", VERSION_AT, b"\x63"), "of another version"),
    "limits of another kind": (patched("limits", MAGIC_AT, b"X"), "not the file that its name"),
    "limits of too many cards": (patched("limits", CARDS_AT, b"\x11"), "more cards"),
    "limits cut short": (cut("limits", 100), "of another version"),
    "limits empty": (cut("limits", 0), "is not a file of the fence"),
    "region missing": (renamed("region"), "/region cannot be opened"),
    "region of another version": (patched("region", VERSION_AT, b"\x63"), "of another version"),
    "region of another size": (patched("region", SIZE_AT, b"\x01"), "of another version"),
    "region of another kind": (patched("region", MAGIC_AT, b"X"), "not the file that its name"),
    "region cut short": (cut("region", 4096), "of another version"),
    "region empty": (cut("region", 0), "is not a file of the fence"),
}


def assert_closed(process: fenced.Process, reason: str) -> None:
    """Nothing is given, people are told why, and the program goes on undisturbed."""
    process("call('cuInit', 0)")
    assert process.code("context()") == NOT_PERMITTED
    for line in (
        "alloc(MIB)",
        "made('cuCtxCreate_v2', 0, 0)",
        "stream_pointer(MIB)",
        "physical(2 * MIB)",
        "pool()",
        "made('cuArrayCreate_v2', 0)",
        "made('cuModuleLoadData', PTX)",
        "total_memory()",
        "memory_info()",
        "call('cuLaunchKernel', 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)",
    ):
        assert process.code(line) == NOT_PERMITTED, line
    message = process(f"error_text({NOT_PERMITTED})")
    assert message.startswith("Partage: ")
    assert reason in message
    assert process("error_text(2)") == "out of memory"
    words = process.end()
    assert words.startswith(message)
    assert words.count("\n") == 1


@pytest.mark.parametrize("name", BREAKS)
def test_where_the_limits_cannot_be_kept_nothing_is_given(
    machine: fenced.Machine, tenant: fenced.Tenant, name: str
) -> None:
    """With an error that is none of memory, a reason for people, and one line on stderr."""
    break_it, reason = BREAKS[name]
    break_it(tenant.folder)
    assert_closed(tenant.start(), reason)
    assert machine.truth() == {}


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "PARTAGE_LIMITS is not set"),
        ("", "is no absolute path"),
        ("limits", "is no absolute path"),
        ("./limits", "is no absolute path"),
        ("/nowhere/limits", "/nowhere/limits cannot be read"),
        ("/" + "x" * 5000, "PARTAGE_LIMITS is not set"),
        ("/proc/self/mem", "is not a file of the fence"),
        ("/", "is not a file of the fence"),
    ],
)
def test_a_variable_that_names_no_limits_gives_nothing(
    machine: fenced.Machine, tenant: fenced.Tenant, path: str | None, reason: str
) -> None:
    """Least of all a process in which it was unset."""
    chosen = {} if path is None else {"PARTAGE_LIMITS": path}
    assert_closed(machine.start({"LD_PRELOAD": str(fenced.FENCE)} | chosen), reason)


@pytest.mark.parametrize("name", [name for name in BREAKS if name.startswith("region")])
def test_a_tenant_that_may_run_unfenced_does(machine: fenced.Machine, name: str) -> None:
    """Where the limits say so, and it is the region that cannot be used."""
    tenant = machine.tenant(on_failure=limits.OnFailure.OPEN)
    BREAKS[name][0](tenant.folder)
    process = tenant.started()
    process("pointer = alloc(4 * GIB); other = stream_pointer(GIB); take_all()")
    assert process("total_memory()") == 16 * GIB
    process("free(pointer); free(other); call('cuCtxSynchronize')")
    assert machine.truth() == {process.pid: CONTEXT_BYTES}
    assert process.end() == ""


def test_a_region_that_vanishes_while_a_process_runs_changes_nothing_for_it(
    machine: fenced.Machine, tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """It has it mapped; a new one gets nothing."""
    process("kept = alloc(500 * MIB)")
    (tenant.folder / "region").rename(tenant.folder / "gone")
    assert process.code("alloc(500 * MIB)") == OUT_OF_MEMORY
    assert process.code("free(kept)") == 0
    assert process.code("alloc(500 * MIB)") == 0
    assert_closed(tenant.start(), "/region cannot be opened")


def test_another_region_in_its_place_is_not_taken_for_it(
    tenant: fenced.Tenant, process: fenced.Process
) -> None:
    """A process with a slot in the old one goes on; one that needs a new slot does not."""
    late, region = tenant.start(), tenant.folder / "region"
    late("card_memory()")
    blank = region.read_bytes()
    region.rename(tenant.folder / "old")
    region.write_bytes(blank)
    assert process.code("free(alloc(500 * MIB))") == 0
    assert_closed(late, "cannot be opened any more")


# ---- the fixed path ------------------------------------------------------------------------------


MOUNTS = {
    "bound": 'mount --bind "$0" .',
    "read-only": 'mount --bind "$0" . && mount -o remount,bind,ro .',
    "an overlay": 'mount -t overlay none -o lowerdir="$0",upperdir=/etc/upper,workdir=/etc/work .',
}


def at_the_fixed_path(
    tenant: fenced.Tenant, how: str = "bound", launcher: Sequence[str] = (), **changes: str
) -> fenced.Process:
    """A program in a mount namespace where the tenant's folder is /etc/partage/fence."""
    if os.geteuid():
        leaving_out.leave_out("root", "to mount something at /etc")
    folders = "mkdir -p /etc/partage/fence /etc/upper /etc/work && cd /etc/partage/fence"
    script = f'mount -t tmpfs none /etc && {folders} && {MOUNTS[how]} && cd / && exec "$@"'
    inside = ["unshare", "-m", "sh", "-c", script, str(tenant.folder)]
    tried = subprocess.run([*inside, "true"], check=False, capture_output=True)
    if tried.returncode:
        leaving_out.leave_out(f"a mount that is {how}", tried.stderr.decode().strip())
    client = [sys.executable, "-I", "-S", str(fenced.HERE / "client.py")]
    environment = {"LD_PRELOAD": str(fenced.FENCE), **changes}
    return tenant.machine.run_in_background([*inside, *launcher, *client], environment)


def test_the_fixed_path_comes_before_the_variable(machine: fenced.Machine) -> None:
    """A tenant whose mounts provide limits cannot choose others, nor unset them."""
    small, large = machine.tenant("small"), machine.tenant("large", memory_bytes=8 * GIB)
    for chosen in ({}, {"PARTAGE_LIMITS": str(large.folder / "limits")}, {"PARTAGE_LIMITS": "/no"}):
        process = at_the_fixed_path(small, **chosen)
        process("context()")
        assert process("total_memory()") == GIB
        assert process.code("alloc(GIB)") == OUT_OF_MEMORY
        assert list(small.counted()) == [process.pid]
        assert process.end() == ""
    assert large.counted() == {}


def test_the_fixed_path_is_found_where_questions_are_not_answered(
    machine: fenced.Machine, tmp_path: Path
) -> None:
    """A tenant that has its own system calls refused (seccomp) cannot choose limits by that."""
    small, large = machine.tenant("small"), machine.tenant("large", memory_bytes=8 * GIB)
    launcher = fenced.unanswered(tmp_path, fenced.ACCESS_CALLS)
    named = str(large.folder / "limits")
    process = at_the_fixed_path(small, launcher=launcher, PARTAGE_LIMITS=named)
    process("context()")
    assert process.code("alloc(GIB)") == OUT_OF_MEMORY
    assert list(small.counted()) == [process.pid]


def test_limits_at_the_fixed_path_are_roots(machine: fenced.Machine) -> None:
    """Those of the user who runs the program are believed only where a variable names them."""
    tenant = machine.tenant()
    process = at_the_fixed_path(tenant)
    os.chown(tenant.folder / "limits", 12345, -1)
    assert_closed(process, "somebody else than root")


def test_a_region_that_cannot_be_written_gives_nothing(machine: fenced.Machine) -> None:
    """What is counted nowhere is not given."""
    tenant = machine.tenant()
    assert_closed(at_the_fixed_path(tenant, "read-only"), "/region cannot be opened for writing")


@pytest.mark.parametrize("how", ["bound", "an overlay"])
def test_the_dead_are_told_from_the_living_wherever_the_region_lies(
    machine: fenced.Machine, how: str
) -> None:
    """An overlay does not keep locks as other file systems do."""
    process = at_the_fixed_path(machine.tenant(), how)
    process("card_memory()")  # the fence is there, and CUDA is not
    process("child = child_that_stays('[context(), alloc(300 * MIB)]')")
    process("context(); kept = child_that_stays()")
    assert process.code("alloc(300 * MIB)") == OUT_OF_MEMORY
    process("os.kill(child, signal.SIGKILL); os.waitpid(child, 0)")
    assert process.code("alloc(300 * MIB)") == 0
    process("os.kill(kept, signal.SIGKILL)")


# ---- changes and cards ---------------------------------------------------------------------------


def test_limits_change_while_a_process_runs(tenant: fenced.Tenant, process: fenced.Process) -> None:
    """Raised, it gets more; lowered below what it has, it keeps that and gets nothing more."""
    process("first = alloc(700 * MIB)")
    assert process.code("alloc(700 * MIB)") == OUT_OF_MEMORY
    tenant.change(memory_bytes=2 * GIB)
    process("second = alloc(700 * MIB)")
    tenant.change(memory_bytes=GIB)
    assert process("memory_info()") == [0, GIB]
    assert process.code("alloc(1)") == OUT_OF_MEMORY
    process("free(first)")
    assert process.code("alloc(700 * MIB)") == OUT_OF_MEMORY
    assert process.code("alloc(60 * MIB)") == 0


def test_a_card_that_is_not_granted_gives_nothing(machine: fenced.Machine) -> None:
    """No context, and no memory by any way that names a card: for the tenant it is not there."""
    process = machine.tenant(cards=(0,)).started(device=0)
    for line in (
        "made('cuDevicePrimaryCtxRetain', 1)",
        "made('cuCtxCreate_v2', 0, 1)",
        "made('cuCtxCreate_v4', 0, 0, 1)",
        "physical(2 * MIB, device=1)",
        "made('cuMemAllocFromPoolAsync', MIB, pool(1), 0)",
    ):
        assert process.code(line) in (fenced.INVALID_VALUE, fenced.INVALID_DEVICE), line
    assert machine.truth(1) == {}
    assert process.code("alloc(MIB)") == 0


def test_what_the_driver_refuses_is_refused_as_the_driver_does(machine: fenced.Machine) -> None:
    """Cards that are not there, calls before cuInit: the driver's errors, and no later harm."""
    process = machine.tenant(cards=(0,)).start()
    assert process.code("made('cuDevicePrimaryCtxRetain', 0)") == fenced.NOT_INITIALIZED
    assert process.code("made('cuCtxCreate_v2', 0, 0)") == fenced.NOT_INITIALIZED
    assert process.code("total_memory()") == fenced.NOT_INITIALIZED
    process("call('cuInit', 0)")
    for device in (2, 99, -1):
        assert process.code(f"made('cuDevicePrimaryCtxRetain', {device})") == fenced.INVALID_DEVICE
        assert process.code(f"made('cuCtxCreate_v2', 0, {device})") == fenced.INVALID_DEVICE
    assert process.code("alloc(MIB)") == fenced.INVALID_CONTEXT
    process("context()")
    assert process.code("alloc(0)") == fenced.INVALID_VALUE
    assert process.code("alloc(MIB)") == 0


def test_a_refused_context_costs_nothing(machine: fenced.Machine) -> None:
    """Tried again and again, it neither uses up the quota nor adds to it."""
    tenant = machine.tenant(memory_bytes=CONTEXT_BYTES + 100 * MIB)
    process = tenant.started()
    for _ in range(5):
        assert process.code("made('cuCtxCreate_v2', 0, 0)") == OUT_OF_MEMORY
    other = tenant.start()
    for _ in range(5):
        assert other.code("context()") == OUT_OF_MEMORY
    assert tenant.counted() == {process.pid: CONTEXT_BYTES, other.pid: 0}
    assert process.code("alloc(101 * MIB)") == OUT_OF_MEMORY
    assert process.code("alloc(100 * MIB)") == 0
    assert tenant.usage().refused == 11


def test_two_tenants_of_a_card_do_not_count_each_others(machine: fenced.Machine) -> None:
    """Each has its own quota, its own usage, and its own dead."""
    one, other = machine.tenant("one"), machine.tenant("other", memory_bytes=2 * GIB)
    first, second = one.started(), other.started()
    first("alloc(700 * MIB)")
    second("alloc(1700 * MIB)")
    assert first.code("alloc(100 * MIB)") == second.code("alloc(100 * MIB)") == OUT_OF_MEMORY
    second.kill()
    assert first.code("alloc(100 * MIB)") == OUT_OF_MEMORY
    assert other.started().code("alloc(1700 * MIB)") == 0
    assert {**one.counted(), **other.counted()} == machine.truth()
