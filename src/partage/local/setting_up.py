"""Setting up: the place that the users of a machine share, made by root for a group.

All that must be there, and with which mode, is one list (:func:`parts`): what is missing is made,
what is root's but has another mode is put right, and what is somebody else's is refused. A tenant
may have prepared the ground, with a link to elsewhere or with a folder of his own; so the way there
must be root's, without links, and everything is opened before it is changed.

Nobody who runs there is disturbed, and once more is no harm. Groups and users are changed by the
machine's own tools.
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
from partage.local import ledger, places, simulating, sweeping

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
    """Something that must be in a shared place, and is root's."""

    path: Path
    mode: int
    folder: bool
    group: bool = True  # or root's
    made_by_members: bool = False  # it may be theirs until it is taken over


def set_up(path: Path, group: str, users: Sequence[str]) -> list[Step]:
    """Make the place, the group and its members, as far as they are not there."""
    if os.geteuid() != 0:
        raise errors.LedgerError("only root can set a machine up", instead="`sudo partage setup`")
    _check_names(group, users)
    try:
        return _set_up(path, group, users)
    except OSError as error:
        raise errors.LedgerError(
            f"{error.filename or path}: {error.strerror}",
            instead="put that right, and run `sudo partage setup` again",
        ) from error


def parts(path: Path) -> tuple[Part, ...]:
    """What a shared place consists of."""
    ledger_path = str(path / "ledger.db")
    above = (Part(path.parent, 0o755, folder=True, group=False),) if path == places.SHARED else ()
    return (
        *above,
        Part(path, places.SHARED_MODE, folder=True),
        Part(path / "leases", places.SHARED_MODE, folder=True),
        Part(path / "fence", 0o3775, folder=True),
        Part(path / "fence" / "lock", 0o660, folder=False),
        Part(path / "fence" / "tenants", 0o3775, folder=True),
        Part(path / "fence" / "seats", 0o3775, folder=True),
        *(
            Part(Path(ledger_path + suffix), 0o660, folder=False, made_by_members=True)
            for suffix in ("", *_COMPANIONS)
        ),
    )


def wrong(part: Part, gid: int) -> str:
    """What is not as it must be; empty if nothing is."""
    try:
        status = part.path.lstat()
    except FileNotFoundError:
        return _MISSING
    if not _is(part, status):
        return "something else is there"
    if status.st_uid != 0:
        return f"owner {places.user_name(status.st_uid)} instead of root"
    wanted_gid, mode = gid if part.group else 0, stat.S_IMODE(status.st_mode)
    if status.st_gid != wanted_gid:
        has = places.group_name(status.st_gid)
        return f"group {has} instead of {places.group_name(wanted_gid)}"
    return f"mode {mode:04o} instead of {part.mode:04o}" if mode != part.mode else ""


def _set_up(path: Path, group: str, users: Sequence[str]) -> list[Step]:
    _check_way(path)
    for part in parts(path):
        _check_part(part)
    _check_group(path, group)
    gid, step = _group(group)
    steps = [step, *(_member(group, gid, user) for user in users)]
    before = {part.path: wrong(part, gid) for part in parts(path)}
    if before[path] == _MISSING:
        path.mkdir(mode=0o700)  # fails if somebody was quicker
    place = places.set_up(path, gid, _fill)
    for part in parts(path):
        _settle(part, gid)
    steps += [_step(part, before[part.path]) for part in parts(path)]
    return [*steps, *_tidied(place)]


def _check_names(group: str, users: Sequence[str]) -> None:
    import pwd

    if not _NAME.fullmatch(group):
        raise errors.InputError(
            f"--group: {group[:80]!r} is no name of a group",
            instead="write up to 32 small letters, digits, dashes and underscores",
        )
    for user in users:
        try:
            pwd.getpwnam(user)
        except (KeyError, ValueError):
            raise errors.InputError(
                f"--user: there is no user {user[:80]!r}", instead="nothing was changed"
            ) from None


def _check_way(path: Path) -> None:
    """Nobody but root can lead it elsewhere, and the members can go it."""
    if path.parent == path or path != path.resolve():
        raise errors.InputError(
            f"--state: {path} is no plain path of a folder",
            instead=f"write where it is, without links: {path.resolve()}",
        )
    for folder in reversed(path.parents):
        if not folder.exists():
            folder.mkdir(mode=0o755)
            folder.chmod(0o755)  # whatever root's umask is
        _check_folder(folder, folder.stat(), mended=path == places.SHARED == folder / path.name)


def _check_folder(folder: Path, status: os.stat_result, *, mended: bool) -> None:
    if status.st_uid != 0:
        raise _not_safe(folder, f"it belongs to {places.user_name(status.st_uid)}")
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
        raise _not_safe(part.path, f"it belongs to {places.user_name(status.st_uid)}")


def _is(part: Part, status: os.stat_result) -> bool:
    if part.folder:
        return stat.S_ISDIR(status.st_mode)
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _check_group(path: Path, group: str) -> None:
    """A place stays with its group: what is in it belongs to the members."""
    place = places.there(path)
    name = places.group_name(place.gid) if place and place.shared else group
    if name != group:
        raise errors.InputError(
            f"{path} is for group {name}, not {group}",
            instead=f"write --group {name}, or remove {path} when nothing runs there",
        )


def _group(name: str) -> tuple[int, Step]:
    import grp

    found = f"group {name}"
    try:
        return grp.getgrnam(name).gr_gid, Step(found, Result.THERE)
    except KeyError:
        _run("groupadd", "--system", "--", name)
    return grp.getgrnam(name).gr_gid, Step(found, Result.MADE)


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
            instead="put that right, and run this again",
        )


def _fill(place: places.Place) -> None:
    """The ledger and its companions are root's from the start."""
    with ledger.opened(place):
        pass
    if simulating.on():
        simulating.mark(place, os.environ[simulating.VARIABLE])


def _settle(part: Part, gid: int) -> None:
    """Put right what is root's; it is changed through what was opened, never by its name."""
    if not wrong(part, gid):
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


def _tidied(place: places.Place) -> Iterator[Step]:
    """What programs left that have ended; others than root can remove only their own."""
    with ledger.opened(place) as book, book.deciding():
        ended = sweeping.sweep(place, book).ended
    if ended:
        sweeping.tidy(place, ended)
        yield Step("leases", Result.REPAIRED, f"{len(ended)} of ended programs were removed")
