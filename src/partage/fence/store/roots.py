"""A root: the folder that holds the tenants of a machine and their seats at its cards.

::

    <root>/lock                     changes are made one after another
    <root>/seats/<uuid>/<number>    one for each tenant of a card, written by it, read by the others
    <root>/tenants/<name>/limits    written by the node side, mapped read-only by the tenant
    <root>/tenants/<name>/region    written by the tenant
    <root>/tenants/<name>/seats-0   a link to the seats at its first card, and so on
    <root>/scratch-<uid>            a tenant that is being made or unmade, under the lock

A tenant's folder becomes visible by one rename when it is complete, and vanishes by one. What is
in a user's scratch folder when that user gets the lock was left there by a killed process.

Who may make tenants and write their files depends on who they are, so a root is made for one of
three reaches, which the modes of its folders show to those who open it later. Nothing in
it is writable for everybody, except what can be reached only through a bind mount. The folders of
a group are sticky: a member cannot replace what another member, or root, has made.
"""

from __future__ import annotations

import contextlib
import enum
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence.store import locks, shared_files

DEFAULT = Path("/run/partage")  # in memory: a reboot ends all tenants, and their files with them


class Reach(enum.StrEnum):
    """Whose processes the tenants of a root are."""

    OWNER = "owner"  # of the user who made it; of any users, if that is root
    GROUP = "group"  # of the members of a group, who may also make tenants
    CONTAINERS = "containers"  # of unknown users in containers, which get files by bind mounts


class Root(msgspec.Struct, frozen=True):
    """A root that is there, and what it was made for."""

    path: Path
    reach: Reach
    gid: int  # that of the group

    @property
    def tenants(self) -> Path:
        """The folder of the tenants."""
        return self.path / "tenants"

    @property
    def seats(self) -> Path:
        """The folder of the seats."""
        return self.path / "seats"

    @property
    def scratch(self) -> Path:
        """Where this user makes a tenant, and unmakes it."""
        return self.path / f"scratch-{os.geteuid()}"

    @property
    def folder_mode(self) -> int:
        """Of a finished tenant's folder."""
        return 0o700 if self.reach is Reach.CONTAINERS else 0o755

    @property
    def region_mode(self) -> int:
        """Of a region, whose owner is the tenant's user where that is known.

        Members of a group see what the others use.
        """
        modes = {Reach.OWNER: 0o600, Reach.GROUP: 0o640, Reach.CONTAINERS: 0o666}
        return modes[self.reach]

    @property
    def seat_mode(self) -> int:
        """Of a seat, which all tenants of its card may read."""
        return 0o666 if self.reach is Reach.CONTAINERS else 0o644

    @property
    def owner(self) -> tuple[int, int]:
        """The user and group that own what is made here; -1: those of the process that makes it.

        What root makes in a user's own root belongs to that user; otherwise they could not use
        or remove it.
        """
        if self.reach is not Reach.OWNER or os.geteuid() != 0:
            return -1, -1
        status = self.seats.stat()
        return status.st_uid, status.st_gid

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes anything under the root meanwhile, and no leftovers are there."""
        try:
            with locks.exclusive(self.path / "lock"):
                _clear(self.scratch)
                try:
                    yield
                finally:
                    _clear(self.scratch)
        except PermissionError as error:
            raise errors.FenceError(
                f"this user may not change {error.filename or self.path}",
                instead="do it as its owner, or as root",
            ) from error


_FOLDER_MODES = {Reach.OWNER: 0o755, Reach.GROUP: 0o3775, Reach.CONTAINERS: 0o700}


def prepare(path: Path, *, reach: Reach = Reach.OWNER, gid: int | None = None) -> Root:
    """Make a root, or open the one that is there; one of another reach is refused."""
    if reach is Reach.GROUP and gid is None:
        raise errors.InputError("a root for a group needs its gid", instead="name the group")
    try:
        _make(path, reach, -1 if gid is None else gid)
    except OSError as error:
        raise errors.FenceError(
            f"{error.filename or path} cannot be made ({error.strerror})",
            instead="choose a folder that you may write to, or do it as root",
        ) from error
    root = find(path)
    if root.reach is not reach:
        raise errors.FenceError(
            f"{path} was made with the reach {root.reach}, not {reach}",
            instead="choose another folder, or remove this one when nothing runs in it",
        )
    return root


def find(path: Path) -> Root:
    """The root that is there; its reach is read from the modes of its folders."""
    try:
        status = (path / "seats").stat()
        (path / "lock").stat()
    except OSError as error:
        raise errors.FenceError(
            f"{path} is not a folder of fences ({error.strerror})",
            instead="give the folder in which the tenants were made, with --root",
        ) from error
    mode = stat.S_IMODE(status.st_mode)
    reach = Reach.CONTAINERS if mode == _FOLDER_MODES[Reach.CONTAINERS] else Reach.OWNER
    return Root(path, Reach.GROUP if mode & stat.S_ISGID else reach, status.st_gid)


def make_folder(path: Path, root: Root) -> None:
    """A folder in one of those that the root was made with; containers get such a folder mounted.

    There any user must be able to enter it, while on the host nobody gets past the one around it.
    """
    mode = 0o755 if root.reach is Reach.CONTAINERS else _FOLDER_MODES[root.reach]
    uid, gid = root.owner
    _make_folder(path, mode, root.gid if root.reach is Reach.GROUP else gid, uid=uid)


def _make(path: Path, reach: Reach, gid: int) -> None:
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    _settle_folder(path, 0o3775 if reach is Reach.GROUP else 0o755, gid)
    _make_lock(path / "lock", 0o660 if reach is Reach.GROUP else 0o600, gid)
    if not (path / "seats").exists():
        with locks.exclusive(path / "lock"):
            for name in ("tenants", "seats"):
                _make_folder(path / name, _FOLDER_MODES[reach], gid)


def _settle_folder(path: Path, mode: int, gid: int) -> None:
    """Of the root itself, if it is ours: an administrator may have made it before."""
    if path.stat().st_uid == os.geteuid() and not (path / "lock").exists():
        os.chown(path, -1, gid)
        path.chmod(mode)


def _make_lock(path: Path, mode: int, gid: int) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return
    os.fchown(fd, -1, gid)
    os.fchmod(fd, mode)
    os.close(fd)


def _make_folder(path: Path, mode: int, gid: int, *, uid: int = -1) -> None:
    """With its final mode from the start: those who find it read the reach from it."""
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}")
    _clear(unfinished)
    unfinished.mkdir(mode=0o700)
    shared_files.settle_folder(unfinished, mode, (uid, gid))
    unfinished.rename(path)


def _clear(folder: Path) -> None:
    """Remove what a killed process left."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
