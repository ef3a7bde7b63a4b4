"""Substitutes: our libraries in the driver's place, in a folder for one tenant's programs.

::

    libpartage.so                            the fence
    libcuda.so.1, libcuda.so                 ours, which leads to the fence and then to
    libpartage-cuda.so.1                     the driver's own
    libnvidia-ml.so.1, libnvidia-ml.so       and the same for NVML
    libpartage-nvidia-ml.so.1

The folder is the first of the tenant's library path, so a program that looks for the driver by its
name finds the fence, by whatever means (docs/decisions/0011-in-the-drivers-place.md). The fence is
preloaded as well, through the same folder, for programs that name the driver's file itself. Both
are one library to the loader, because it knows a file by its inode.

All of these are links: a tenant has its own, made and removed with it, and the path to them is one
that the loader's lists can name (:mod:`partage.fence.library.aliases`), as an installation's may
not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partage.fence.library import aliases, libpartage, originals

FOLDER = "lib"  # of a tenant


def find(library: libpartage.Library) -> dict[str, Path]:
    """The substitutes beside a library, by the names of the files that they stand for."""
    folder = library.path.parent / libpartage.SUBSTITUTES
    return {name: folder / name for name in originals.BEHIND}


def links(library: libpartage.Library, drivers: Mapping[str, Path]) -> dict[str, Path]:
    """The links of such a folder and their targets; without a driver, the fence alone."""
    made = {libpartage.NAME: library.path}
    for name, ours in find(library).items():
        if name in drivers:
            behind = originals.BEHIND[name]
            made |= {name: ours, name.removesuffix(".1"): ours, behind: drivers[name]}
    return made


def environment(folder: Path, limits_path: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a process of a tenant needs to be fenced; other libraries and paths stay."""
    named = aliases.named(folder)
    paths = [path for path in inherited.get("LD_LIBRARY_PATH", "").split(":") if path]
    return {
        "LD_PRELOAD": " ".join([str(named / libpartage.NAME), *_preloaded(inherited)]),
        "LD_LIBRARY_PATH": ":".join([str(named), *paths]),
        "PARTAGE_LIMITS": str(limits_path),
    }


def without(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment with nothing in it that :func:`environment` adds."""
    folder = Path(environ.get("PARTAGE_LIMITS", "")).parent / FOLDER
    ours = {str(path) for path in aliases.everything(folder)}
    kept = {
        "LD_PRELOAD": " ".join(_preloaded(environ)),
        "LD_LIBRARY_PATH": ":".join(
            path for path in environ.get("LD_LIBRARY_PATH", "").split(":") if path not in ours
        ),
    }
    plain = {name: text for name, text in environ.items() if name not in _ADDED}
    return plain | {name: text for name, text in kept.items() if text}


_ADDED = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PARTAGE_LIMITS")


def _preloaded(environ: Mapping[str, str]) -> list[str]:
    """The preloaded libraries without the fence."""
    paths = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return [path for path in paths if Path(path).name != libpartage.NAME]
