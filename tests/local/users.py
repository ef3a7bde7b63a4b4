"""Other users than the one who runs the tests, for real: processes with their ids and groups.

They need no entry in the user database: their names are then their numbers. An interpreter in a
folder that only root may enter (a pyenv in ``/root``, say) is shown to them at its own path, in a
mount namespace of theirs.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from tests import leaving_out
from tests.local import sites

_CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
_SHOWN = """
set -e
held=$(mktemp -d)
mount --bind {prefix} $held
mount -t tmpfs -o mode=755 none {closed}
mkdir -p {prefix}
mount --bind $held {prefix}
umount $held
rmdir $held
"""


class User(sites.Site):
    """A site as another user sees it; ``folder`` is that of a site of root's."""

    def __init__(
        self,
        folder: pathlib.Path,
        uid: int,
        *gids: int,
        cards: str = "2x16GiB",
        mounting: str = "",  # a command of the shell for a mount that only this user sees
    ) -> None:
        super().__init__(folder, cards)
        self.environment |= {"HOME": "/nonexistent"}
        self._prefix = becoming(uid, gids, mounting)

    def start(self, *arguments: object, **how: Any) -> subprocess.Popen[str]:
        """``partage ARGUMENTS`` as a process of this user."""
        return self.program(str(sites.PARTAGE), *arguments, **how)

    def program(self, *command: object, **how: Any) -> subprocess.Popen[str]:
        """Any program as a process of this user."""
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [*self._prefix, *map(str, command)],
            env=self.environment | how.pop("env", {}),
            text=True,
            **pipes | how,
        )
        self._started.append(process)
        return process

    def python(self, script: str, *arguments: object) -> str:
        """What a script says that this user runs; its error, if it ends by one."""
        process = self.program(sys.executable, "-c", script, *arguments)
        out, err = process.communicate(timeout=sites.PATIENCE_S)
        return out.strip() if process.returncode == 0 else err.strip().splitlines()[-1]


@contextlib.contextmanager
def open_folder() -> Iterator[pathlib.Path]:
    """A folder that other users can enter; the folders of pytest are for one user alone."""
    with tempfile.TemporaryDirectory(prefix="partage-users-") as made:
        folder = pathlib.Path(made)
        folder.chmod(0o755)
        yield folder


def need_root() -> None:
    """Leave the test out where nobody can become somebody else."""
    if os.geteuid() != 0:
        leaving_out.leave_out("other users", "run the tests as root")
    if closed := _closed(_CHECKOUT):
        reason = f"they cannot enter {closed[-1]}, where this checkout is"
        leaving_out.leave_out("other users", reason)
    tried = subprocess.run(
        [*becoming(65000, ()), sys.executable, "-c", ""],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        leaving_out.leave_out("other users", tried.stderr.strip() or "they cannot run Python")


def becoming(uid: int, gids: tuple[int, ...], mounting: str = "") -> list[str]:
    """What root types in front of a command that another user shall run."""
    groups = ["--groups", ",".join(map(str, gids))] if gids else ["--clear-groups"]
    become = ["setpriv", "--reuid", str(uid), "--regid", str(uid), *groups, "--"]
    prefix = pathlib.Path(sys.base_prefix).resolve()
    if closed := _closed(prefix.parent):
        shown = _SHOWN.format(prefix=shlex.quote(str(prefix)), closed=shlex.quote(str(closed[-1])))
        mounting = f"{shown}{mounting}"
    if not mounting:
        return become
    return ["unshare", "--mount", "sh", "-c", f'{mounting}\nexec "$@"', "sh", *become]


def _closed(folder: pathlib.Path) -> list[pathlib.Path]:
    """Of a folder and those above it, the ones that others cannot enter; the outermost is last."""
    return [place for place in (folder, *folder.parents) if not place.stat().st_mode & 0o001]
