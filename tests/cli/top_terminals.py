"""A terminal of its own for a command, to press keys and to look at what is drawn."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from typing import Any

PROGRAM = pathlib.Path(sys.executable).with_name("partage")
TIMEOUT_S = 60
HOME = "\x1b[H"  # a frame begins with it
REVERSE = re.compile(r"\x1b\[(?:\d+;)*7m")
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A command on a terminal of its own."""

    def __init__(
        self,
        *command: object,
        environment: Mapping[str, str] | None = None,
        size: tuple[int, int] = (160, 30),
    ) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(*size)
        self.modes = termios.tcgetattr(self._theirs)
        self.running = subprocess.Popen(
            list(map(str, command)),
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={"PATH": os.environ["PATH"], "TERM": "xterm", **(environment or {})},
        )
        self.said = ""

    def resize(self, columns: int, lines: int) -> None:
        """As when somebody drags the window; this is not the command's session, so it is told."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, size)
        if hasattr(self, "running"):
            self.running.send_signal(signal.SIGWINCH)

    def until(self, text: str) -> None:
        """Read until it has said this once more."""
        seen = len(self.said)
        while text not in self.said[seen:]:
            self._read()

    def frame_with(self, *texts: str, without: str = "\0") -> list[str]:
        """Read until all of a frame says this; its lines, with their styles."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline_s:
            drawn = self.said.rpartition(HOME)[2]
            plain = bare(drawn)
            if all(text in plain for text in texts) and without not in plain:
                return drawn.split("\r\n")
            self._read()
        raise AssertionError(self.said)

    def frames(self) -> int:
        """How many were drawn."""
        return self.said.count(HOME)

    def selected_until(self, name: str) -> None:
        """Read until the line of this name is the one that is selected."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not any(name in bare(line) for line in self.selected()):
            assert time.monotonic() < deadline_s, self.said
            self._read()

    def selected(self) -> list[str]:
        """The lines of the newest frame that are drawn in reverse."""
        lines = self.said.rpartition(HOME)[2].split("\r\n")
        return [line for line in lines if REVERSE.search(line)]

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self._ours, keys)

    def modes_now(self) -> list[Any]:
        """How the terminal treats its input and output."""
        return termios.tcgetattr(self._theirs)

    def end(self) -> int:
        """All that it still says, and its exit code."""
        code, deadline_s = None, time.monotonic() + TIMEOUT_S
        while code is None or select.select([self._ours], [], [], 0)[0]:
            assert time.monotonic() < deadline_s, self.said
            code = self.running.poll()
            if select.select([self._ours], [], [], 0.05)[0]:
                self._read()
        return code

    def close(self) -> None:
        """Give it up, whatever runs on it."""
        if self.running.poll() is None:
            self.running.kill()
            self.running.wait()
        for fd in (self._ours, self._theirs):
            with contextlib.suppress(OSError):
                os.close(fd)

    def _read(self) -> None:
        assert select.select([self._ours], [], [], TIMEOUT_S)[0], self.said
        self.said += os.read(self._ours, 65536).decode(errors="replace")


def bare(drawn: str) -> str:
    """Without styles."""
    return _STYLE.sub("", drawn)
