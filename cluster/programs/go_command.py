"""The go command, run on a module of ours, with its progress on stderr.

Where modules are downloaded from is Go's business (GOPROXY), and nothing here interferes with it.
"""

from __future__ import annotations

import collections
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO

from cluster import child_processes, progress

_TAIL_LINES = 15


class CannotBuild(Exception):
    """The programs are not there and cannot be built here; the text says what to do."""


class Go:
    """One run of the go command: what it prints is counted, and shown only if it fails."""

    def __init__(
        self, arguments: list[str], module: Path, scratch: Path, *, with_c: bool = False
    ) -> None:
        self._command = [_go(), *arguments]
        self._module = module
        self._environment = {**_environment(with_c), "GOTMPDIR": str(scratch)}
        self._downloaded = 0
        self._compiled = 0
        self._others: collections.deque[str] = collections.deque(maxlen=_TAIL_LINES)

    def run(self, shown: progress.Progress, packages: set[str]) -> list[str]:
        """Run to the end; gives what was printed on stdout."""
        with tempfile.TemporaryFile() as output:
            self._run(shown, packages, output)
            output.seek(0)
            return output.read().decode().splitlines()

    def _run(self, shown: progress.Progress, packages: set[str], output: IO[bytes]) -> None:
        child = child_processes.spawn(
            self._command,
            ends_with_parent=True,
            stdout=output,
            stderr=subprocess.PIPE,
            cwd=self._module,
            env=self._environment,
        )
        with child:
            reader = threading.Thread(target=self._read, args=(child.stderr, packages))
            reader.start()
            try:
                while not _ended(child, within_seconds=1):
                    shown.update(self._so_far(len(packages)))
            except BaseException:  # Ctrl-C, which reaches neither go nor the compilers it runs
                os.killpg(child.pid, signal.SIGKILL)
                raise
            finally:
                reader.join()
        if child.returncode != 0:
            raise CannotBuild("go failed:\n" + "\n".join(self._others))

    def _read(self, lines: IO[bytes], packages: set[str]) -> None:
        for raw in lines:
            line = raw.decode(errors="replace").rstrip()
            if line in packages:
                self._compiled += 1
            elif line.startswith("go: downloading"):
                self._downloaded += 1
            else:
                self._others.append(line)

    def _so_far(self, packages: int) -> str:
        if not packages:
            return f"reading the modules, {self._downloaded} downloaded so far"
        if self._compiled < 0.98 * packages:
            return f"compiling, {self._compiled} of at most {packages} packages"
        return "linking"


def _ended(child: subprocess.Popen[bytes], *, within_seconds: float) -> bool:
    try:
        child.wait(within_seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def check_go(module: Path) -> None:
    """Raise CannotBuild unless there is a go command that the module is content with."""
    needed = pinned(module, r"^go (\S+)")
    advice = f"Go {needed} or newer is needed to build Kubernetes for the tests; install it and"
    advice += " put it on PATH. It is used for tests only, never by Partage itself."
    if not shutil.which("go"):
        raise CannotBuild(f"there is no go command. {advice}")
    command = [_go(), "env", "GOVERSION"]
    printed = subprocess.run(
        command, capture_output=True, text=True, env=_environment(with_c=False), check=False
    )
    version = printed.stdout.strip().removeprefix("go")
    if _numbers(version) < _numbers(needed):
        raise CannotBuild(f"go is version {version or 'unknown'}. {advice}")


def _go() -> str:
    return shutil.which("go") or "go"


def _environment(with_c: bool) -> dict[str, str]:
    """Ours, and what makes the same programs everywhere: no other Go, no changed pins."""
    fixed = {
        "CGO_ENABLED": "1" if with_c else "0",
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "-mod=readonly",
        "GOWORK": "off",
    }
    return {**os.environ, **fixed}


def pinned(module: Path, pattern: str) -> str:
    """What the module's pins say, as the group of a pattern."""
    match = re.search(pattern, (module / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise CannotBuild(f"{module / 'go.mod'} has no line like {pattern}")
    return match[1]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])
