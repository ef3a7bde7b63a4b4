"""Extending: ``partage extender`` as a process beside the control plane."""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import processes

_PARTAGE = Path(sys.executable).with_name("partage")


class Extender:
    """One replica of the extender; the port stays the same when it is started again."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        name: str = "extender",
        leashed: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        self._process = processes.Process(name, folder, leashed=leashed)
        self._kubeconfig = kubeconfig
        self._options = tuple(options)
        self._port: processes.Port | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        if self._port is None:
            self._port = processes.Port()
        return self._port.number

    @property
    def pid(self) -> int | None:
        """Its pid, if it runs."""
        return self._process.pid

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready, or at least until it answers."""
        where: list[str | Path] = ["--kubeconfig", self._kubeconfig, "--port", str(self.port)]
        self._process.start([_PARTAGE, "extender", *where, *self._options])
        path = "/readyz" if ready else "/healthz"
        self._process.wait_until(lambda: processes.answers(self._url(path)))

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
        return processes.answers(self._url("/readyz"))

    def get(self, path: str) -> Any:
        """The JSON at a path; an error's too."""
        try:
            with urllib.request.urlopen(self._url(path), timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def post(self, path: str, body: Any) -> Any:
        """The answer to a verb."""
        request = urllib.request.Request(self._url(path), json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def log(self, *, lines: int = 40) -> str:
        """The last lines of its log."""
        return self._process.log_tail(lines)

    def _url(self, path: str) -> str:
        return f"http://{processes.LOOPBACK}:{self.port}{path}"
