"""A real Slurm whose jobs are held to their shares of simulated cards.

Jobs are those of other users than root, so everything that they need is in a folder that they can
reach. The daemons and the jobs see a copy of /etc, in which the node is prepared: the machine's own
is left as it is.
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
from native import compilers, libraries, parts
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
_PROGRAMS = "checkout/tests/native"  # client.py finds what it needs above itself


class HeldSlurm:
    """One node, its cards, and the plugin."""

    def __init__(self, folder: pathlib.Path, cards: str, arguments: Sequence[str] = ()) -> None:
        real_slurm.need()
        self.folder = folder
        self.plugin = plugin(folder)
        self.arguments = arguments
        self._output = folder / "output"
        self._output.mkdir()
        self._output.chmod(0o777)
        self._copy_files()
        self.devices = real_slurm.devices(folder, cards)
        (folder / "simulated-machine").chmod(0o666)  # of all users
        self.private = private_slurm.PrivateSlurm(
            folder / "slurm", cards=len(self.devices), covers={"/etc": folder / "etc"}
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
        return self.folder / "fences"

    @property
    def log(self) -> pathlib.Path:
        """Where what jobs used is written."""
        return self.folder / "log"

    @property
    def root(self) -> roots.Root:
        """The same, opened."""
        return roots.find(self.fences)

    def start(self, *, sharing: str = "shard", settings: Sequence[str] = ()) -> None:
        """Start Slurm with the plugin, and prepare its node."""
        lines = gres_lines.lines(
            self.devices, node=self.node, folder=self.private.devices, sharing=sharing
        )
        types, gres = (line.rpartition("=")[2] for line in lines.slurm_conf)
        self.private.start(
            {self.node: gres},
            types,
            lines.gres_conf,
            settings=[f"Epilog={self._epilog()}", *settings],
            plugstack=[" ".join(["required", str(self.plugin), *self._plugin_arguments()])],
        )
        done = self.prepare()
        assert done.returncode == 0, done.stderr

    def prepare(self) -> subprocess.CompletedProcess[str]:
        """``partage slurm prepare`` on the node."""
        folders = ("--root", self.fences, "--library-folder", self.folder / "lib")
        return self.partage("prepare", *folders)

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
        done = self.partage("usage", str(job), "-o", "json", "--log-folder", self.log)
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

    def _plugin_arguments(self) -> list[str]:
        return [f"root={self.fences}", *self.arguments]

    def _epilog(self) -> pathlib.Path:
        """What `partage slurm install` writes, with the folders of this one."""
        path = self.folder / "epilog"
        words = f"slurm epilog --root {self.fences} --log-folder {self.log}"
        path.write_text(f"#!/bin/sh\nexec {partage_command()} {words}\n")
        path.chmod(0o755)
        return path

    def _copy_files(self) -> None:
        shutil.copytree("/etc", self.folder / "etc", symlinks=True)
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


def plugin(folder: pathlib.Path) -> pathlib.Path:
    """The plugin, built with the headers of this machine's Slurm."""
    try:
        return libraries.spank(folder / "plugin", compilers.system())
    except compilers.LeftOut as reason:
        leaving_out.leave_out("the plugin of Slurm", reason)


@contextlib.contextmanager
def opened(cards: str, *arguments: str, **options: Any) -> Iterator[HeldSlurm]:
    """One that runs, and is ended in the end."""
    with tempfile.TemporaryDirectory(prefix="partage-slurm-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        slurm = HeldSlurm(folder, cards, arguments)
        try:
            slurm.start(**options)
            yield slurm
        finally:
            slurm.end()
