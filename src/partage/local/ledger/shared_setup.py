"""The state folder that the users of a machine share, made by root for a group.

All that must be there, and with which mode, is one list (:func:`parts`): what is missing is made,
what is root's but has another mode is put right, and what is somebody else's is refused. A tenant
may have prepared the ground, with a link to elsewhere or with a folder of their own; so the way
there must be root's, without links, and everything is opened before it is changed.

A machine has one such folder. If it is not in the usual place, a link there, made by root, leads to
it, so that all users find it without a setting. A folder of simulated cards is not the machine's,
and gets no link.

Programs that run there are not disturbed, and doing it again does no harm. Groups and users are
changed by the machine's own tools.
"""

from __future__ import annotations

import enum
import os
import re
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from partage.core import errors
from partage.local.ledger import ledger, liveness
from partage.local.machine import simulated_driver
from partage.local.state import location

_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_MISSING = "missing"
_COMPANIONS = ("-wal", "-shm")  # of the ledger, which SQLite makes


class Result(enum.StrEnum):
    """What became of one thing."""

    MADE = "made"
    REPAIRED = "repaired"
    THERE = "already there"


class Step(msgspec.Struct, frozen=True):
    """One thing that was looked after."""

    object: str
    result: Result
    text: str = ""


class Part(msgspec.Struct, frozen=True):
    """Something that must be in a shared state folder, and is root's."""

    path: Path
    mode: int
    folder: bool
    group: bool = True  # or root's
    made_by_members: bool = False  # it may be theirs until it is taken over


_ABOVE = Part(location.SHARED.parent, 0o755, folder=True, group=False)


def set_up(path: Path, group: str, users: Sequence[str]) -> list[Step]:
    """Make the folder, the group and its members, as far as they do not exist yet.

    The usual path stands for the machine's folder, wherever root has put that.
    """
    if os.geteuid() != 0:
        raise errors.LedgerError(
            "only root can set a machine up", instead="run `sudo partage setup`"
        )
    _check_names(group, users)
    try:
        usual = path == location.SHARED
        return _set_up(location.named_by_root() or path if usual else path, group, users)
    except OSError as error:
        raise errors.LedgerError(
            f"{error.filename or path}: {error.strerror}",
            instead="correct that, and run `sudo partage setup` again",
        ) from error


def parts(path: Path) -> tuple[Part, ...]:
    """What a shared state folder consists of."""
    ledger_path = str(path / "ledger.db")
    return (
        *((_ABOVE,) if path == location.SHARED else ()),
        Part(path, location.SHARED_MODE, folder=True),
        Part(path / "leases", location.SHARED_MODE, folder=True),
        Part(path / "fence", 0o3775, folder=True),
        Part(path / "fence" / "lock", 0o660, folder=False),
        Part(path / "fence" / "tenants", 0o3775, folder=True),
        Part(path / "fence" / "seats", 0o3775, folder=True),
        *(
            Part(Path(ledger_path + suffix), 0o660, folder=False, made_by_members=True)
            for suffix in ("", *_COMPANIONS)
        ),
    )


def defect(part: Part, gid: int) -> str:
    """What is not as it must be; empty if nothing is."""
    try:
        status = part.path.lstat()
    except FileNotFoundError:
        return _MISSING
    if not _is(part, status):
        return "something else is there"
    if status.st_uid != 0:
        return f"owner {location.user_name(status.st_uid)} instead of root"
    wanted_gid, mode = gid if part.group else 0, stat.S_IMODE(status.st_mode)
    if status.st_gid != wanted_gid:
        has = location.group_name(status.st_gid)
        return f"group {has} instead of {location.group_name(wanted_gid)}"
    return f"mode {mode:04o} instead of {part.mode:04o}" if mode != part.mode else ""


def _set_up(path: Path, group: str, users: Sequence[str]) -> list[Step]:
    _check_ground(path, group)
    gid, step = _group(group)
    steps = [step, *(_member(group, gid, user) for user in users)]
    before = {part.path: defect(part, gid) for part in parts(path)}
    if before[path] == _MISSING:
        path.mkdir(mode=0o700)  # fails if somebody was quicker
    if simulated_driver.on():  # before anything of a ledger is there: that would be of real cards
        simulated_driver.mark(path, os.environ[simulated_driver.VARIABLE])
    state = location.set_up(path, gid, _fill)
    for part in parts(path):
        _settle(part, gid)
    steps += [_step(part, before[part.path]) for part in parts(path)]
    return [*steps, *_linked(path), *_tidied(state)]


def _check_ground(path: Path, group: str) -> None:
    """All that can be refused, before anything is made but folders above."""
    if path.parent == path or path != path.resolve():
        raise errors.InputError(
            f"--state: {path} is not the plain path of a folder",
            instead=f"write where it is, without links: {path.resolve()}",
        )
    _check_way(path)
    for part in parts(path):
        _check_part(part)
    _check_group(path, group)
    simulated_driver.check(path, os.environ, elsewhere="name another folder by --state")
    if _needs_link(path):
        _check_machine(path)
        _check_way(location.SHARED)


def _needs_link(path: Path) -> bool:
    return path != location.SHARED and not simulated_driver.on()


def _check_machine(path: Path) -> None:
    """A second ledger for the machine would give its cards away twice."""
    now = location.named_by_root()
    if now not in (None, path):
        raise errors.InputError(
            f"--state: the ledger of this machine is in {now}, not in {path}",
            instead=f"leave --state out; or, when nothing runs there, `sudo rm -r {location.SHARED}"
            "`, and run this again",
        )


def _linked(path: Path) -> Iterator[Step]:
    """The link by which all users find a folder that is not in the usual place."""
    if not _needs_link(path):
        return
    before = defect(_ABOVE, 0)
    _settle(_ABOVE, 0)
    if before:
        yield _step(_ABOVE, before)
    if location.named_by_root() is None:
        location.SHARED.symlink_to(path)
        yield Step(str(location.SHARED), Result.MADE, f"a link to {path}")
    else:
        yield Step(str(location.SHARED), Result.THERE)


def _check_names(group: str, users: Sequence[str]) -> None:
    import pwd

    if not _NAME.fullmatch(group):
        raise errors.InputError(
            f"--group: {group[:80]!r} is not a valid name of a group",
            instead="write up to 32 of a-z, 0-9, '-' and '_'; a letter or '_' first",
        )
    if _is_roots(group):
        raise errors.InputError(
            f"--group: {group} is the group of the system itself, not of users who share cards",
            instead="leave it out, or name another group",
        )
    for user in users:
        try:
            pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise errors.InputError(
                f"--user: there is no user {user[:80]!r}", instead="nothing was changed"
            ) from None


def _is_roots(group: str) -> bool:
    import grp

    try:
        return grp.getgrnam(group).gr_gid == 0
    except KeyError:
        return False


def _check_way(path: Path) -> None:
    """Only root can lead the path elsewhere, and the members can walk it."""
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)  # whatever root's umask is
        _check_folder(folder, folder.stat(), mended=path == location.SHARED == folder / path.name)


def _check_folder(folder: Path, status: os.stat_result, *, mended: bool) -> None:
    if status.st_uid != 0:
        raise _not_safe(folder, f"it belongs to {location.user_name(status.st_uid)}")
    if mended:
        return  # it is a part of ours, and gets its mode
    open_to = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    if open_to and not status.st_mode & stat.S_ISVTX:
        raise _not_safe(folder, "others may write there, and it is not sticky")
    if not status.st_mode & stat.S_IXOTH:
        raise errors.LedgerError(
            f"members of the group cannot pass {folder}",
            instead=f"choose another folder by --state, or `chmod a+x {folder}`",
        )


def _not_safe(path: Path, why: str) -> errors.LedgerError:
    return errors.LedgerError(
        f"{path} cannot be trusted: {why}",
        instead="choose another folder by --state, or move that one away",
    )


def _check_part(part: Part) -> None:
    """Refuse what root has not made."""
    try:
        status = part.path.lstat()
    except FileNotFoundError:
        return
    if not _is(part, status):
        raise _not_safe(part.path, "it is a link, or something else that was not made here")
    if status.st_uid != 0 and not part.made_by_members:
        raise _not_safe(part.path, f"it belongs to {location.user_name(status.st_uid)}")


def _is(part: Part, status: os.stat_result) -> bool:
    if part.folder:
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _check_group(path: Path, group: str) -> None:
    """A state folder stays with its group: what is in it belongs to the members."""
    state = location.existing(path)
    name = location.group_name(state.gid) if state and state.shared else group
    if name != group:
        raise errors.InputError(
            f"{path} is for group {name}, not {group}",
            instead=f"write --group {name}, or remove {path} when nothing runs there",
        )


def _group(name: str) -> tuple[int, Step]:
    import grp

    try:
        return grp.getgrnam(name).gr_gid, Step(f"group {name}", Result.THERE)
    except KeyError:
        _run("groupadd", "--system", "--", name)
    return grp.getgrnam(name).gr_gid, Step(f"group {name}", Result.MADE)


def _member(group: str, gid: int, user: str) -> Step:
    import grp
    import pwd

    if user in grp.getgrgid(gid).gr_mem or pwd.getpwnam(user).pw_gid == gid:
        return Step(f"member {user}", Result.THERE)
    _run("usermod", "--append", "--groups", group, "--", user)
    return Step(f"member {user}", Result.MADE, "after the next login")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise errors.LedgerError(
            f"there is no {command[0]} on this machine",
            instead="make the group and its members by hand, and run this again",
        ) from error
    if done.returncode != 0:
        raise errors.LedgerError(
            f"`{' '.join(command)}` failed: {' '.join(done.stderr.split())}",
            instead="correct that, and run this again",
        )


def _fill(state: location.StateFolder) -> None:
    """The ledger and its companions are root's from the start."""
    with ledger.opened(state):
        pass


def _settle(part: Part, gid: int) -> None:
    """Put right what is root's; it is changed through what was opened, never by its name."""
    if not defect(part, gid):
        return
    kind = os.O_DIRECTORY if part.folder else os.O_NONBLOCK
    fd = os.open(part.path, os.O_RDONLY | kind | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not _is(part, status) or (status.st_uid != 0 and not part.made_by_members):
            raise _not_safe(part.path, "it was changed meanwhile")
        os.fchown(fd, 0, gid if part.group else 0)
        os.fchmod(fd, part.mode)
    finally:
        os.close(fd)


def _step(part: Part, before: str) -> Step:
    if before == _MISSING:
        return Step(str(part.path), Result.MADE)
    return Step(str(part.path), Result.REPAIRED if before else Result.THERE, before)


def _tidied(state: location.StateFolder) -> Iterator[Step]:
    """What programs left that have ended; others than root can remove only their own."""
    with ledger.opened(state) as book, book.deciding():
        ended = liveness.sweep(state, book).ended
    if ended:
        liveness.tidy(state, ended)
        yield Step("leases", Result.REPAIRED, f"{len(ended)} of ended programs were removed")
