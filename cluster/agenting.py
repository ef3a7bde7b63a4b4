"""Agenting: ``partage agent`` as a process of a real node."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import node_settings, processes
from cluster.node import Node

_PARTAGE = Path(sys.executable).with_name("partage")


class Agent:
    """The agent of a node; the port stays the same when it is started again."""

    def __init__(
        self, node: Node, kubeconfig: Path, *, leashed: bool = True, options: Sequence[str] = ()
    ) -> None:
        self._node = node
        self._kubeconfig = kubeconfig
        self._options = tuple(options)
        self._process = processes.Process("agent", node.folder / "run", leashed=leashed)
        self._port: processes.Port | None = None

    @property
    def port(self) -> int:
        """Where it tells its metrics."""
        if self._port is None:
            self._port = processes.Port()
        return self._port.number

    @property
    def pid(self) -> int | None:
        """Its pid, if it runs."""
        return self._process.pid

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until all its resources are registered, or at least it answers."""
        folder = self._node.folder
        where = {
            "--node": self._node.name,
            "--kubeconfig": self._kubeconfig,
            "--kubelet-folder": folder / node_settings.KUBELET,
            "--root": self._node.root / "fences",
            "--library-folder": self._node.root / "lib",
            "--cdi-folder": self._node.cdi,
            "--driver-cdi": self._node.cdi,
            "--port": self.port,
        }
        options = [str(word) for pair in where.items() for word in pair]
        environment = {**os.environ, **self._node.environment}
        self._process.start([_PARTAGE, "agent", *options, *self._options], env=environment)
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

    def report(self) -> Any:
        """What it reports."""
        with urllib.request.urlopen(self._url("/v1/report"), timeout=30) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        """What it tells a scraper."""
        with urllib.request.urlopen(self._url("/metrics"), timeout=30) as answer:
            return str(answer.read().decode())

    def log(self, *, lines: int = 40) -> str:
        """The last lines of its log."""
        return self._process.log_tail(lines)

    @property
    def url(self) -> str:
        """Its address."""
        return self._url("")

    def _url(self, path: str) -> str:
        return f"http://{processes.LOOPBACK}:{self.port}{path}"
