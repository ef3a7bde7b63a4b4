"""The location of the state folder: where a machine keeps its ledger.

::

    <state>/ledger.db    grants, and requests that wait (:mod:`partage.local.ledger.ledger`)
    <state>/leases/      one file for each of them, locked while it lives
    <state>/fence/       the limits of those who run (:mod:`partage.fence.store.roots`)

A machine has one for all its users, once ``sudo partage setup`` has made it for a group:
``/var/lib/partage/local``, or the folder that root's link there leads to. That path alone says
where it is, so that no user needs a setting. Without it each user has a state folder of their own,
which knows nothing of what others were granted. ``PARTAGE_STATE`` names another one, anywhere.

If the folder for all is not there, or this user may not use it, that is an error and never a reason
to use their own: two ledgers would give the same card away twice. A network file system is refused,
because locks and SQLite's shared memory need one kernel.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from partage.core import errors
from partage.fence.store import roots

SHARED = Path("/var/lib/partage/local")
VARIABLE = "PARTAGE_STATE"
SIMULATION = "PARTAGE_SIMULATE"
GROUP = "partage"
SHARED_MODE = 0o3770  # what a member makes there belongs to the group, and only they remove it

_LONGEST = 480  # bytes of a path, of the 512 that SQLite takes for its files
_MOUNTS = Path("/proc/self/mountinfo")
_OCTAL = rb"\\([0-3][0-7]{2})"  # how blanks, and a few others, are written there
_NETWORK = (
    *("nfs", "cifs", "smb", "fuse", "9p", "lustre"),
    *("gpfs", "ceph", "afs", "beegfs", "glusterfs"),
)


class StateFolder(msgspec.Struct, frozen=True):
    """A state folder that exists."""

    path: Path
    shared: bool  # whether a group of users shares it
    gid: int

    @property
    def ledger(self) -> Path:
        """The database."""
        return self.path / "ledger.db"

    @property
    def leases(self) -> Path:
        """The folder of the leases."""
        return self.path / "leases"

    @property
    def fence(self) -> Path:
        """The root of the fences."""
        return self.path / "fence"

    @property
    def file_mode(self) -> int:
        """The mode of a file that everybody who shares the folder writes."""
        return 0o660 if self.shared else 0o600


def find(environ: Mapping[str, str], *, shared: Path = SHARED) -> StateFolder:
    """The state folder of this user on this machine; their own is made if it does not exist."""
    return opened(where(environ, shared=shared))


def where(environ: Mapping[str, str], *, shared: Path = SHARED) -> Path:
    """Where that is, or will be."""
    named = environ.get(VARIABLE)
    if named:
        with explained(Path(named)):
            return _usable(Path(named).absolute())
    if environ.get(SIMULATION):
        return _usable(own(environ) / f"simulated-{_plain(environ[SIMULATION])}")
    return of_machine(shared) or _usable(own(environ))


def of_machine(shared: Path = SHARED) -> Path | None:
    """The state folder for all users of this machine; None if root has set none up."""
    with explained(shared):
        path = named_by_root(shared)
        if path is None or path.exists():
            return path
    raise errors.LedgerError(
        f"the ledger of this machine is in {path} ({shared} leads there), which does not exist",
        instead="mount its disk; or let root run `sudo partage setup`, which makes it anew",
    )


def named_by_root(shared: Path = SHARED) -> Path | None:
    """Where root has said that the state folder for all is, whether or not it is there."""
    try:
        status = shared.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not stat.S_ISLNK(status.st_mode):
        return shared
    if status.st_uid != 0:
        raise errors.LedgerError(
            f"{shared} is a link of {user_name(status.st_uid)}, and only root's is followed",
            instead="let root remove it, and run `sudo partage setup`",
        )
    return shared.resolve()


def own(environ: Mapping[str, str]) -> Path:
    """Where a user's own state folder is."""
    base = environ.get("XDG_STATE_HOME", "")
    above = Path(base) if base.startswith("/") else _home() / ".local/state"
    return above / "partage"


def opened(path: Path) -> StateFolder:
    """The state folder at a path: as somebody set it up, or made here for this user alone."""
    state = existing(path)
    if state is not None and (state.fence / "seats").is_dir():
        return state
    with explained(path):
        if state is not None:
            _check_owner(state)
        _check_kernel(path)
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        real = path.resolve()
        _make(real, mode=0o700, gid=-1, reach=roots.Reach.OWNER)
        _settle(real, 0o700, -1)
        return _state(path)


def existing(path: Path) -> StateFolder | None:
    """The state folder at a path, if somebody has made it."""
    with explained(path):
        _check_access(path)
        return _state(path) if (path / "leases").is_dir() else None


def set_up(path: Path, gid: int, fill: Callable[[StateFolder], object]) -> StateFolder:
    """Make a state folder for a group. Only root does this; doing it again does no harm.

    ``fill`` makes what else belongs there. The group gets in when all of it is there, so that no
    member can have made a part of it before.
    """
    with explained(path):
        _check_kernel(path)
        state = _make(path, mode=SHARED_MODE, gid=gid, reach=roots.Reach.GROUP)
        fill(state)
        _settle(path, SHARED_MODE, gid)
        return state


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Errors of the disk as ones for people: which folder, why, and what to do."""
    try:
        yield
    except OSError as error:
        raise errors.LedgerError(
            f"{error.filename or path} cannot be used ({error.strerror})",
            instead=_remedy(path, error),
        ) from error


def filesystem(path: Path, mounts: Path = _MOUNTS) -> str:
    """The type of the file system that a path is on, or will be; empty if nobody can tell."""
    nearest = next((p for p in (path, *path.parents) if p.exists()), Path("/")).resolve()
    best, kind = -1, ""
    with contextlib.suppress(OSError):
        for line in mounts.read_bytes().splitlines():
            fields, _, source = line.partition(b" - ")
            point = Path(os.fsdecode(re.sub(_OCTAL, _byte, fields.split()[4])))
            if nearest.is_relative_to(point) and len(point.parts) >= best:
                best, kind = len(point.parts), source.split()[0].decode()
    return kind


def _byte(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])


def is_network(kind: str) -> bool:
    """Whether a file system of this type may be shared by machines."""
    return kind.startswith(_NETWORK)


def _usable(path: Path) -> Path:
    """Refuse a path that nobody could print, or that is longer than SQLite takes."""
    if len(os.fsencode(path)) <= _LONGEST and str(path).isprintable():
        return path
    raise errors.LedgerError(
        f"{str(path)[:80]!r} cannot be used: a path has up to {_LONGEST} bytes, all printable",
        instead=f"name another folder in {VARIABLE}",
    )


def _plain(cards: str) -> str:
    """A text as the name of a folder."""
    return "".join(c if c.isalnum() or c in ".,_-" else "_" for c in cards)[:100]


def _home() -> Path:
    import pwd

    try:
        # Not Path.home(), to which an empty HOME is the root of the file system.
        return Path(os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir).absolute()
    except KeyError as error:  # no entry in the user database
        raise errors.LedgerError(
            "this user has no home", instead=f"name a folder in {VARIABLE}, or set HOME"
        ) from error


def _check_access(path: Path) -> None:
    """Say whose folder it is before anything in it is looked at."""
    if not path.exists() or os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return
    status = path.stat()
    if os.geteuid() in (0, status.st_uid):
        return  # the disk is read-only
    if not status.st_mode & stat.S_ISGID:
        raise errors.LedgerError(
            f"{path} belongs to {user_name(status.st_uid)}",
            instead=f"name a folder of yours in {VARIABLE}, or run `sudo partage setup`",
        )
    if status.st_gid in {os.getegid(), *os.getgroups()}:
        return
    group = group_name(status.st_gid)
    raise errors.LedgerError(
        f"{path} is for the members of group {group}, and you are not one of them",
        instead=f"ask for `sudo usermod -aG {group} {user_name(os.geteuid())}`, and log in again",
    )


def _state(path: Path) -> StateFolder:
    status = (path / "leases").stat()
    return StateFolder(path, bool(status.st_mode & stat.S_ISGID), status.st_gid)


def group_name(gid: int) -> str:
    """The name of a group, or its number."""
    import grp

    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def user_name(uid: int) -> str:
    """The name of a user, or its number."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _make(path: Path, *, mode: int, gid: int, reach: roots.Reach) -> StateFolder:
    """The leases come last: what has them is complete."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    _prepare(path / "fence", reach, None if gid < 0 else gid)
    with contextlib.suppress(FileExistsError):
        (path / "leases").mkdir(mode=0o700)
    _settle(path / "leases", mode, gid)
    return _state(path)


def _prepare(path: Path, reach: roots.Reach, gid: int | None) -> None:
    """The root of the fences; an error of the disk is reported for the state folder as a whole."""
    try:
        roots.prepare(path, reach=reach, gid=gid)
    except errors.FenceError as error:
        raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None


def _check_owner(state: StateFolder) -> None:
    """Only the owner of a folder without its fences may make them anew."""
    if state.shared or state.path.stat().st_uid != os.geteuid():
        who = "`sudo partage setup`" if state.shared else "its owner's next `partage run`"
        raise errors.LedgerError(f"{state.fence} is missing", instead=f"{who} makes it anew")


def _settle(path: Path, mode: int, gid: int) -> None:
    """The mode of a folder of ours; what somebody else has put in its place is left alone."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != mode:
            os.fchown(fd, -1, gid)
            os.fchmod(fd, mode)
    finally:
        os.close(fd)


def _check_kernel(path: Path) -> None:
    kind = filesystem(path)
    if is_network(kind):
        raise errors.LedgerError(
            f"{path} is on a network file system ({kind}), where a ledger cannot be kept",
            instead=f"name a folder on a local disk in {VARIABLE}, or run `sudo partage setup`",
        )


_REMEDIES = {
    errno.EACCES: f"name a folder of yours in {VARIABLE}, or ask for `sudo partage setup`",
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), f"name a folder in {VARIABLE}, not a file"),
    errno.EROFS: f"mount its disk writable, or name another folder in {VARIABLE}",
    errno.ENOSPC: "make room on its disk",
}


def _is_own(path: Path) -> bool:
    try:
        return path.is_dir() and path.stat().st_uid == os.geteuid()
    except OSError:  # a folder above it is closed
        return False


def _remedy(path: Path, error: OSError) -> str:
    if error.errno == errno.EACCES and _is_own(path):
        return f"`chmod u+rwx {shlex.quote(str(path))}`, or name another folder in {VARIABLE}"
    return _REMEDIES.get(error.errno or 0, f"name another folder in {VARIABLE}")
