"""A real Slurm with simulated cards, configured by the lines that Partage writes."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from cluster.slurm import private_slurm
from partage.devices import nvml
from partage.slurm.configuration import gres_lines
from tests import leaving_out, simulated_machines
from tests.local import sites

# Another Slurm than the machine's, as `make newer-slurm` has it (scripts/newer-slurm).
TREE = (
    pathlib.Path(os.environ["PARTAGE_SLURM_TREE"]) if "PARTAGE_SLURM_TREE" in os.environ else None
)
_DEVICES = """
import msgspec
from partage.devices import nvml
with nvml.Nvml() as driver:
    print(msgspec.json.encode(driver.devices()).decode())
"""


class RealSlurm:
    """A private Slurm of one node, and a machine whose cards are the node's."""

    def __init__(self, folder: pathlib.Path, cards: str) -> None:
        need()
        self.devices = devices(folder, cards)
        self.private = private_slurm.PrivateSlurm(
            folder / "slurm", cards=len(self.devices), tree=TREE
        )
        self.site = sites.Site(folder, cards=cards)
        self._steps: list[subprocess.Popen[bytes]] = []

    @property
    def node(self) -> str:
        """Its only node."""
        return self.private.nodes[0]

    def lines(self, **options: Any) -> gres_lines.Lines:
        """What Partage writes about its cards, with the device files of this Slurm."""
        return gres_lines.lines(
            self.devices, node=self.node, folder=self.private.devices, **options
        )

    def start(self, lines: gres_lines.Lines) -> None:
        """Start Slurm with these lines."""
        types, node = (line.rpartition("=")[2] for line in lines.slurm_conf)
        self.private.start({self.node: node}, types, lines.gres_conf)

    def srun(self, *arguments: str) -> str:
        """What a step prints."""
        done = self.private.run("srun", *arguments)
        assert done.returncode == 0, done.stderr + self.private.logs()
        return done.stdout

    def variables(self, request: str) -> dict[str, str]:
        """The environment of a step that asks for something."""
        lines = self.srun(f"--gres={request}", "env").splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)

    def holding(self, request: str) -> None:
        """Start a step that has what it asks for when this returns, and keeps it."""
        script = f"echo begun; exec sleep 600 # {self.private.folder}"
        step = self.private.spawn("srun", f"--gres={request}", "sh", "-c", script)
        self._steps.append(step)
        assert step.stdout is not None
        assert b"begun\n" in iter(step.stdout.readline, b""), self.private.logs()

    def partage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``partage slurm ARGUMENTS`` on the node."""
        return self.site.partage("slurm", *arguments, env=self.private.environment | self.own)

    @property
    def own(self) -> dict[str, str]:
        """What the site's environment has beside that of Slurm's commands."""
        return {
            name: value
            for name, value in self.site.environment.items()
            if name.startswith(("PARTAGE_", "SIMCUDA_"))
        }

    def shown(self) -> list[tuple[int, int, int | None, list[tuple[str, str, int]]]]:
        """What ``partage slurm nodes`` shows: card, used, total, and who has how much."""
        done = self.partage("nodes", "-o", "json")
        assert done.returncode == 0, done.stderr
        return [
            (
                card["index"],
                card["used"],
                card["total"],
                [(job["user"], job["resource"], job["amount"]) for job in card["jobs"]],
            )
            for card in json.loads(done.stdout)["cards"]
        ]

    def end(self) -> None:
        """End all of it."""
        self.private.stop()
        for step in self._steps:
            step.communicate()
        self.site.end()


def need(*, accounting: bool = False) -> None:
    """Leave the test out where there can be no Slurm."""
    try:
        private_slurm.check_machine(TREE, accounting=accounting)
    except private_slurm.CannotRun as reason:
        leaving_out.leave_out("a real Slurm", reason)


@contextlib.contextmanager
def opened(folder: pathlib.Path, cards: str) -> Iterator[RealSlurm]:
    """One that is ended in the end."""
    slurm = RealSlurm(folder, cards)
    try:
        yield slurm
    finally:
        slurm.end()


def devices(folder: pathlib.Path, cards: str) -> Sequence[nvml.Device]:
    """The simulated cards, as NVML tells about them."""
    machine = simulated_machines.machine(folder, cards=cards)
    text = simulated_machines.python(_DEVICES, environment=machine)
    return msgspec.json.decode(text, type=tuple[nvml.Device, ...])


def processes_of(folder: pathlib.Path) -> list[int]:
    """Those whose command line names the folder, and have not ended."""
    pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    return [pid for pid in pids if str(folder).encode() in _command_line(pid)]


def _command_line(pid: int) -> bytes:
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
