"""Child processes: programs with a log and a pid file, started, watched and stopped.

A program either ends with its parent, and then the kernel kills it when this process ends for
whatever reason, or it is left alone and found again by its pid file. Pids are used again by the
kernel, so a pid from a file counts only if that process's command line names the folder of the
file.

Ports are held by a socket that is bound but does not listen: with SO_REUSEADDR, which Go sets too,
the program can listen on that port, while nobody else is given it, not even between two runs of the
program.
"""

from __future__ import annotations

import http.client
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from pathlib import Path
from typing import IO

LOOPBACK = "127.0.0.1"

_PARENT_DEATH = Path(__file__).with_name("parent_death.py")
_GONE = "ZX"  # states of a process that has ended but was not waited for
_POLL_SECONDS = 0.02
_LONGEST_CONNECT_SECONDS = 60.0  # on a busy machine

# A program ends with the thread that started it, not with the process. Tests start programs from
# short-lived threads; this one lives as long as the interpreter.
_STARTER = futures.ThreadPoolExecutor(1, thread_name_prefix="starter")


class ProgramFailed(Exception):
    """A program did not start, or ended when it should not have."""


class Port:
    """A free port of the loopback interface, kept for us while this object lives."""

    def __init__(self, address: str = LOOPBACK) -> None:
        self._held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._held.bind((address, 0))
        self.number: int = self._held.getsockname()[1]
        self._address = address

    def is_served(self) -> bool:
        """Whether a program accepts connections on it."""
        try:
            with socket.create_connection(
                (self._address, self.number), timeout=_LONGEST_CONNECT_SECONDS
            ):
                return True
        except ConnectionRefusedError:
            return False

    def release(self) -> None:
        self._held.close()


class Process:
    """One program; its log is NAME.log and its pid is in NAME.pid, in the folder given."""

    def __init__(self, name: str, folder: Path, *, ends_with_parent: bool) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        self._folder = folder
        self._pid_path = folder / f"{name}.pid"
        self._ends_with_parent = ends_with_parent
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The pid, if the program runs."""
        if self._child is not None:
            return self._child.pid if self._child.poll() is None else None
        try:
            pid = int(self._pid_path.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return pid if runs(pid) and str(self._folder.parent) in command_line(pid) else None

    def start(self, command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> None:
        """Start the program; its output is appended to the log."""
        with self.log_path.open("ab") as log:
            self._child = spawn(
                command, ends_with_parent=self._ends_with_parent, stdout=log, stderr=log, env=env
            )
        self._pid_path.write_text(f"{self._child.pid}\n")

    def wait_until(self, ready: Callable[[], bool], *, patience_seconds: float = 120) -> None:
        """Return when the program is ready; raises ProgramFailed if it ends or takes too long."""
        deadline = time.monotonic() + patience_seconds
        while not ready():
            if self.pid is None:
                raise ProgramFailed(self._report("ended"))
            if time.monotonic() > deadline:
                raise ProgramFailed(self._report(f"is not ready after {patience_seconds:g} s"))
            time.sleep(_POLL_SECONDS)

    def stop(self, *, patience_seconds: float = 10) -> None:
        """Ask the program to end, and kill it if it does not."""
        self.signal(signal.SIGTERM)
        if not self._ended_within(patience_seconds):
            self.kill()

    def kill(self) -> None:
        """End the program without asking, as a crash would."""
        self.signal(signal.SIGKILL)
        if not self._ended_within(10):
            raise ProgramFailed(f"{self.name} (pid {self.pid}) survives being killed")

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if the program runs."""
        pid = self.pid
        if pid is not None:
            os.kill(pid, number)

    def log_tail(self, lines: int) -> str:
        """The last lines of the log."""
        if not self.log_path.exists():
            return ""
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    def _ended_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_SECONDS)
        self._child = None
        self._pid_path.unlink(missing_ok=True)
        return True

    def _report(self, what: str) -> str:
        return f"{self.name} {what}; the end of {self.log_path}:\n{self.log_tail(12)}"


def spawn(
    command: Sequence[str | Path],
    *,
    ends_with_parent: bool,
    stdout: int | IO[bytes],
    stderr: int | IO[bytes],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that Ctrl-C reaches us first."""
    # -I and -S: no site packages, nothing from the environment; this takes 20 ms.
    prefix: list[str | Path] = [sys.executable, "-I", "-S", _PARENT_DEATH, str(os.getpid())]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*prefix, *command] if ends_with_parent else command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=env,
            start_new_session=True,
        )

    return _STARTER.submit(start).result()


def answers(url: str) -> bool:
    """Whether a program that we started says on loopback that it is healthy."""
    try:
        page(url)
    except (OSError, http.client.HTTPException):  # an answer that is no success is an OSError too
        return False
    return True


def page(url: str) -> str:
    """What a program that we started says on loopback."""
    # Its certificate is made at its start and worth nothing: there is no secret in the question.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    with urllib.request.urlopen(url, context=trusting, timeout=5) as answer:
        text: str = answer.read().decode()
    return text


def runs(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in _GONE


def children(pid: int) -> list[int]:
    """The processes that a process of one thread has started and that have not ended."""
    try:
        return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
    except (FileNotFoundError, ProcessLookupError):
        return []


def command_line(pid: int) -> str:
    """Its words, with a null character after each; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
