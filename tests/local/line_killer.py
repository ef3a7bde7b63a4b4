"""``partage``, killed at a chosen line: ``kill -9`` at every step of a command, for real.

A process of its own has everything loaded, and makes a child for each command that it reads. The
child counts the lines of some modules as it comes to them, and kills itself at the chosen one:
nothing is undone, nothing is flushed, and the kernel takes its locks.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from types import FrameType, ModuleType
from typing import Any

from partage.cli import command_group
from partage.cli import main as partage
from partage.local.ledger import liveness
from partage.local.run import launch
from tests.local import sites

Run = Callable[..., int]

_ROOT = pathlib.Path(__file__).parents[2]
_NEVER = 0
_LOADED = (command_group, launch, liveness)  # with these comes what the commands need


@contextlib.contextmanager
def killer(site: sites.Site, *modules: ModuleType) -> Iterator[Run]:
    """``run(LINE, ARGUMENTS)`` runs ``partage ARGUMENTS``, and returns its code or signal."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, *(str(module.__file__) for module in modules)],
        env=site.environment,
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        requests, answers = process.stdin, process.stdout

        def run(line: int, *arguments: object) -> int:
            requests.write(json.dumps([line, *map(str, arguments)]) + "\n")
            requests.flush()
            return int(answers.readline())

        yield run
        requests.close()


class _Tracer:
    """Counts lines."""

    def __init__(self, line: int, files: Collection[str]) -> None:
        self._left = line
        self._files = files

    def trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        """As Python calls it, for each line."""
        if frame.f_code.co_filename not in self._files:
            return None
        if event == "line":
            self._left -= 1
            if self._left == _NEVER:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.trace


def _main(*files: str) -> None:
    for request in sys.stdin:
        line, *arguments = json.loads(request)
        child = os.fork()
        if child == 0:
            _become(_Tracer(line, files), arguments)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


def _become(tracer: _Tracer, arguments: list[str]) -> None:
    """Be ``partage``, as long as it lasts."""
    silent = os.open(os.devnull, os.O_RDWR)
    os.dup2(silent, 0)
    os.dup2(silent, 1)
    sys.argv = ["partage", *arguments]
    sys.settrace(tracer.trace)
    try:
        partage.main()
    except SystemExit as end:
        os._exit(end.code if isinstance(end.code, int) else 1)
    finally:
        os._exit(1)


if __name__ == "__main__":
    _main(*sys.argv[1:])
