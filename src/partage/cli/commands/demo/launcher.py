"""Starts the programs of ``partage demo``, each by the real ``partage run`` in a process.

The command becomes the program, so what is started here as ``partage run`` is the program a moment
later, and the same pipe leads to it. Each has a process group: Ctrl-C reaches the demo alone, which
ends them all.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from partage.cli.commands.demo import observer, roles, verdict

PARTAGE = (sys.executable, "-c", "from partage.cli.main import main; main()")
PROGRAM = Path(__file__).with_name("program.py")
_TIMEOUT_S = 30.0
_A_MOMENT_S = 1.0


class Answer(msgspec.Struct, frozen=True):
    """What a program may answer; each order has one of these."""

    pid: int = 0
    total_bytes: int = 0
    kernels: int = 0
    code: str = ""


class Program:
    """A program of the demo, from the moment its command was started."""

    def __init__(self, role: roles.Role, folder: Path) -> None:
        self.role = role
        self.asked_s = time.time()
        self._log = folder / f"{role.name}.log"
        # A copy: a file's own folder is the first in which Python looks for modules.
        shutil.copyfile(PROGRAM, folder / role.script)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*PARTAGE, "run", *role.arguments, "--", sys.executable, role.script],
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,
                process_group=0,
            )
        self._pid = 0

    @property
    def typed(self) -> str:
        """As a user would type it."""
        return " ".join(["partage run", *self.role.arguments, "--", "python", self.role.script])

    @property
    def pid(self) -> int:
        """Of the command, and so of the program."""
        return self._process.pid

    def started(self) -> Answer:
        """Wait until its first kernels have run."""
        answer = self._answer()
        self._pid = answer.pid
        return answer

    def kernels(self) -> int:
        """How many it has run so far."""
        return self._asked("count").kernels

    def allocate(self, memory_mib: int) -> str:
        """Let it allocate memory; returns the name of the driver's result."""
        return self._asked(f"allocate {memory_mib << 20}").code

    def kill(self) -> None:
        """With signal 9, and only this process."""
        os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> verdict.Exit:
        """Let it end if it has not; returns how it ended."""
        if self._process.stdin:
            self._process.stdin.close()
        try:
            code = self._process.wait(_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise observer.Stuck(f"{self.role.name} does not end") from error
        return verdict.Exit(code, self.pid, self._pid)

    def clear(self) -> None:
        """Whatever happened, no process is left."""
        if self._process.poll() is None:  # else another process may have this id by now
            os.killpg(self.pid, signal.SIGKILL)
        with self._process:
            pass

    def _asked(self, order: str) -> Answer:
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{order}\n".encode())
        except BrokenPipeError as error:
            raise self._gone() from error
        return self._answer()

    def _answer(self) -> Answer:
        out = self._process.stdout
        assert out
        ready, _, _ = select.select([out], [], [], _TIMEOUT_S)
        line = out.readline() if ready else b""
        if not line:
            raise self._gone()
        return msgspec.json.decode(line, type=Answer)

    def _gone(self) -> observer.Stuck:
        try:
            code = self._process.wait(_A_MOMENT_S)  # a pipe closes before its process has ended
        except subprocess.TimeoutExpired:
            how = "does not answer"
        else:
            how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return observer.Stuck(
            f"{self.role.name} {how}; the last line of its log: {self._last_line()}"
        )

    def _last_line(self) -> str:
        lines = self._log.read_text("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line), "(empty)")
