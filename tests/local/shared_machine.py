"""A machine that root set up for a group, and users of it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator

from partage.local.state import entries
from tests.local import sites, users

ALICE, BOB, STRANGER = 54_001, 54_002, 54_003
GROUP = f"partage-test-{os.getpid()}"


class Machine:
    """What root set up, and the users of it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.root = sites.Site(folder)
        self.set_up()
        self.gid = self.root.folder.stat().st_gid
        self.alice = users.User(folder, ALICE, self.gid)
        self.bob = users.User(folder, BOB, self.gid)
        self.stranger = users.User(folder, STRANGER)

    def set_up(self) -> str:
        """``sudo partage setup``."""
        done = self.root.partage("setup", "--group", GROUP, "--state", self.root.folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def end(self) -> None:
        """Kill what is left."""
        for user in (self.root, self.alice, self.bob, self.stranger):
            user.end()

    def entry(self, name: str) -> entries.Entry:
        """A row of the ledger."""
        with self.root.book() as book:
            return next(entry for entry in book.all() if entry.name == name)


@contextlib.contextmanager
def made() -> Iterator[Machine]:
    """Two simulated cards of 16 GiB, for a group."""
    users.need_root()
    try:
        with users.open_folder() as folder:
            machine = Machine(folder)
            yield machine
            machine.end()
    finally:
        subprocess.run(["groupdel", GROUP], check=False, capture_output=True)
