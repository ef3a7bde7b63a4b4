"""Fixed places: where a program finds its fence without a word in its environment.

Containers and jobs of Slurm see a file system of their own, in which the tenant's files, the
library, and the loader's list that names it are bind mounts. What is the same for all of them is
made here, in a folder of the host: the library, what stands in the driver's place, the list, and a
folder with an empty mount point for each file of a tenant.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from pathlib import Path

from partage.fence.library import libpartage, originals, substitutes
from partage.fence.store import layout

log = logging.getLogger(__name__)

AROUND = "/etc/partage"
INSIDE = f"{AROUND}/fence"
PRELOAD = "/etc/ld.so.preload"
LIST = "ld.so.preload"  # the file that is mounted there, in the folder of the host


def around(folder: Path) -> Path:
    """What is mounted around the files of a fence, in a folder where the library is installed."""
    return folder / "around"


def installed(library: libpartage.Library, folder: Path) -> libpartage.Library:
    """The library in a folder of the host from which containers can load it.

    Its name carries a checksum: containers that run keep the one they were started with.
    """
    if library.problem:
        return library
    try:
        folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        if os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return libpartage.Library(
                library.path,
                f"programs cannot load a library from {folder}, which is mounted noexec",
                "name another folder with --library-folder",
            )
        _make_around(around(folder) / "fence")
        _write(folder / LIST, f"{INSIDE}/{libpartage.NAME}\n".encode())
        copy = _copied(library.path, folder)
    except OSError as error:
        return libpartage.Library(
            library.path,
            f"the library cannot be put into {folder} ({error.strerror})",
            "name a folder that may be written to with --library-folder",
        )
    return libpartage.Library(copy)


def substituted(library: libpartage.Library, folder: Path) -> dict[str, Path]:
    """What stands in the driver's place, in the same folder; without it the preload is all."""
    try:
        return {name: _copied(path, folder) for name, path in substitutes.find(library).items()}
    except OSError as error:
        log.warning("nothing can be put in the driver's place in containers: %s", error)
        return {}


def _copied(path: Path, folder: Path) -> Path:
    """A library in the folder, by a name that no other content has."""
    content = path.read_bytes()
    stem, _, rest = path.name.partition(".")
    copy = folder / f"{stem}-{hashlib.sha256(content).hexdigest()[:16]}.{rest}"
    _write(copy, content)
    return copy


def _make_around(fence: Path) -> None:
    """What is mounted around the files of a fence: an empty mount point for each.

    Every user in a container must be able to enter, whatever our umask is: programs start without a
    library that their loader cannot reach.
    """
    seats_at = [fence / f"seats-{index}" for index in range(layout.CARDS)]
    for folder in (fence.parent, fence, *seats_at):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    tenant_files = ("limits", "region", "group-limits", "group-region")
    for name in (*tenant_files, libpartage.NAME, *originals.BEHIND.values()):
        (fence / name).touch()
        (fence / name).chmod(0o644)


def _write(path: Path, content: bytes) -> None:
    if path.is_file() and path.read_bytes() == content:
        return
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_bytes(content)
    scratch.chmod(0o644)
    shutil.move(scratch, path)
