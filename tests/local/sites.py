"""Machines with simulated cards and a ledger of their own, and programs started there for real.

A site is what a user has: an environment, in which ``partage`` is run as a process. What it says is
compared with what the kernel says: which processes live, and what they were given.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from partage.core import errors
from partage.local.ledger import ledger
from partage.local.state import location
from tests import leaving_out, simulated_machines

PARTAGE = pathlib.Path(sys.executable).with_name("partage")
PROGRAM = pathlib.Path(__file__).with_name("gpu_program.py")
PATIENCE_S = 60.0  # before a test gives up; nothing that is tested takes nearly as long


class Site:
    """A machine with simulated cards."""

    def __init__(self, folder: pathlib.Path, cards: str = "2x16GiB", **settings: str) -> None:
        if not (simulated_machines.LIBRARIES / "libcuda.so.1").exists():
            leaving_out.leave_out("the simulated driver", "build it with `python -m native`")
        self.folder = folder / "state"
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("SIMCUDA_", "PARTAGE_"))}
        self.environment = {
            **plain,
            "PARTAGE_STATE": str(self.folder),
            "PARTAGE_SIMULATE": cards,
            **{f"SIMCUDA_{name.upper()}": value for name, value in settings.items()},
        }
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: object, **how: Any) -> subprocess.Popen[str]:
        """``partage ARGUMENTS`` as a process; its output can be read."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [str(PARTAGE), *map(str, arguments)],
            env=self.environment | how.pop("env", {}),
            text=True,
            **pipes | how,
        )
        self._started.append(process)
        return process

    def partage(self, *arguments: object, **how: Any) -> subprocess.CompletedProcess[str]:
        """The same, until it ends."""
        process = self.start(*arguments, **how)
        out, err = process.communicate(timeout=PATIENCE_S)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def run(self, *options: object, command: list[str], **how: Any) -> subprocess.Popen[str]:
        """``partage run OPTIONS -- COMMAND``."""
        return self.start("run", *options, "--", *command, **how)

    def holding(self, *options: object, **how: Any) -> subprocess.Popen[str]:
        """A program that has its share when this returns, and keeps it until it is ended."""
        command = ["sh", "-c", "echo started; exec sleep 600"]
        process = self.run(*options, command=command, **how)
        assert process.stdout is not None
        line = process.stdout.readline()
        if line != "started\n":
            process.kill()
            raise AssertionError(f"{line}{process.communicate()[1]}")
        return process

    def using(self, mib: int, *options: object, **how: Any) -> subprocess.Popen[str]:
        """A program that has so much of a card's memory when this returns, and keeps it."""
        command = [sys.executable, str(PROGRAM), "hold", str(mib)]
        process = self.run(*options, command=command, **how)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("holds"):
            process.kill()
            raise AssertionError(f"{line}{process.communicate()[1]}")
        return process

    def view(self) -> dict[str, Any]:
        """What ``partage ps -o json`` says."""
        done = self.partage("ps", "-o", "json")
        assert done.returncode == 0, done.stderr
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    def names(self, kind: str = "tenants") -> list[str]:
        """The names that run, or (``waiting``) wait, in the order of the view."""
        return [row["name"] for row in self.view()[kind]]

    def queued(self) -> list[str]:
        """The names that wait, by the ledger: cheap to ask often, as no process is started."""
        with contextlib.suppress(errors.LedgerError):  # it may not be made yet
            return [entry.name for entry in ledger.rows(self.state()) if entry.grant is None]
        return []

    def state(self) -> location.StateFolder:
        """Its ledger's place."""
        return location.opened(self.folder)

    @contextlib.contextmanager
    def book(self) -> Iterator[ledger.Ledger]:
        """Its ledger."""
        with ledger.opened(self.state()) as book:
            yield book

    def end(self) -> None:
        """Kill what is left."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)
            process.wait()
            for stream in (process.stdin, process.stdout, process.stderr):
                if stream is not None:
                    stream.close()


def eventually(what: Callable[[], object], *, patience_s: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    until = time.monotonic() + patience_s
    while not what():
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.05)
