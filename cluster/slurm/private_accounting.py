"""The accounting of a private Slurm: slurmdbd and its MariaDB, of Debian's packages, in its folder.

The database listens on a socket in that folder alone, and slurmdbd on the address of this machine's
name, which nobody can choose (loopback on most). As the rest of a private Slurm, both are in its
namespace of processes, and end with it.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from cluster import child_processes
from cluster.node import namespace_processes

PROGRAMS = ("slurmdbd", "mariadbd", "mariadb-install-db", "sacct", "sacctmgr")
PACKAGES = "slurmdbd mariadb-server-core mariadb-client-core"

_PATIENCE_S = 60.0
Start = Callable[..., None]  # a process of the private Slurm, a program and its options


class Accounting:
    """Both programs."""

    def __init__(self, folder: Path, run: Path) -> None:
        self._folder = folder
        self._data = folder / "mariadb"
        self._database, self._daemon = (
            namespace_processes.Process(name, run, ends_with_parent=True)
            for name in ("mariadbd", "slurmdbd")
        )
        self._port: child_processes.Port | None = None

    @property
    def processes(self) -> Sequence[namespace_processes.Process]:
        """In the order in which they are started."""
        return self._database, self._daemon

    @property
    def settings(self) -> list[str]:
        """For slurm.conf."""
        assert self._port is not None
        return [
            "AccountingStorageType=accounting_storage/slurmdbd",
            f"AccountingStorageHost={_own_address()}",
            f"AccountingStoragePort={self._port.number}",
            f"AccountingStoragePass={self._folder / 'munge.sock'}",  # with munge: its socket
        ]

    @property
    def environment(self) -> dict[str, str]:
        """In which slurmdbd finds the socket of the database."""
        return {"MYSQL_UNIX_PORT": str(self._folder / "mariadb.sock")}

    def prepare(self) -> None:
        """Make the files, before slurm.conf is written."""
        self._port = child_processes.Port(_own_address())
        configuration = self._folder / "slurmdbd.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("".join(f"{line}\n" for line in self._slurmdbd_conf()))
        options = ("--no-defaults", "--user=root", "--skip-test-db", f"--datadir={self._data}")
        login = "--auth-root-authentication-method=normal"  # no password: it is for tests
        done = subprocess.run(
            ["mariadb-install-db", *options, login], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise child_processes.ProgramFailed(f"mariadb-install-db: {done.stdout}{done.stderr}")

    def start(self, start: Start) -> None:
        """Both, one after the other, when munged runs."""
        listening = self._folder / "mariadb.sock"
        start(
            self._database,
            "mariadbd",
            "--no-defaults",
            "--user=root",
            "--skip-networking",
            "--innodb-flush-log-at-trx-commit=0",
            f"--datadir={self._data}",
            f"--socket={listening}",
            f"--pid-file={self._folder / 'mariadb.pid'}",
        )
        self._database.wait_until(listening.exists, patience_seconds=_PATIENCE_S)
        self.start_daemon(start)

    def start_daemon(self, start: Start) -> None:
        """slurmdbd alone."""
        assert self._port is not None
        start(self._daemon, "slurmdbd", "-D")
        self._daemon.wait_until(self._port.is_served, patience_seconds=_PATIENCE_S)

    def stop_daemon(self) -> None:
        """slurmdbd alone."""
        self._daemon.stop()

    def release(self) -> None:
        """Give the port back."""
        if self._port is not None:
            self._port.release()

    def _slurmdbd_conf(self) -> list[str]:
        assert self._port is not None
        return [
            f"AuthInfo=socket={self._folder / 'munge.sock'}",
            "AuthType=auth/munge",
            "DbdHost=localhost",
            f"DbdAddr={_own_address()}",
            f"DbdPort={self._port.number}",
            f"PidFile={self._folder / 'slurmdbd.own.pid'}",
            "CommunicationParameters=NoInAddrAny",
            "SlurmUser=root",
            "StorageType=accounting_storage/mysql",
            "StorageHost=localhost",
            "StorageUser=root",
            "StorageLoc=slurm",
        ]


def _own_address() -> str:
    return socket.gethostbyname(socket.gethostname())
