"""Admission: ``partage admission`` as a process beside the control plane."""

from __future__ import annotations

from pathlib import Path

from cluster import child_processes
from cluster.partage_processes import partage_process


class Admission(partage_process.PartageProcess):
    """One replica of the webhooks; its certificate is for the address on loopback, too."""

    _scheme = "https"

    def __init__(
        self, folder: Path, kubeconfig: Path, *, name: str = "admission", pods: str = ""
    ) -> None:
        """Of what it does with ``pods`` the settings, in TOML."""
        super().__init__(name, folder, ends_with_parent=True)
        self._pods = pods
        self._kubeconfig = kubeconfig
        self._settings = folder / f"{name}.toml"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        names = f'[service]\nnames = ["{child_processes.LOOPBACK}"]\n'
        self._settings.write_text(f"{names}[pods]\n{self._pods}\n")
        options = ("--config", self._settings, "--kubeconfig", self._kubeconfig)
        self._launch("admission", *options, ready=True)
