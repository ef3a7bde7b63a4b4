"""Simulated machines, tenants on them, and programs behind the fence.

The truth is what NVML tells a process that has no fence: `Machine.truth`. What the fence counts is
what the node side reads: `Tenant.counted`.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from native import compilers, libraries, parts
from partage.fence import usage
from partage.fence.library import aliases, libpartage, originals, substitutes
from partage.fence.store import limits, roots, tenants
from tests import leaving_out

MIB = 1 << 20
GIB = 1 << 30
CONTEXT_BYTES = 256 * MIB  # what the simulated driver takes for one, unless told otherwise

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 1, 2, 3
NO_DEVICE, INVALID_DEVICE, INVALID_CONTEXT, NOT_PERMITTED = 100, 101, 201, 800

HERE = Path(__file__).parent
CLIENTS = HERE / "clients"
_LIB = aliases.named(parts.LIB)  # tests name it to the loader, also that of "my checkout"
LIBRARIES = _LIB / "simulated"
FENCE = _LIB / "libpartage.so"
# access, faccessat and faccessat2: whether a file is there, without opening it
ACCESS_CALLS = {"x86_64": "21,269,439", "aarch64": "48,439"}[platform.machine()]
SEAL_CALL = "462"  # mseal, on every machine
TIMEOUT_S = 120  # of one program; far more than any of them needs


class Refused(Exception):
    """The program was refused what it asked for."""

    def __init__(self, code: int, what: str) -> None:
        super().__init__(what)
        self.code = code


class Process:
    """A program that does what it is told (client.py), or any other that is spoken to in lines."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self.running = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0
        )
        self._unread = b""

    @property
    def pid(self) -> int:
        """As the machine knows it."""
        return self.running.pid

    def tell(self, line: str) -> None:
        """Have a line of Python run; `heard` waits for it."""
        assert self.running.stdin is not None
        self.running.stdin.write(json.dumps(line).encode() + b"\n")

    def line(self) -> str:
        """The next line that it says; what it said before it ended, if it did."""
        assert self.running.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self.running.stdout], [], [], TIMEOUT_S)
            assert ready, "the program does not answer"
            more = os.read(self.running.stdout.fileno(), 1 << 20)
            if not more:
                break
            self._unread += more
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def heard(self) -> Any:
        """What came of the next line that it was told."""
        line = self.line()
        if not line:
            raise AssertionError(f"the program ended: {self.last_words()}")
        said = json.loads(line)
        if "refused" in said:
            raise Refused(said["refused"], said["what"])
        return said["value"]

    def answers(self) -> bool:
        """Whether it has said something that was not heard yet, or has ended."""
        assert self.running.stdout is not None
        return bool(self._unread or select.select([self.running.stdout], [], [], 0)[0])

    def __call__(self, line: str) -> Any:
        """Run a line of Python; its value."""
        self.tell(line)
        return self.heard()

    def outcome(self) -> int:
        """Of the next line that it was told: 0, or what it was refused with."""
        try:
            self.heard()
        except Refused as refused:
            return refused.code
        return 0

    def code(self, line: str) -> int:
        """The result of a line that calls something: 0, or what it was refused with."""
        self.tell(line)
        return self.outcome()

    def kill(self) -> None:
        """As `kill -9` does it; what it has not said is lost."""
        self.running.kill()
        self.running.wait(TIMEOUT_S)
        for pipe in (self.running.stdin, self.running.stdout, self.running.stderr):
            if pipe is not None:
                pipe.close()

    def last_words(self) -> str:
        """Everything it wrote to stderr, once it has ended."""
        return self.running.communicate(timeout=TIMEOUT_S)[1].decode()

    def end(self) -> str:
        """Let it come to its end; what it wrote to stderr."""
        words = self.last_words()
        assert self.running.returncode == 0, (self.running.returncode, words)
        return words


class Machine:
    """A simulated machine, with a root for its tenants."""

    def __init__(self, folder: Path, cards: str = "1x16GiB", **settings: str) -> None:
        for part in (FENCE, LIBRARIES / "libcuda.so.1", LIBRARIES / "libnvidia-ml.so.1"):
            if not part.exists():
                leaving_out.leave_out(part.name, "build it with `python -m native`")
        self.environment = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "SIMCUDA_STATE": str(folder / "machine"),
            "SIMCUDA_CARDS": cards,
            **{f"SIMCUDA_{name.upper()}": value for name, value in settings.items()},
        }
        self.root = roots.prepare(folder / "root")
        self.stack = contextlib.ExitStack()
        self.observer = self.start()
        count = self.observer("[call('cuInit', 0), visible_devices()]")[1]
        self.uuids = [self.observer(f"uuid({index})") for index in range(count)]

    def start(
        self,
        environment: Mapping[str, str] | None = None,
        launcher: Sequence[str] = (),
        **changes: str,
    ) -> Process:
        """Start a program, without a fence unless the environment has one."""
        command = [*launcher, sys.executable, "-I", "-S", str(HERE / "client.py")]
        process = Process(command, {**self.environment, **(environment or {}), **changes})
        self.stack.callback(process.kill)
        return process

    def run_in_background(
        self, command: list[str], environment: Mapping[str, str] | None = None
    ) -> Process:
        """Start any other program."""
        process = Process(command, {**self.environment, **(environment or {})})
        self.stack.callback(process.kill)
        return process

    def run(
        self, *command: str | Path, environment: Mapping[str, str] | None = None, **changes: str
    ) -> subprocess.CompletedProcess[str]:
        """Run any other program to its end."""
        return subprocess.run(
            [str(word) for word in command],
            env={**self.environment, **(environment or {}), **changes},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )

    def tenant(self, name: str = "job", *, cards: tuple[int, ...] = (0,), **terms: Any) -> Tenant:
        """Make a tenant with the same share of each of these cards."""
        on_failure = terms.pop("on_failure", limits.OnFailure.CLOSED)
        share = {"memory_bytes": GIB, "context_bytes": CONTEXT_BYTES, **terms}
        chosen = tuple(limits.CardLimits(uuid=self.uuids[card], **share) for card in cards)
        links = substitutes.links(libpartage.find(), originals.find(self.environment))
        tenants.create(self.root, name, limits.Limits(chosen, on_failure), links=links)
        return Tenant(self, name)

    def truth(self, card: int = 0) -> dict[int, int]:
        """Bytes by pid: what the card itself has for each process."""
        return {int(pid): used for pid, used in self.observer(f"processes({card})").items()}

    def close(self) -> None:
        """End all programs."""
        self.stack.close()


class Tenant:
    """A tenant, and how its programs are started."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.folder = tenants.read(machine.root, name).folder

    @property
    def environment(self) -> dict[str, str]:
        """What puts a program behind the fence: preloaded."""
        return {"LD_PRELOAD": str(FENCE), "PARTAGE_LIMITS": str(self.folder / "limits")}

    @property
    def whole_environment(self) -> dict[str, str]:
        """The same by both ways in, as the product has it: preloaded, and in the driver's place."""
        record = tenants.read(self.machine.root, self.name)
        inherited = self.machine.environment
        return substitutes.environment(record.libraries, record.limits_path, inherited)

    @property
    def place_environment(self) -> dict[str, str]:
        """The same in the driver's place alone."""
        return {**self.whole_environment, "LD_PRELOAD": ""}

    @property
    def environments(self) -> dict[str, dict[str, str]]:
        """All ways in, by their names."""
        place, both = self.place_environment, self.whole_environment
        return {"preload": self.environment, "place": place, "both": both}

    def start(self, **changes: str) -> Process:
        """Start a program behind the fence."""
        return self.machine.start(self.environment, **changes)

    def started(self, device: int = 0, **changes: str) -> Process:
        """Start a program behind the fence that has a context."""
        process = self.start(**changes)
        process(f"context({device})")
        return process

    def counted(self, card: int = 0) -> dict[int, int]:
        """Bytes by pid: what the fence counts for each living process."""
        living = usage.snapshot(self.machine.root, self.name).processes
        return {process.pid: process.used_bytes[card] for process in living}

    def usage(self, card: int = 0) -> usage.CardUsage:
        """What the node side reads of one of its cards."""
        return usage.snapshot(self.machine.root, self.name).cards[card]

    def change(self, **terms: Any) -> None:
        """Change its limits while it runs."""
        tenants.change(self.machine.root, self.name, limits.Change(**terms))


def compiled(target: Path, source: str, *flags: str) -> Path:
    """A small program or library in C, from tests/native/clients; a program is linked with CUDA."""
    linked = [] if "-shared" in flags else [LIBRARIES / "libcuda.so.1"]
    compiler = compilers.system(*(f"-isystem{folder}" for folder in libraries.header_folders()))
    return compiler.link(target, [CLIENTS / source, *linked], "-pthread", *flags, "-ldl")


def unanswered(folder: Path, calls: str) -> list[str]:
    """How a program is started whose system calls of these numbers are not answered."""
    return [str(compiled(folder / "unanswered", "unanswered.c")), calls]


@contextlib.contextmanager
def machine(folder: Path, cards: str = "1x16GiB", **settings: str) -> Iterator[Machine]:
    """A machine whose programs end with the block."""
    made = Machine(folder, cards, **settings)
    try:
        yield made
    finally:
        made.close()
