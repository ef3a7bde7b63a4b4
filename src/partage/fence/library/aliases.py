"""Aliases: another path to a folder whose own path the loader's lists cannot name.

``LD_PRELOAD`` and ``LD_LIBRARY_PATH`` separate by blanks, colons and semicolons, replace what
begins with a dollar sign, and know no quotes. A folder of fences may lie in a path with any of
these. Then there is a link to it below ``/var/tmp``, in a folder that nobody else may enter, and
programs load their fence through that.

A link belongs to its folder. It is removed with it, and those whose folder is gone without a word
are removed when the next one is made. In such places everything goes that is older than some weeks
(systemd-tmpfiles), and a program may run longer: its next child would start without a fence. Nobody
stays who could refresh a link, so its times lie ahead of any program's life: cleaners go by them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

from partage.core import errors

PLACES = (Path("/var/tmp"), Path("/tmp"))

_SEPARATING = re.compile(r"[\s:;$]")
_MODE = 0o700
_KEPT_UNTIL_S = 4_102_444_800  # the year 2100; file systems that end in 2038 take that instead


def named(folder: Path, places: tuple[Path, ...] = PLACES) -> Path:
    """A path to the folder that the loader's lists can name: its own, or an alias, made here."""
    if not _SEPARATING.search(str(folder)):
        return folder
    return _linked(folder, _name(folder), places)


@contextlib.contextmanager
def named_for_a_while(folder: Path, places: tuple[Path, ...] = PLACES) -> Iterator[Path]:
    """The same for a block; its alias is nobody else's, so nobody loses it when it goes."""
    if not _SEPARATING.search(str(folder)):
        yield folder
        return
    alias = _linked(folder, secrets.token_hex(16), places)
    try:
        yield alias
    finally:
        alias.unlink(missing_ok=True)


def everything(folder: Path, places: tuple[Path, ...] = PLACES) -> list[Path]:
    """All paths by which :func:`named` may have named a folder."""
    return [folder, *(place / _owner() / _name(folder) for place in places)]


def forget(folder: Path, places: tuple[Path, ...] = PLACES) -> None:
    """Remove the alias of a folder that is going, if it has one."""
    for path in everything(folder, places)[1:]:
        with contextlib.suppress(OSError):
            if path.readlink() == folder:
                path.unlink()


def _linked(folder: Path, name: str, places: tuple[Path, ...]) -> Path:
    for place in places:
        with contextlib.suppress(OSError):
            if _is_safe(place):
                return _made(_own(place), name, folder)
    raise errors.FenceError(
        f"programs cannot load a library from {folder}, whose name has a blank, a colon, a "
        f"semicolon or a dollar sign, nor through a link in {' or '.join(map(str, places))}",
        instead="keep fences in a folder without these signs (PARTAGE_STATE, or --root)",
    )


def _is_safe(place: Path) -> bool:
    """Whether only we and root can put another thing in the place of what we make there."""
    status = place.stat()
    return status.st_uid == 0 and (
        not status.st_mode & 0o022 or bool(status.st_mode & stat.S_ISVTX)
    )


def _own(place: Path) -> Path:
    """Our folder there; somebody else may have made one of that name."""
    folder = place / _owner()
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=_MODE)
    status = folder.lstat()
    ours = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not ours or stat.S_IMODE(status.st_mode) & ~_MODE:
        raise PermissionError(f"{folder} is not ours alone")
    return folder


def _made(own: Path, name: str, folder: Path) -> Path:
    for path in own.iterdir():
        if not path.exists():  # it leads nowhere: its folder is gone
            path.unlink(missing_ok=True)
    alias = own / name
    with contextlib.suppress(FileExistsError):
        alias.symlink_to(folder)
    if alias.readlink() != folder:
        raise FileExistsError(f"{alias} leads elsewhere")
    # Read after it was written: else the kernel sets that to now with the next use (relatime).
    os.utime(alias, (_KEPT_UNTIL_S + 1, _KEPT_UNTIL_S), follow_symlinks=False)
    return alias


def _owner() -> str:
    return f"partage-{os.geteuid()}"


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
