"""The driver's place in a container: ours where its files would be, and its files behind ours.

NVIDIA's CDI specification mounts the driver's libraries into a container by their versions
(``libcuda.so.615.71``), and its hooks then make links to them, by the names that the files say they
have. Ours say the same. So in each of those mounts the file is replaced, and the driver's own is
mounted once more, in the folder of the fence, where ours look for it. That is a folder which
``ldconfig`` in the container does not read: it would find two libraries of one name there.

Where NVIDIA's runtime brings the files there is nothing to replace: it mounts them when all mounts
of a specification have been made, over whatever is in their place. The preload is there in either
case.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from partage.agent.containers import cdi
from partage.fence.library import originals

_FILES = {  # by any of their versions
    name: re.compile(re.escape(name.removesuffix(".1")) + r"(\.[0-9.]+)?")
    for name in originals.BEHIND
}


def taken(edits: cdi.Edits, ours: Mapping[str, Path], folder: str) -> cdi.Edits:
    """The edits with ours in the driver's place, and the driver's files in a folder."""
    mounts: list[cdi.Mount] = []
    behind: dict[str, cdi.Mount] = {}
    for mount in edits.mounts:
        name = _library(mount)
        if name not in ours:
            mounts.append(mount)
            continue
        mounts.append(msgspec.structs.replace(mount, host_path=str(ours[name])))
        path = posixpath.join(folder, originals.BEHIND[name])
        behind.setdefault(name, msgspec.structs.replace(mount, container_path=path))
    return msgspec.structs.replace(edits, mounts=(*mounts, *behind.values()))


def _library(mount: cdi.Mount) -> str:
    """Which of the driver's libraries a mount brings, if it is one of them."""
    file = posixpath.basename(mount.container_path)
    return next((name for name, pattern in _FILES.items() if pattern.fullmatch(file)), "")
