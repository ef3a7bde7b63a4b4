"""Slurm's own programs, asked with a limit of time: ``scontrol``, ``squeue`` and ``slurmd -V``."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping

import msgspec

from partage.core import errors

_TIMEOUT_S = 20.0  # Slurm itself gives up after 10 s, and may try again
_VERSION = re.compile(r"\b(\d{2})\.(\d{2})\b", re.ASCII)
_LONGEST_REASON = 300


class SlurmError(errors.PartageError):
    """A program of Slurm is missing, or does not answer."""

    code = "bad-slurm"


class Version(msgspec.Struct, frozen=True, order=True):
    """Of Slurm, such as 22.05."""

    year: int
    month: int

    def __str__(self) -> str:
        return f"{self.year}.{self.month:02}"


def answer(
    program: str,
    *arguments: str,
    environ: Mapping[str, str] = os.environ,
    timeout_s: float = _TIMEOUT_S,
) -> str:
    """What a program prints; raises SlurmError with what to do."""
    try:
        done = subprocess.run(
            [program, *arguments],
            env={**environ, "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=timeout_s,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"there is no program {program}",
            instead="run this where Slurm's commands are installed (on Debian: slurm-client)",
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(
            f"{program} got no answer from Slurm's controller within {timeout_s:g} s",
            instead="see `scontrol ping`, and the log of slurmctld",
        ) from None
    except OSError as error:
        raise SlurmError(f"{program} cannot be started ({error.strerror})") from error
    if done.returncode:
        raise SlurmError(
            f"{program} failed: {_reason(done.stderr or done.stdout)}",
            instead="see `scontrol ping`, and SLURM_CONF if slurm.conf is elsewhere",
        )
    return done.stdout.decode(errors="replace")


def version(environ: Mapping[str, str] = os.environ) -> Version | None:
    """Of slurmd on this machine, or of the commands; None if there is neither."""
    for program in ("slurmd", "/usr/sbin/slurmd", "scontrol"):
        try:
            match = _VERSION.search(answer(program, "-V", environ=environ))
        except SlurmError:
            continue
        if match:
            return Version(int(match[1]), int(match[2]))
    return None


def _reason(output: bytes) -> str:
    lines = output.decode(errors="replace").split("\n")
    return " ".join(line.strip() for line in lines if line.strip())[:_LONGEST_REASON]
