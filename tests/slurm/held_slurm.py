"""A real Slurm whose jobs are held to their shares of simulated cards.

Jobs are those of other users than root, so everything that they need is in a folder that they can
reach. The daemons and the jobs see a copy of /etc, and a /run and a /var/lib of their own, in which
the node is prepared as a real one would be: the machine's own is left as it is. Where there are
several nodes, each has a /run, a /var/lib and simulated cards that the others do not see.
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
from partage.devices import nvml
from partage.fence import usage
from partage.fence.store import roots
from partage.slurm.configuration import gres_lines
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_node, real_slurm

USERS = ("nobody", "daemon")
PATIENCE_S = 60.0  # of a machine that does other things, too
PYTHON = "/usr/bin/python3"
ENTRY = (PYTHON, "-I", "-S")
_PROGRAM_FILES = ("client.py", "timed_kernels.py", "ways")
PROGRAMS = "checkout/tests/native"  # client.py finds what it needs above itself


class HeldSlurm:
    """Nodes, their cards, and the plugin. What is asked without a node is about the first."""

    def __init__(
        self,
        folder: pathlib.Path,
        cards: str,
        *,
        nodes: int = 1,
        accounting: bool = False,
        **options: Any,
    ) -> None:
        """``options`` are those of the private Slurm."""
        real_slurm.need(accounting=accounting)
        need_plugin()
        self.folder = folder
        self._output = folder / "output"
        self._output.mkdir()
        self._output.chmod(0o777)
        self._copy_files()
        own = [folder] if nodes == 1 else [folder / f"node-{n}" for n in range(1, nodes + 1)]
        self.held_nodes = [held_node.HeldNode(place, cards) for place in own]
        self.private = self._made(accounting=accounting, **options)
        self.environment = {
            **self.private.environment,
            "LD_LIBRARY_PATH": str(folder / "simulated"),
            "SIMCUDA_STATE": str(folder / held_node.MACHINE / self.held_nodes[0].state.name),
            "SIMCUDA_CARDS": cards,
        }
        self._stack = contextlib.ExitStack()

    @property
    def node(self) -> str:
        """Its first node."""
        return self.private.nodes[0]

    @property
    def devices(self) -> Sequence[nvml.Device]:
        """The cards of the first node; the others have the same."""
        return self.held_nodes[0].devices

    @property
    def fences(self) -> pathlib.Path:
        """The root of the first node's tenants."""
        return self.held_nodes[0].fences

    @property
    def root(self) -> roots.Root:
        """The same, opened."""
        return self.held_nodes[0].root

    def start(self, *, sharing: str, compute: str) -> None:
        """Start Slurm as an administrator would: install, prepare, start again."""
        types, gres, lines = self._lines(sharing)
        self.private.start(gres, types, lines)
        words = ("--conf", self.private.folder, "--folder", self.folder / "plugin")
        for done in (
            self.partage("install", *words, "--compute", compute),
            *map(self.prepare, self.private.nodes),
        ):
            assert done.returncode == 0, done.stderr
        self._lead_prolog_to_driver()
        self.private.restart()

    @contextlib.contextmanager
    def without_prolog(self) -> Iterator[None]:
        """Nodes that were not prepared stay so."""
        prolog = self.folder / "plugin/slurm-prolog"
        text = prolog.read_text()
        prolog.write_text("#!/bin/sh\n")
        try:
            yield
        finally:
            prolog.write_text(text)

    def prepare(self, node: str = "") -> subprocess.CompletedProcess[str]:
        """``partage slurm prepare`` on a node."""
        words = ("prepare", "--conf", self.private.folder, "--node", node or self.node)
        return self.partage(*words, node=node)

    def partage(
        self, *arguments: str | pathlib.Path, node: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """``partage slurm ARGUMENTS`` on a node, as root."""
        words = list(map(str, arguments))
        return self.inside(str(partage_command()), "slurm", *words, node=node)

    def simsmi(self, *words: str, node: str = "") -> str:
        """What the tool for a node's simulated cards prints."""
        done = self.inside(str(self.folder / "simulated/simsmi"), *words, node=node)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def inside(
        self, *command: str, environment: dict[str, str] | None = None, node: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """A program on a node, until it ends."""
        return subprocess.run(
            self.private.command_on(node or self.node, *command),
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
        return self.inside(*as_user(user), "srun", "--chdir=/", *words, environment=environment)

    @property
    def client(self) -> list[str]:
        """The command of a program that does what it is told."""
        return [*ENTRY, str(self.folder / PROGRAMS / "client.py")]

    def program(self, *words: str, user: str = USERS[0], **environment: str) -> fenced.Process:
        """A job of one step that is such a program; it has started when this returns."""
        command = ["srun", "--chdir=/", *words, *self.client]
        return self.started(*command, user=user, **environment)

    def started(self, *command: str, user: str = USERS[0], **environment: str) -> fenced.Process:
        """A command that becomes such a program; it has become it when this returns."""
        started = fenced.Process(
            list(map(str, self.private.command_inside(*as_user(user), *command))),
            {**self.environment, **environment},
        )
        self._stack.callback(started.kill)
        started("None")  # answered
        return started

    def submit(
        self, script: pathlib.Path, *words: str, user: str = USERS[0], **environment: str
    ) -> int:
        """A job that is a script; its number."""
        options = ["--parsable", "--chdir=/", f"--output={self._output}/%j.txt", *words]
        command = [*as_user(user), "sbatch", *options, str(script)]
        done = self.inside(*command, environment=environment)
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def output(self, job: int) -> str:
        """What a script printed so far."""
        path = self._output / f"{job}.txt"
        return path.read_text() if path.exists() else ""

    def uses(self, job: int, node: str = "") -> list[dict[str, Any]]:
        """What is known on a node of a job that has ended."""
        done = self.partage("usage", str(job), "-o", "json", node=node)
        return json.loads(done.stdout)["uses"] if done.returncode == 0 else []

    def jobs(self) -> list[int]:
        """Those that have a tenant on the first node."""
        return self.held_nodes[0].jobs()

    def used(self, job: int) -> usage.CardUsage:
        """What the node side reads of a job's card on the first node."""
        return self.held_nodes[0].used(job)

    def until(self, is_so: Callable[[], Any]) -> Any:
        """What is true within some seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while not (answer := is_so()):
            assert time.monotonic() < deadline, self.private.logs()
            time.sleep(0.05)
        return answer

    def end_jobs(self) -> None:
        """End the jobs of all users; none is left when this returns."""
        for user in USERS:
            self.inside("scancel", "--full", f"--user={user}")
        self.until_no_job()

    def until_no_job(self) -> None:
        """Until Slurm has no job any more."""
        self.until(lambda: not self.inside("squeue", "--noheader").stdout.strip())

    def end(self) -> None:
        """End all of it."""
        self.private.stop()
        self._stack.close()

    def _made(self, **options: Any) -> private_slurm.PrivateSlurm:
        """The first node's places are those of the controller, too."""
        machine = self.folder / held_node.MACHINE
        machine.mkdir(exist_ok=True)
        covers = [node.covers(machine) for node in self.held_nodes]
        return private_slurm.PrivateSlurm(
            self.folder / "slurm",
            nodes=len(covers),
            cards=len(self.devices),
            covers={"/etc": self.folder / "etc", **covers[0], **_plugin_of_tree()},
            node_covers=covers if len(covers) > 1 else (),
            tree=real_slurm.TREE,
            **options,
        )

    def _lead_prolog_to_driver(self) -> None:
        """slurmd tells scripts nothing of its own environment, and loaders find a real driver."""
        prolog = self.folder / "plugin/slurm-prolog"
        first, rest = prolog.read_text().split("\n", 1)
        names = [name for name in self.environment if name.startswith(("LD_LIBRARY", "SIMCUDA_"))]
        exports = "".join(f"export {name}={self.environment[name]}\n" for name in names)
        prolog.write_text(f"{first}\n{exports}{rest}")

    def _lines(self, sharing: str) -> tuple[str, dict[str, str], list[str]]:
        """GresTypes, what each node has, and gres.conf."""
        gres: dict[str, str] = {}
        conf: list[str] = []
        types = ""
        for name, node in zip(self.private.nodes, self.held_nodes, strict=True):
            lines = gres_lines.lines(
                node.devices, node=name, folder=self.private.devices, sharing=sharing
            )
            types, gres[name] = (line.rpartition("=")[2] for line in lines.slurm_conf)
            conf += lines.gres_conf
        return types, gres, list(dict.fromkeys(conf))  # AutoDetect=off is to be there once

    def _copy_files(self) -> None:
        etc = (real_slurm.TREE or pathlib.Path("/")) / "etc"
        shutil.copytree(etc, self.folder / "etc", symlinks=True)
        shutil.copy("/etc/hosts", self.folder / "etc")  # the machine has its name in any case
        shutil.copytree(parts.LIB / "simulated", self.folder / "simulated", symlinks=True)
        shutil.copytree(
            fenced.HERE, self.folder / PROGRAMS, ignore=lambda _, names: _but_programs(names)
        )


def _plugin_of_tree() -> dict[str, pathlib.Path]:
    """The plugin that was built for the tree's Slurm, in the place of the machine's."""
    return (
        {}
        if real_slurm.TREE is None
        else {str(parts.LIB / "spank"): real_slurm.TREE / "lib-partage/spank"}
    )


def as_user(user: str = USERS[0]) -> list[str]:
    """How root starts a program as another user."""
    record = pwd.getpwnam(user)
    return ["setpriv", f"--reuid={record.pw_uid}", f"--regid={record.pw_gid}", "--clear-groups"]


def _but_programs(names: Sequence[str]) -> list[str]:
    return [name for name in names if not name.startswith(_PROGRAM_FILES)]


def partage_command() -> pathlib.Path:
    """The command of this installation."""
    return pathlib.Path(sys.executable).with_name("partage")


def need_plugin() -> None:
    """Leave the test out where the plugin was not built."""
    if not (parts.LIB / "spank" / libraries.SPANK).exists():
        leaving_out.leave_out("the plugin of Slurm", "build it with `python -m native spank`")


@contextlib.contextmanager
def opened(
    cards: str, *, sharing: str = "shard", compute: str = "burst", **options: Any
) -> Iterator[HeldSlurm]:
    """One that runs, and is ended in the end; the options are those of the class."""
    with tempfile.TemporaryDirectory(prefix="partage-slurm-", dir="/tmp") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        slurm = HeldSlurm(folder, cards, **options)
        try:
            slurm.start(sharing=sharing, compute=compute)
            yield slurm
        finally:
            slurm.end()
