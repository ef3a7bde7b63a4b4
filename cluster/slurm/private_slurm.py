"""A private Slurm: munged, slurmctld and slurmd of Debian's packages, on loopback, in one folder.

Nothing of the machine's own Slurm or munge is used or changed. All programs, and the jobs, are in
one namespace of processes (:mod:`cluster.node.namespaces`): when its first process ends, the kernel
ends all others, and their cgroups are removed. So nothing stays behind, even if the process that
started it is killed.

Another Slurm than the machine's comes from a tree: a folder with the /usr of another Debian, which
its processes then see as theirs. /bin, /lib and /sbin lead there in every Debian of today.

A node can have places of its own, such as a /run: its slurmd and the jobs there see them covered.

Nodes have names with the process id in them, because Slurm names its cgroups after them, and the
whole machine sees those.
"""

from __future__ import annotations

import functools
import itertools
import os
import secrets
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from cluster import child_processes
from cluster.node import namespace_processes
from cluster.slurm import private_accounting

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scontrol", "squeue", "sinfo")
PACKAGES = "slurm-wlm munge"
PATIENCE_S = 60.0

_FOLDERS = ("run", "state", "spool", "dev")
_GROUPS = ("freezer", "devices")  # the hierarchies that Slurm makes cgroups in
_CGROUPS = Path("/sys/fs/cgroup")
_SEARCHED = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_LOCAL = Path("/usr/local")
_SPOOL = "/mnt"  # as the programs see it: names of sockets are short, and those of folders long
_SCHEDULING = (
    "batch_sched_delay=0",
    "sched_min_interval=50000",
    "sched_interval=2",
    "bf_interval=1",  # which starts heterogeneous jobs
)
_NVIDIA = 195  # the major number of its cards
_NUMBERS = itertools.count(1)  # of the Slurms of this process
_NO_COVERS: Mapping[str, Path] = MappingProxyType({})


class CannotRun(Exception):
    """This machine cannot have a Slurm of its own; the text says why."""


def check_machine(tree: Path | None = None, *, accounting: bool = False) -> None:
    """Raise CannotRun if this machine cannot have one."""
    if os.geteuid() != 0:
        raise CannotRun("slurmd needs root; run this as root")
    _need_programs(PROGRAMS, PACKAGES, tree)
    if accounting:
        _need_programs(private_accounting.PROGRAMS, private_accounting.PACKAGES, tree)
    missing = [name for name in _GROUPS if not (_CGROUPS / name / "tasks").exists()]
    if missing:
        raise CannotRun(f"there are no cgroups of version 1 for {missing[0]}")


class PrivateSlurm:
    """A controller and its nodes, all on this machine."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 1,
        cards: int = 2,
        covers: Mapping[str, Path] = _NO_COVERS,
        node_covers: Sequence[Mapping[str, Path]] = (),
        settings: Sequence[str] = (),
        selection: str = "CR_Core",
        tree: Path | None = None,
        accounting: bool = False,
    ) -> None:
        """``covers`` is what its processes and jobs see in other places than the machine has it.

        ``node_covers`` is the same for each node alone; none, if the nodes have nothing apart.
        ``settings`` are more lines of slurm.conf, and ``selection`` is its SelectTypeParameters.
        ``tree`` has the /usr of another Slurm than the machine's.
        """
        prefix = f"p{os.getpid()}s{next(_NUMBERS)}"
        self.folder = folder.resolve()
        self.nodes = [f"{prefix}n{number}" for number in range(1, nodes + 1)]
        self.devices = self.folder / "dev"  # where nvidia0 and the others are
        self._cards = cards
        self._tree = tree
        self._covers = {**_covers_of(tree), **covers}
        self._node_covers = dict(zip(self.nodes, node_covers, strict=True)) if node_covers else {}
        self._settings = settings
        self._selection = selection
        run = self.folder / "run"
        self._first, self._munged, self._controller, *self._daemons = (
            namespace_processes.Process(name, run, ends_with_parent=True)
            for name in ("first", "munged", "slurmctld", *self.nodes)
        )
        self._ports: list[child_processes.Port] = []
        self.accounting = private_accounting.Accounting(self.folder, run) if accounting else None

    @property
    def environment(self) -> dict[str, str]:
        """In which Slurm's commands speak to this one."""
        return {
            **os.environ,
            "PATH": _SEARCHED,
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            **(self.accounting.environment if self.accounting else {}),
        }

    def start(
        self,
        gres: Mapping[str, str],
        gres_types: str,
        gres_conf: Sequence[str],
    ) -> None:
        """Start with these resources of each node; if a part fails, nothing is left running."""
        check_machine(self._tree, accounting=self.accounting is not None)
        try:
            self._make_folder()
            if self.accounting:
                self.accounting.prepare()
            self.write("slurm.conf", self._slurm_conf(gres, gres_types))
            self.write("gres.conf", gres_conf)
            self.write("plugstack.conf", [])
            self.write("cgroup.conf", _cgroup_conf())
            self._start_first()
            self._start_munged()
            if self.accounting:
                self.accounting.start(self.start_inside)
            self._start_slurm()
        except BaseException:
            self.stop()
            raise

    def restart(self) -> None:
        """End slurmd and slurmctld, and start them with what the files say now."""
        for process in (*self._daemons, self._controller):
            process.stop()
        self._start_slurm()

    def restart_nodes(self) -> None:
        """Kill each slurmd, and start it again; jobs run on."""
        for node in self.nodes:
            self.kill_node(node)
            self.start_node(node)

    def kill_node(self, node: str) -> None:
        """Kill a node's slurmd; jobs run on."""
        self._daemons[self.nodes.index(node)].kill()

    def start_node(self, node: str) -> None:
        """Start a node's slurmd again."""
        number = self.nodes.index(node)
        self._start_slurmd(self._daemons[number])
        self._daemons[number].wait_until(
            self._ports[number + 1].is_served, patience_seconds=PATIENCE_S
        )

    def stop(self) -> None:
        """End everything at once, jobs too."""
        for process in reversed(self._processes):
            process.kill()
        for port in self._ports:
            port.release()
        self._ports = []
        if self.accounting:
            self.accounting.release()

    def stop_controller(self) -> None:
        """End slurmctld; jobs run on."""
        self._controller.stop()

    def write(self, name: str, lines: Sequence[str]) -> None:
        """A file of the configuration; it holds from the next start."""
        (self.folder / name).write_text("".join(f"{line}\n" for line in lines))

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command of Slurm, until it ends."""
        with self.spawn(*command, stderr=subprocess.PIPE) as process:
            try:
                out, err = process.communicate(timeout=PATIENCE_S)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(command, process.returncode, out.decode(), err.decode())

    def spawn(self, *command: str, stderr: int = subprocess.STDOUT) -> subprocess.Popen[bytes]:
        """The same without waiting; it ends with this Slurm at the latest."""
        return child_processes.spawn(
            self.command_inside(*command),
            ends_with_parent=True,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=self.environment,
        )

    def logs(self) -> str:
        """The ends of all logs, for who has to find out what went wrong."""
        return "\n".join(f"{process.name}:\n{process.log_tail(15)}" for process in self._processes)

    @property
    def _processes(self) -> list[namespace_processes.Process]:
        """In the order in which they are started."""
        accounting = self.accounting.processes if self.accounting else ()
        return [self._first, self._munged, *accounting, self._controller, *self._daemons]

    def _make_folder(self) -> None:
        for name in _FOLDERS:
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(self._cards):
            os.mknod(self.devices / f"nvidia{number}", 0o20666, os.makedev(_NVIDIA, number))
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        self._write_mounts("mounts", {_SPOOL: self.folder / "spool", **self._covers})
        for node, covers in self._node_covers.items():
            self._write_mounts(f"{node}.mounts", covers)
        self._ports = [child_processes.Port() for _ in range(len(self.nodes) + 1)]

    def _write_mounts(self, name: str, covers: Mapping[str, Path]) -> None:
        self.write(name, [f"{place}\t{cover}" for place, cover in covers.items()])

    def _start_first(self) -> None:
        groups = [_CGROUPS / group / f"slurm_{node}" for group in _GROUPS for node in self.nodes]
        command = [*namespace_processes.COMMAND, "make", self.folder / "mounts", *groups]
        self._first.start(command)
        self._first.wait_until(
            lambda: namespace_processes.has_mounts(self._first, self.folder / "mounts")
        )

    def _start_munged(self) -> None:
        socket = self.folder / "munge.sock"
        options = {
            "key-file": "munge.key",
            "socket": socket.name,
            "pid-file": "munged.pid",
            "log-file": "munged.log",
            "seed-file": "munged.seed",
        }
        paths = [f"--{option}={self.folder / name}" for option, name in options.items()]
        self.start_inside(
            self._munged, "munged", "--foreground", "--force", "--num-threads=2", *paths
        )
        self._munged.wait_until(socket.exists, patience_seconds=PATIENCE_S)

    def _start_slurm(self) -> None:
        """What the last controller remembers is of no use to anybody."""
        self.start_inside(self._controller, "slurmctld", "-D", "-c")
        self._controller.wait_until(self._answers, patience_seconds=PATIENCE_S)
        for daemon in self._daemons:
            self._start_slurmd(daemon)
        for daemon in self._daemons:
            is_idle = functools.partial(self._is_idle, daemon.name)
            daemon.wait_until(is_idle, patience_seconds=PATIENCE_S)

    def _start_slurmd(self, daemon: namespace_processes.Process) -> None:
        command = self.command_on(daemon.name, "slurmd", "-D", "-N", daemon.name)
        daemon.start(command, env=self.environment)

    def _answers(self) -> bool:
        return " is UP" in self.run("scontrol", "ping").stdout

    def _is_idle(self, node: str) -> bool:
        answer = self.run("sinfo", "--noheader", "--nodes", node, "--format", "%T")
        return answer.stdout.strip() == "idle"

    def start_inside(
        self, process: namespace_processes.Process, program: str, *options: str
    ) -> None:
        """Start a program beside the daemons."""
        process.start(self.command_inside(program, *options), env=self.environment)

    def command_inside(self, program: str, *options: str) -> list[str | Path]:
        """What has to be started for a program to run beside the daemons."""
        first = str(namespace_processes.first_pid(self._first))
        return [*namespace_processes.COMMAND, "enter", first, self._path(program), *options]

    def command_on(self, node: str, program: str, *options: str) -> list[str | Path]:
        """The same for a program on a node, which sees what the node's jobs see."""
        if node not in self._node_covers:
            return self.command_inside(program, *options)
        mounts = self.folder / f"{node}.mounts"
        covered = [*namespace_processes.COMMAND, "cover", mounts, self._path(program), *options]
        return self.command_inside(*map(str, covered))

    def _path(self, program: str) -> str:
        return _found(program, self._tree) or program

    def _slurm_conf(self, gres: Mapping[str, str], gres_types: str) -> list[str]:
        controller, *ports = (port.number for port in self._ports)
        return [
            "ClusterName=private",
            f"SlurmctldHost=localhost({child_processes.LOOPBACK})",
            f"SlurmctldPort={controller}",
            "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny  # loopback only",
            "SlurmUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"AuthInfo=socket={self.folder / 'munge.sock'}",
            f"StateSaveLocation={self.folder / 'state'}",
            f"SlurmdSpoolDir={_SPOOL}/%n",
            f"SlurmctldPidFile={self.folder / 'slurmctld.own.pid'}",
            f"SlurmdPidFile={self.folder}/%n.own.pid",
            "SlurmdParameters=config_overrides  # any number of processors",
            "MailProg=/bin/true",
            "MpiDefault=none",
            "ReturnToService=2",
            "KillWait=2",
            "ProctrackType=proctrack/cgroup",
            "TaskPlugin=task/cgroup",
            "SelectType=select/cons_tres",
            f"SelectTypeParameters={self._selection}",
            f"SchedulerParameters={','.join(_SCHEDULING)}",
            *self._settings,
            *(self.accounting.settings if self.accounting else ()),
            f"GresTypes={gres_types}",
            *(
                f"NodeName={node} NodeHostname={os.uname().nodename.partition('.')[0]} "
                f"NodeAddr={child_processes.LOOPBACK} Port={port} CPUs=8 CoresPerSocket=8 "
                f"RealMemory=1000 Gres={gres[node]}"
                for node, port in zip(self.nodes, ports, strict=True)
            ),
            f"PartitionName=all Nodes={','.join(self.nodes)} Default=YES State=UP",
        ]


def _found(program: str, tree: Path | None) -> str | None:
    """Where a program is, as those see it whose /usr is that of the tree."""
    outside = shutil.which(program, path=_SEARCHED)
    if tree is None or program.startswith(os.sep):
        return outside
    folders = [f"{tree}{folder}" for folder in _SEARCHED.split(os.pathsep)]
    inside = shutil.which(program, path=os.pathsep.join(folders))
    return inside and inside.removeprefix(str(tree))


def _covers_of(tree: Path | None) -> dict[str, Path]:
    """/usr/local stays the machine's: the Python that runs this may be there."""
    if tree is None:
        return {}
    kept = tree / "local"
    kept.mkdir(exist_ok=True)
    return {
        str(kept): _LOCAL,
        "/usr": tree / "usr",
        str(_LOCAL): kept,
        "/etc": tree / "etc",
    }


def _need_programs(names: Sequence[str], packages: str, tree: Path | None) -> None:
    for name in names:
        if not _found(name, tree):
            raise CannotRun(f"there is no {name}; install Debian's {packages}")


def _cgroup_conf() -> list[str]:
    return ["CgroupPlugin=cgroup/v1", f"CgroupMountpoint={_CGROUPS}", "ConstrainDevices=yes"]
