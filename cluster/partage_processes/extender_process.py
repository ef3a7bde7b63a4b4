"""The extender: ``partage extender`` as a process beside the control plane."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster import child_processes
from cluster.partage_processes import partage_process


class Extender(partage_process.PartageProcess):
    """One replica of the extender; if it has its own certificates, they are for loopback, too."""

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        name: str = "extender",
        ends_with_parent: bool = True,
        options: Sequence[str] = (),
        own_certificates: bool = False,
    ) -> None:
        super().__init__(name, folder, ends_with_parent=ends_with_parent)
        self._kubeconfig = kubeconfig
        self._options = tuple(options)
        if own_certificates:
            self._scheme = "https"
            settings = folder / f"{name}.toml"
            settings.write_text(f'[certificates]\nnames = ["{child_processes.LOOPBACK}"]\n')
            self._options += ("--config", str(settings), "--own-certificates")

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until it is ready, or at least until it answers."""
        self._launch("extender", "--kubeconfig", self._kubeconfig, *self._options, ready=ready)

    def get(self, path: str) -> Any:
        """The JSON at a path; an error's too."""
        try:
            with urllib.request.urlopen(f"{self.url}{path}", timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def metric(self, name: str) -> float:
        """The number that ``/metrics`` has behind a name, with its labels if it has any."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(f"{name} "))

    def post(self, path: str, body: Any) -> Any:
        """The answer to a verb."""
        request = urllib.request.Request(f"{self.url}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)
