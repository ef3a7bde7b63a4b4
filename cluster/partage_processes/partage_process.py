"""A process of Partage: a long-running command, started by a test, with an address."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from cluster import child_processes

_PARTAGE = Path(sys.executable).with_name("partage")


class PartageProcess:
    """One of them; the port stays the same when it is started again."""

    _scheme = "http"

    def __init__(self, name: str, folder: Path, *, ends_with_parent: bool) -> None:
        self._process = child_processes.Process(name, folder, ends_with_parent=ends_with_parent)
        self._port: child_processes.Port | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._port is None:
            self._port = child_processes.Port()
        return self._port.number

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._scheme}://{child_processes.LOOPBACK}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its pid, if it runs."""
        return self._process.pid

    def stop(self) -> None:
        """End it in good order."""
        self._process.stop()

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()

    def close(self) -> None:
        """End it, and let its port go."""
        self.kill()
        if self._port is not None:
            self._port.release()
            self._port = None

    def is_ready(self) -> bool:
        """Whether it would be asked."""
        return child_processes.answers(f"{self.url}/readyz")

    def log(self, *, lines: int = 40) -> str:
        """The last lines of its log."""
        return self._process.log_tail(lines)

    def _launch(
        self, *words: str | Path, environment: Mapping[str, str] | None = None, ready: bool
    ) -> None:
        """Start it, and wait until it is ready, or at least until it answers."""
        variables = {**os.environ, **(environment or {})}
        self._process.start([_PARTAGE, *words, "--port", str(self.port)], env=variables)
        path = "/readyz" if ready else "/healthz"
        self._process.wait_until(lambda: child_processes.answers(f"{self.url}{path}"))
