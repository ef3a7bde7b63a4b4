"""What has nothing to do with CUDA is as it would be without a fence; and CUDA programs nearly."""

from __future__ import annotations

import collections
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native import compilers
from tests import leaving_out
from tests.native import fenced

PROGRAMS = {
    "true": ["/bin/true"],
    "a shell": ["/bin/sh", "-c", "ls / > /dev/null; cat /dev/null; echo done"],
    "Python": [sys.executable, "-I", "-S", "-c", "pass"],
    "Python with ctypes": [
        *(sys.executable, "-I", "-S", "-c"),
        "import ctypes; ctypes.CDLL(None).getpid(); hasattr(ctypes.CDLL('libm.so.6'), 'cuInit')",
    ],
}
LOADING = ["openat", "read", "newfstatat", "close"]  # one library, once
# What is different from run to run, or belongs to loading: where there is room for it.
MEMORY = ("brk", "mmap", "munmap", "mprotect", "arch_prctl", "prlimit64", "getrandom", "rseq")


def traced(command: list[str], environment: dict[str, str], folder: Path) -> list[str]:
    """The system calls of a program and of those it starts, without what differs each time."""
    if not shutil.which("strace"):
        leaving_out.leave_out("strace", "install it (`apt install strace`)")
    log = folder / "strace"
    trace = ["strace", "-f", "-o", str(log), "-E", "LD_BIND_NOW=1"]
    trace += [f"-E{name}={value}" for name, value in environment.items()]
    ran = subprocess.run(
        [*trace, *command],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=fenced.TIMEOUT_S,
    )
    if "ptrace" in ran.stderr:
        leaving_out.leave_out("strace", ran.stderr.splitlines()[0])
    assert (ran.returncode, ran.stderr) == (0, "")
    calls = (re.sub(r"^\d+ +", "", line) for line in log.read_text().splitlines())
    begun = (call for call in calls if not call.startswith("<... "))  # the rest of an earlier line
    return [_plain(call) for call in begun if not call.startswith(MEMORY)]


def _plain(call: str) -> str:
    """Without addresses, pids and sizes, and without what the loader does with each library."""
    call = re.sub(r'("[^"]*")|0x[0-9a-f]+|\d{2,}', lambda number: number[1] or "N", call)
    return re.sub(r"\{.*\}|\".*\"\.\.\.", "...", call)


def opened(calls: list[str]) -> list[str]:
    """The files that were opened or looked for."""
    paths = [re.search(r'"([^"]+)"', call) for call in calls if call.startswith(("open", "access"))]
    return [path[1] for path in paths if path]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_without_cuda_makes_the_same_system_calls(
    tenant: fenced.Tenant, tmp_path: Path, name: str
) -> None:
    """Apart from loading the library: no file, no thread, no slot."""
    without = traced(PROGRAMS[name], {}, tmp_path)
    behind = traced(PROGRAMS[name], tenant.environment, tmp_path)
    ours = [path for path in opened(behind) if path not in opened(without)]
    assert set(ours) == {str(fenced.FENCE)}
    assert named(behind) - named(without) == collections.Counter(LOADING * len(ours))
    assert named(without) - named(behind) == collections.Counter()
    assert tenant.counted() == {}


def named(calls: list[str]) -> collections.Counter[str]:
    """How often each system call was made."""
    return collections.Counter(call.partition("(")[0] for call in calls)


def test_the_environment_is_inherited_by_what_a_shell_starts(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """A program that a script of a script starts is behind the same fence, without a word."""
    program = fenced.compiled(tmp_path / "linked", "linked.c")
    line = f"echo begin; sh -c '{program} 500 500'; echo end"
    ran = machine.run("/bin/sh", "-c", line, environment=tenant.environment)
    assert (ran.stdout, ran.stderr) == ("begin\n0 0 2\nend\n", "")


def test_a_program_that_was_linked_statically_runs_as_ever(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """No loader, no fence, no noise."""
    source = tmp_path / "static.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("here"); }\n')
    try:
        program = compilers.system("-static").link(tmp_path / "static", [source])
    except compilers.CannotBuild as error:
        leaving_out.leave_out("a static C library", str(error).splitlines()[-1])
    ran = machine.run(program, environment=tenant.environment)
    assert (ran.stdout, ran.stderr) == ("here\n", "")


def test_a_program_with_rights_of_its_own_runs_as_ever(
    machine: fenced.Machine, tenant: fenced.Tenant, tmp_path: Path
) -> None:
    """The loader leaves a library with a path out of a setuid program, and says nothing."""
    if os.geteuid():
        leaving_out.leave_out("root", "to make a setuid program")
    program = Path(shutil.copy("/bin/cat", tmp_path / "cat"))
    os.chown(program, 65534, 65534)
    program.chmod(0o4755)
    tmp_path.chmod(0o755)
    ran = machine.run(program, "/proc/self/maps", environment=tenant.environment)
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    assert "libpartage" not in ran.stdout
    assert (
        "libpartage"
        in machine.run("/bin/cat", "/proc/self/maps", environment=tenant.environment).stdout
    )


def test_a_program_with_cuda_has_no_thread_more_and_no_word_on_its_streams(
    tenant: fenced.Tenant,
) -> None:
    """After all that can be refused, too."""
    process = tenant.started()
    process("take_all(); memory_info(); card_memory(); processes()")
    for _ in range(3):
        assert process.code("alloc(2 * GIB)") == fenced.OUT_OF_MEMORY
    assert len(os.listdir(f"/proc/{process.pid}/task")) == 1  # noqa: PTH208
    assert process.end() == ""


def test_errno_and_the_exit_code_are_the_programs_own(
    machine: fenced.Machine, tenant: fenced.Tenant
) -> None:
    """A program that ends with a code of its own ends with it."""
    process = tenant.started()
    process.tell("os._exit(37)")
    process.running.wait(fenced.TIMEOUT_S)
    assert process.running.returncode == 37
    other = tenant.started()
    other.tell("sys.exit(38)")
    other.running.wait(fenced.TIMEOUT_S)
    assert other.running.returncode == 38
    assert tenant.counted() == machine.truth() == {}


def test_the_working_directory_and_the_root_may_change(
    tenant: fenced.Tenant, process: fenced.Process, tmp_path: Path
) -> None:
    """Paths are absolute; and one who can see no path any more keeps what it has."""
    process("os.chdir('/'); kept = alloc(500 * MIB)")
    if not os.geteuid():
        process(f"os.chroot({str(tmp_path)!r})")
    assert process.code("alloc(500 * MIB)") == fenced.OUT_OF_MEMORY
    assert process.code("free(kept)") == 0
    assert process.code("alloc(500 * MIB)") == 0
    assert tenant.counted() == tenant.machine.truth()
