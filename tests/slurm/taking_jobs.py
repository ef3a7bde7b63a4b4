"""Jobs that take all memory that they are given (taker.py), and what they tell about it."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
from typing import Any

from tests.slurm import held_slurm

PROGRAM = pathlib.Path(__file__).with_name("taker.py")


class Takers:
    """Some of them, which hold what they have until they are told to end."""

    def __init__(self, slurm: held_slurm.HeldSlurm) -> None:
        self._slurm = slurm
        self.folder = shared_folder(slurm)
        shutil.copy(PROGRAM, slurm.folder)
        self.command = [*held_slurm.ENTRY, str(slurm.folder / PROGRAM.name), str(self.folder)]

    def script(self, *lines: str) -> pathlib.Path:
        """A script for sbatch that does this, and becomes a taker."""
        return self.script_of(*lines, " ".join(["exec", *self.command]))

    def step(self, *options: str) -> pathlib.Path:
        """A script for sbatch, with a step whose tasks are takers."""
        return self.script_of(" ".join(["exec", "srun", "--chdir=/", *options, *self.command]))

    def count(self) -> int:
        """How many have all they get."""
        return len(list(self.folder.glob("*.told")))

    def answers(self) -> list[dict[str, Any]]:
        """What these told, by node and number of the task."""
        facts = [json.loads(path.read_text()) for path in self.folder.glob("*.told")]
        return sorted(facts, key=lambda fact: (fact["SLURMD_NODENAME"], fact["SLURM_PROCID"]))

    def wait(self, count: int) -> list[dict[str, Any]]:
        """The same, when so many have told."""
        self._slurm.until(lambda: self.count() == count)
        return self.answers()

    def end(self) -> None:
        """Let them end."""
        (self.folder / "end").touch()

    def script_of(self, *lines: str) -> pathlib.Path:
        """A script for sbatch that does this alone."""
        path = self.folder / f"{os.urandom(4).hex()}.sh"
        path.write_text("".join(f"{line}\n" for line in ("#!/bin/sh", *lines)))
        return path


def shared_folder(slurm: held_slurm.HeldSlurm) -> pathlib.Path:
    """One that jobs may write to."""
    folder = slurm.folder / f"shared-{os.urandom(4).hex()}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder
