"""Users of a node of a real Slurm: the commands that they type, and programs of theirs."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.cli import top_terminals
from tests.local import users
from tests.native import fenced
from tests.slurm import held_slurm

_PARTAGE = str(held_slurm.partage_command())
_CGROUP = "/sys/fs/cgroup/freezer/slurm_{node}/uid_{uid}/job_{job}/step_0/cgroup.procs"


class Node:
    """The node; each user has a ledger of their own."""

    def __init__(self, slurm: held_slurm.HeldSlurm, stack: contextlib.ExitStack) -> None:
        self.slurm = slurm
        self._stack = stack

    def typed(self, *words: object, user: str = "root") -> subprocess.CompletedProcess[str]:
        """``partage WORDS`` of a user."""
        command = [*_becoming(user), _PARTAGE, *map(str, words)]
        return self.slurm.inside(*command, environment=self.state(user))

    def view(self, user: str = "root") -> dict[str, Any]:
        """What ``partage ps`` tells programs."""
        done = self.typed("ps", "-o", "json", user=user)
        assert done.returncode == 0, done.stderr
        view: dict[str, Any] = json.loads(done.stdout)
        return view

    def rows(self, user: str = "root") -> dict[str, dict[str, Any]]:
        """The jobs that it shows, by user; not their steps."""
        rows = self.view(user)["tenants"]
        return {row["user"]: row for row in rows if row["step"] is None}

    def state(self, user: str) -> dict[str, str]:
        """The variables that name the user's own ledger."""
        folder = self.slurm.folder / f"ledger-{user}"
        if not folder.exists():
            folder.mkdir(mode=0o700)
            record = pwd.getpwnam(user)
            os.chown(folder, record.pw_uid, record.pw_gid)
        return {"PARTAGE_STATE": str(folder), "HOME": "/nonexistent"}

    def top(self, user: str = "root") -> top_terminals.Terminal:
        """``partage top`` on a terminal."""
        command = self.slurm.private.command_inside(*_becoming(user), _PARTAGE, "top")
        environment = {**self.slurm.environment, **self.state(user)}
        return top_terminals.Terminal(*command, environment=environment)

    def watch(self, *options: str) -> subprocess.Popen[str]:
        """``partage watch`` of root; it goes on."""
        watch = subprocess.Popen(
            self.slurm.private.command_inside(_PARTAGE, "watch", *options),
            env={**self.slurm.environment, **self.state("root")},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._stack.callback(watch.communicate)
        self._stack.callback(watch.kill)
        return watch

    def stranger(self, user: str) -> fenced.Process:
        """A program that Slurm knows nothing of."""
        client = str(self.slurm.folder / held_slurm.PROGRAMS / "client.py")
        command = [*_becoming(user), *held_slurm.ENTRY, client]
        words = [str(word) for word in self.slurm.private.command_inside(*command)]
        stranger = fenced.Process(words, self.slurm.environment)
        self._stack.callback(stranger.kill)
        return stranger

    def stowaway(self, job: int, user: str) -> fenced.Process:
        """The same, put into the step of a job of nobody's, as pam_slurm_adopt does with logins."""
        stowaway = self.stranger(user)
        uid = pwd.getpwnam("nobody").pw_uid
        file = _CGROUP.format(node=self.slurm.node, uid=uid, job=job)
        done = self.slurm.inside("sh", "-c", f"echo {stowaway('os.getpid()')} >{file}")
        assert done.returncode == 0, done.stderr
        return stowaway

    def in_a_job(self, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A script in a job of root's, in which ``partage`` is the command."""
        command = ["srun", "--chdir=/", *options, "sh", "-c", with_command(script)]
        return self.slurm.inside(*command, environment=self.state("root"))


def with_command(script: str) -> str:
    """A script of the shell that knows the command."""
    return f'partage() {{ {shlex.quote(_PARTAGE)} "$@"; }}\n{script}'


@contextlib.contextmanager
def on(slurm: held_slurm.HeldSlurm) -> Iterator[Node]:
    """The users of a node; what they left is ended in the end."""
    with contextlib.ExitStack() as stack:
        yield Node(slurm, stack)


def _becoming(user: str) -> list[str]:
    return [] if user == "root" else users.becoming(pwd.getpwnam(user).pw_uid, ())
