"""Aliases: another path to a folder whose own path the loader's lists cannot name.

``LD_PRELOAD`` and ``LD_LIBRARY_PATH`` separate by blanks, colons and semicolons, replace what
begins with a dollar sign, and know no quotes. A folder of fences may lie in a path with any of
these. Then there is a link to it below ``/var/tmp``, in a folder that nobody else may enter, and
programs load their fence through that.

A link belongs to its folder. It is removed with it, and those whose folder is gone without a word
are removed when the next one is made.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
from pathlib import Path

from partage.core import errors

PLACES = (Path("/var/tmp"), Path("/tmp"))

_SEPARATING = re.compile(r"[\s:;$]")
_MODE = 0o700


def named(folder: Path, places: tuple[Path, ...] = PLACES) -> Path:
    """A path to the folder that the loader's lists can name: its own, or an alias, made here."""
    if not _SEPARATING.search(str(folder)):
        return folder
    for place in places:
        with contextlib.suppress(OSError):
            if _is_safe(place):
                return _made(_own(place), folder)
    raise errors.FenceError(
        f"programs cannot load a library from {folder}, whose name has a blank, a colon, a "
        f"semicolon or a dollar sign, nor through a link in {' or '.join(map(str, places))}",
        instead="keep fences in a folder without these signs (PARTAGE_STATE, or --root)",
    )


def everything(folder: Path, places: tuple[Path, ...] = PLACES) -> list[Path]:
    """All paths by which :func:`named` may have named a folder."""
    return [folder, *(place / _owner() / _name(folder) for place in places)]


def forget(folder: Path, places: tuple[Path, ...] = PLACES) -> None:
    """Remove the alias of a folder that is going, if it has one."""
    for path in everything(folder, places)[1:]:
        with contextlib.suppress(OSError):
            if path.readlink() == folder:
                path.unlink()


def _is_safe(place: Path) -> bool:
    """Whether nobody but us and root can put another thing in the place of what we make there."""
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


def _made(own: Path, folder: Path) -> Path:
    for path in own.iterdir():
        if not path.exists():  # it leads nowhere: its folder is gone
            path.unlink(missing_ok=True)
    alias = own / _name(folder)
    with contextlib.suppress(FileExistsError):
        alias.symlink_to(folder)
    if alias.readlink() != folder:
        raise FileExistsError(f"{alias} leads elsewhere")
    return alias


def _owner() -> str:
    return f"partage-{os.geteuid()}"


def _name(folder: Path) -> str:
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:32]
