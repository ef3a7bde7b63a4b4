"""A real Slurm whose jobs are held to their shares of simulated cards.

Jobs are those of other users than root, so everything that they need is in a folder that they can
reach. The daemons and the jobs see a copy of /etc, and a /run and a /var/lib of their own, in which
the node is prepared as a real one would be: the machine's own is left as it is.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from cluster.slurm import private_slurm
from native import libraries, parts
from partage.fence import usage
from partage.fence.store import roots, tenants
from partage.slurm import gres_lines, job_end
from tests import leaving_out
from tests.native import fenced
from tests.slurm import real_slurm

USERS = ("nobody", "daemon")
PATIENCE_S = 30.0
PYTHON = "/usr/bin/python3"
ENTRY = (PYTHON, "-I", "-S")
# What the daemons and jobs see of the machine; the rest is the machine's own.
_COVERS = {"/etc": "etc", "/run": "run", "/var/lib": "var"}
_PROGRAMS = "checkout/tests/native"  # client.py finds what it needs above itself


class HeldSlurm:
    """One node, its cards, and the plugin."""

    def __init__(self, folder: pathlib.Path, cards: str) -> None:
        real_slurm.need()
        need_plugin()
        self.folder = folder
        self._output = folder / "output"
        self._output.mkdir()
        self._output.chmod(0o777)
        self._copy_files()
        self.devices = real_slurm.devices(folder, cards)
        (folder / "simulated-machine").chmod(0o666)  # of all users
        covers = {place: folder / name for place, name in _COVERS.items()}
        self.private = private_slurm.PrivateSlurm(
            folder / "slurm", cards=len(self.devices), covers=covers
        )
        self.environment = {
            **self.private.environment,
            "LD_LIBRARY_PATH": str(folder / "simulated"),
            "SIMCUDA_STATE": str(folder / "simulated-machine"),
            "SIMCUDA_CARDS": cards,
        }
        self._stack = contextlib.ExitStack()

    @property
    def node(self) -> str:
        """Its only node."""
        return self.private.nodes[0]

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
        """The same, opened."""
        return roots.find(self.fences)

    def start(self, *, sharing: str = "shard", compute: str = "burst") -> None:
        """Start Slurm as an administrator would: install, prepare, start again."""
        lines = gres_lines.lines(
            self.devices, node=self.node, folder=self.private.devices, sharing=sharing
        )
        types, gres = (line.rpartition("=")[2] for line in lines.slurm_conf)
        self.private.start({self.node: gres}, types, lines.gres_conf)
        words = ("--conf", self.private.folder, "--folder", self.folder / "plugin")
        for done in (self.partage("install", *words, "--compute", compute), self.prepare()):
            assert done.returncode == 0, done.stderr
        self.private.restart()

    def prepare(self) -> subprocess.CompletedProcess[str]:
        """``partage slurm prepare`` on the node."""
        return self.partage("prepare", "--conf", self.private.folder)

    def partage(self, *arguments: str | pathlib.Path) -> subprocess.CompletedProcess[str]:
        """``partage slurm ARGUMENTS`` on the node, as root."""
        words = list(map(str, arguments))
        return self.inside(str(partage_command()), "slurm", *words)

    def inside(
        self, *command: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """A program beside the daemons, until it ends."""
        return subprocess.run(
            self.private.command_inside(*command),
            env={**self.environment, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=private_slurm.PATIENCE_S,
        )

    def srun(
        self, *words: str, user: str = USERS[0], **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """A job of one step, until it ends."""
        return self.inside(*_as(user), "srun", "--chdir=/", *words, environment=environment)

    def program(self, *words: str, user: str = USERS[0], **environment: str) -> fenced.Process:
        """A job whose program does what it is told; it has started when this returns."""
        client = str(self.folder / _PROGRAMS / "client.py")
        command = [*_as(user), "srun", "--chdir=/", *words, *ENTRY, client]
        started = fenced.Process(
            [str(word) for word in self.private.command_inside(*command)],
            {**self.environment, **environment},
        )
        self._stack.callback(started.kill)
        started("None")  # answered
        return started

    def submit(self, script: pathlib.Path, *words: str, user: str = USERS[0]) -> int:
        """A job that is a script; its number."""
        options = ["--parsable", "--chdir=/", f"--output={self._output}/%j.txt", *words]
        done = self.inside(*_as(user), "sbatch", *options, str(script))
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def output(self, job: int) -> str:
        """What a script printed so far."""
        path = self._output / f"{job}.txt"
        return path.read_text() if path.exists() else ""

    def uses(self, job: int) -> list[dict[str, Any]]:
        """What is known of a job that has ended."""
        done = self.partage("usage", str(job), "-o", "json")
        return json.loads(done.stdout)["uses"] if done.returncode == 0 else []

    def jobs(self) -> list[int]:
        """Those that have a tenant here."""
        return sorted(int(name.removeprefix("job-")) for name in tenants.names(self.root))

    def used(self, job: int) -> usage.CardUsage:
        """What the node side reads of a job's card."""
        return usage.snapshot(self.root, job_end.tenant_name(job)).cards[0]

    def until(self, is_so: Callable[[], Any]) -> Any:
        """What is true within some seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := is_so()):
            assert time.monotonic() < deadline, self.private.logs()
            time.sleep(0.05)
        return answer

    def end(self) -> None:
        """End all of it."""
        self.private.stop()
        self._stack.close()

    def _copy_files(self) -> None:
        for name in _COVERS.values():
            (self.folder / name).mkdir()
        shutil.copytree("/etc", self.folder / "etc", symlinks=True, dirs_exist_ok=True)
        shutil.copytree(parts.LIB / "simulated", self.folder / "simulated", symlinks=True)
        shutil.copytree(
            fenced.HERE, self.folder / _PROGRAMS, ignore=lambda _, names: _but_programs(names)
        )


def _as(user: str) -> list[str]:
    """How root starts a program as another user."""
    record = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={record.pw_uid}", f"--regid={record.pw_gid}", "--clear-groups"]


def _but_programs(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(("client.py", "ways"))]


def partage_command() -> pathlib.Path:
    """The command of this installation."""
    return pathlib.Path(sys.executable).with_name("partage")


def need_plugin() -> None:
    """Leave the test out where the plugin was not built."""
    if not (parts.LIB / "spank" / libraries.SPANK).exists():
        leaving_out.leave_out("the plugin of Slurm", "build it with `python -m native spank`")


@contextlib.contextmanager
def opened(cards: str, **options: str) -> Iterator[HeldSlurm]:
    """One that runs, and is ended in the end."""
    with tempfile.TemporaryDirectory(prefix="partage-slurm-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        slurm = HeldSlurm(folder, cards)
        try:
            slurm.start(**options)
            yield slurm
        finally:
            slurm.end()
