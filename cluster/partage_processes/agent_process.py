"""The agent: ``partage agent`` as a process of a real node."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cluster.node import node_settings
from cluster.node.node import Node
from cluster.partage_processes import partage_process


class Agent(partage_process.PartageProcess):
    """The agent of a node."""

    def __init__(
        self,
        node: Node,
        kubeconfig: Path,
        *,
        name: str = "agent",
        ends_with_parent: bool = True,
        options: Sequence[str] = (),
    ) -> None:
        super().__init__(name, node.folder / "run", ends_with_parent=ends_with_parent)
        self._node = node
        self._kubeconfig = kubeconfig
        self._options = tuple(options)

    def start(self, *, ready: bool = True) -> None:
        """Start it, and wait until all its resources are registered, or at least it answers."""
        where: dict[str, str | Path] = {
            "--node": self._node.name,
            "--kubeconfig": self._kubeconfig,
            "--kubelet-folder": self._node.folder / node_settings.KUBELET,
            "--root": self._node.root / "fences",
            "--library-folder": self._node.root / "lib",
            "--cdi-folder": self._node.cdi,
            "--driver-cdi": self._node.cdi,
        }
        options = [word for pair in where.items() for word in pair]
        self._launch(
            "agent", *options, *self._options, environment=self._node.environment, ready=ready
        )

    def report(self) -> Any:
        """What it reports."""
        with urllib.request.urlopen(f"{self.url}/v1/report", timeout=30) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        """What it tells a scraper."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=30) as answer:
            return str(answer.read().decode())
