"""Substitutes: our libraries in the driver's place, in a folder for one tenant's programs.

::

    libpartage.so                            the fence
    libcuda.so.1, libcuda.so                 ours, which leads to the fence and then to
    libpartage-cuda.so.1                     the driver's own
    libnvidia-ml.so.1, libnvidia-ml.so       and the same for NVML
    libpartage-nvidia-ml.so.1

The folder is the first of the tenant's library path, so whoever looks for the driver by its name
finds the fence, by whatever means (docs/decisions/0011-in-the-drivers-place.md). Preloaded it is
as well, through the same folder, for those who name the driver's file itself. Both are one library
to the loader, because it knows a file by its inode.

All of these are links: a tenant has its own, made and removed with it, and the path to them is one
that the loader's lists can name (:mod:`partage.fence.aliases`), as an installation's may not be.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from partage.fence import aliases, library, originals

FOLDER = "lib"  # of a tenant


def find(found: library.Library) -> dict[str, Path]:
    """Ours, by the name of what they stand for, of the installation that a library is of."""
    folder = found.path.parent / library.SUBSTITUTES
    return {name: folder / name for name in originals.BEHIND}


def links(found: library.Library, drivers: Mapping[str, Path]) -> dict[str, Path]:
    """What is in such a folder, and where it leads; without a driver it is the fence alone."""
    made = {library.NAME: found.path}
    for name, ours in find(found).items():
        if name in drivers:
            behind = originals.BEHIND[name]
            made |= {name: ours, name.removesuffix(".1"): ours, behind: drivers[name]}
    return made


def environment(folder: Path, limits_path: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """What a process of a tenant needs to be fenced; others' libraries and paths stay."""
    place = aliases.named(folder)
    paths = [path for path in inherited.get("LD_LIBRARY_PATH", "").split(":") if path]
    return {
        "LD_PRELOAD": " ".join([str(place / library.NAME), *_preloaded(inherited)]),
        "LD_LIBRARY_PATH": ":".join([str(place), *paths]),
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
    """What is preloaded besides a fence."""
    paths = environ.get("LD_PRELOAD", "").replace(":", " ").split()
    return [path for path in paths if Path(path).name != library.NAME]
