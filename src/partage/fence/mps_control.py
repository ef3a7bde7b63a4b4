"""Talking to one MPS control daemon, in the words that NVIDIA documents.

``nvidia-cuda-mps-control -d`` starts a daemon; the same program without options reads commands on
its standard input, passes them to the daemon whose folder ``CUDA_MPS_PIPE_DIRECTORY`` names, and
prints the answers. Cards are named by their place in the daemon's ``CUDA_VISIBLE_DEVICES``: not
every driver takes uuids in these commands.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from partage.core import errors
from partage.core.quantities import MIB

PROGRAM = "nvidia-cuda-mps-control"

# The longest name in the folder of pipes. The kernel takes 107 bytes for a socket's path; a daemon
# that is given more starts, binds nothing, and is not found afterwards.
_LONGEST_SOCKET, _LONGEST_PATH = "control_privileged", 107
_UNITS = {"M": MIB, "G": 1024 * MIB}
_AMOUNT = re.compile(r"(\d{1,15})([MG])B?")


class Amount(msgspec.Struct, frozen=True):
    """An amount of memory as the daemon prints it: cut to whole units.

    From 1 GiB on the unit is GiB: a limit of 1044M is read back as ``1G``.
    """

    memory_bytes: int
    unit_bytes: int

    def is_of(self, memory_bytes: int) -> bool:
        """Whether it is how the daemon would print this many bytes."""
        return self.memory_bytes == memory_bytes // self.unit_bytes * self.unit_bytes


class Control:
    """One daemon, whether it runs or not."""

    def __init__(self, folder: Path, *, program: str = PROGRAM, timeout_s: float = 10) -> None:
        self.pipes, self.logs = folder / "pipe", folder / "log"
        self._cards = folder / "cards"
        self._program, self._timeout_s = program, timeout_s

    def environment(self) -> dict[str, str]:
        """What leads a client, or this program, to the daemon."""
        return {
            "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self.logs),
        }

    def start(self, uuids: tuple[str, ...]) -> None:
        """Start the daemon for these cards; its defaults hold for the servers it will start."""
        socket = self.pipes / _LONGEST_SOCKET
        if len(os.fsencode(socket)) > _LONGEST_PATH:
            problem = f"{socket} is too long for the name of a socket"
            raise _failed(problem, f"choose a shorter --root ({_LONGEST_PATH} bytes in all)")
        try:
            for folder in (self.pipes.parent.parent, self.pipes.parent, self.pipes, self.logs):
                _make(folder)
            self._cards.write_text(",".join(uuids), encoding="utf-8")
        except OSError as error:
            problem = f"{error.filename} cannot be made ({error.strerror})"
            raise _failed(problem, "choose a --root that you may write to") from error
        self._run(["-d"], "", {"CUDA_VISIBLE_DEVICES": ",".join(uuids)})
        if not self.runs():
            problem = "the control daemon was started and does not answer"
            raise _failed(problem, f"see what it wrote to {self.logs}")

    def runs(self) -> bool:
        """Whether a daemon answers."""
        try:
            return bool(self.ask("get_default_active_thread_percentage"))
        except errors.FenceError:
            return False

    def cards(self) -> tuple[str, ...]:
        """The uuids of the cards that the daemon was started for, in its order."""
        try:
            return tuple(self._cards.read_text(encoding="utf-8").split(","))
        except OSError:
            return ()

    def quit(self, timeout_s: int) -> None:
        """End the daemon; servers that still run after this time are ended too. Then forget it."""
        if self.runs():
            self.ask(f"quit -t {timeout_s}")
        elif pid := self._hanging():
            problem = f"the control daemon {pid} does not answer"
            raise _failed(problem, f"see what it wrote to {self.logs}; `kill {pid}` ends it")
        shutil.rmtree(self.pipes.parent, ignore_errors=True)

    def servers(self) -> tuple[int, ...]:
        """The process ids of its servers, which start with the first client."""
        answer = self.ask("get_server_list")
        if not all(line.isdigit() for line in answer.split()):
            raise _unreadable("get_server_list", answer)
        return tuple(int(line) for line in answer.split())

    def percentage(self, command: str) -> float:
        """Ask for a percentage; the daemon answers ``25.0``."""
        answer = self.ask(command)
        try:
            return float(answer)
        except ValueError:
            raise _unreadable(command, answer) from None

    def amount(self, command: str) -> Amount | None:
        """Ask for an amount of memory; None is an answer that is none, as where nothing was set."""
        match = _AMOUNT.fullmatch(self.ask(command))
        return Amount(int(match[1]) * _UNITS[match[2]], _UNITS[match[2]]) if match else None

    def ask(self, command: str) -> str:
        """Give a command and return the answer."""
        return self._run([], f"{command}\n", {})

    def _run(self, options: list[str], stdin: str, more: Mapping[str, str]) -> str:
        line = [self._program, *options]
        environment = {**_without_mps(os.environ), **self.environment(), **more}
        said = stdin.strip() or " ".join(line)
        try:
            done = subprocess.run(
                line,
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                check=False,
            )
        except OSError as error:
            problem = f"{self._program} cannot be run ({error.strerror})"
            raise _failed(problem, "install the driver's compute utilities") from error
        except subprocess.TimeoutExpired as error:
            problem = f"{said!r} has no answer after {self._timeout_s:g} s"
            raise _failed(problem, f"see what the daemon wrote to {self.logs}") from error
        if done.returncode:
            words = " ".join((done.stdout + done.stderr).split())[:200]
            problem = f"{said!r} failed: {words or f'exit code {done.returncode}'}"
            raise _failed(problem, f"see what the daemon wrote to {self.logs}")
        return done.stdout.strip()

    def _hanging(self) -> int:
        """The process id of a daemon that is there, though it may not answer; 0: of none."""
        try:
            text = (self.pipes / f"{PROGRAM}.pid").read_text(encoding="utf-8").strip()
        except OSError:
            return 0
        return int(text) if text.isdigit() and Path(f"/proc/{text}").exists() else 0


def _make(folder: Path) -> None:
    """Clients of any user have to get through, whatever the umask."""
    if not folder.exists():
        folder.mkdir(mode=0o755)
        folder.chmod(0o755)


def _without_mps(environment: Mapping[str, str]) -> dict[str, str]:
    """A daemon takes limits from its environment too; it shall have ours only."""
    return {name: text for name, text in environment.items() if not name.startswith("CUDA_MPS_")}


def _failed(problem: str, instead: str) -> errors.FenceError:
    return errors.FenceError(f"mps: {problem}", instead=instead)


def _unreadable(command: str, answer: str) -> errors.FenceError:
    shown = "".join(sign if sign.isprintable() else " " for sign in answer[:80])
    return errors.FenceError(
        f"mps: the daemon answers {command!r} with {shown!r}",
        instead="this version of MPS is not known: use the level hook, and report this",
    )
