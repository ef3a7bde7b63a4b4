"""A node of a Slurm whose jobs are held: its cards, and what Partage knows of the jobs there."""

from __future__ import annotations

import pathlib

from partage.fence import usage
from partage.fence.store import roots, tenants
from partage.slurm.jobs import job_end
from tests.slurm import real_slurm

COVERED = {"/run": "run", "/var/lib": "var"}  # places on the node, and in its folder
MACHINE = "machine"  # the folder of its simulated cards
_STATE = "simulated-machine"


class HeldNode:
    """One node. What is /run and /var/lib there is in a folder of its own."""

    def __init__(self, folder: pathlib.Path, cards: str) -> None:
        self.folder = folder
        for name in (*COVERED.values(), MACHINE):
            (folder / name).mkdir(parents=True)
        self.devices = real_slurm.devices(folder / MACHINE, cards)
        (folder / MACHINE / _STATE).chmod(0o666)  # of all users

    @property
    def state(self) -> pathlib.Path:
        """The file of its simulated cards."""
        return self.folder / MACHINE / _STATE

    @property
    def fences(self) -> pathlib.Path:
        """The root of its tenants."""
        return self.folder / "run/partage/slurm"

    @property
    def log(self) -> pathlib.Path:
        """Where what jobs used is written."""
        return self.folder / "var/partage/slurm"

    @property
    def root(self) -> roots.Root:
        """The root of its tenants, opened."""
        return roots.find(self.fences)

    def covers(self, machine: pathlib.Path) -> dict[str, pathlib.Path]:
        """What is covered on the node; ``machine`` is where all nodes look for their cards."""
        own = {place: self.folder / name for place, name in COVERED.items()}
        return {**own, str(machine): self.folder / MACHINE}

    def jobs(self) -> list[int]:
        """Those that have a tenant here."""
        return sorted(int(name.removeprefix("job-")) for name in tenants.names(self.root))

    def used(self, job: int) -> usage.CardUsage:
        """What the node side reads of a job's card."""
        return usage.snapshot(self.root, job_end.tenant_name(job)).cards[0]
