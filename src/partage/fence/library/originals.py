"""Originals: where the driver's own libraries are, found as a program would find them.

Ours stand in their place (:mod:`partage.fence.library.substitutes`) and lead to them, so their
paths have to be known before a program starts. Nothing is loaded for that: opening CUDA takes a
real driver a long time.
"""

from __future__ import annotations

import itertools
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from partage.fence.library import libpartage

CUDA, NVML = libpartage.CUDA, libpartage.NVML
# The name of each behind the library in its place; as native/libraries.py has it.
BEHIND = {CUDA: "libpartage-cuda.so.1", NVML: "libpartage-nvidia-ml.so.1"}

_MAPS = Path("/proc/self/maps")
_CACHE = Path("/etc/ld.so.cache")
_MAGIC = b"glibc-ld.so.cache1.1"
_HEADER = struct.Struct("<20sII20x")  # of the cache: magic, number of entries, length of strings
_ENTRY = struct.Struct("<iIIIQ")  # flags, name, path, versions of systems and processors
_LARGEST = 16 << 20  # bytes of the cache; a large system has some 200 kB


def find(environ: Mapping[str, str], maps: Path = _MAPS, cache: Path = _CACHE) -> dict[str, Path]:
    """The libraries by their names; what this machine does not have is left out."""
    folders = [*_named(environ), *_loaded(maps)]
    paths = {}
    for name, behind in BEHIND.items():
        beside = (folder / name for folder in folders if not (folder / behind).exists())
        path = next(filter(libpartage.fits, itertools.chain(beside, _cached(cache, name))), None)
        if path is not None:
            paths[name] = path
    return paths


def _named(environ: Mapping[str, str]) -> Iterator[Path]:
    """The library path of a program; a relative path depends on where the program is started."""
    for folder in re.split("[:;]", environ.get("LD_LIBRARY_PATH", "")):
        if folder.startswith("/"):
            yield Path(folder)


def _loaded(maps: Path) -> Iterator[Path]:
    """Where this process loaded NVML from: the driver's libraries are installed together."""
    try:
        lines = os.fsdecode(maps.read_bytes()).splitlines()
    except OSError:
        return
    paths = (line.split(maxsplit=5)[5] for line in lines if "/libnvidia-ml.so" in line)
    yield from dict.fromkeys(Path(path).parent for path in paths)


def _cached(cache: Path, name: str) -> Iterator[Path]:
    """What the loader's cache has under a name, for any kind of machine."""
    try:
        with cache.open("rb") as file:
            content = file.read(_LARGEST)
        start = content.index(_MAGIC)  # an older format may come before
        _, count, _ = _HEADER.unpack_from(content, start)
        for entry in range(min(count, len(content) // _ENTRY.size)):
            at = start + _HEADER.size + entry * _ENTRY.size
            _, key, value, _, _ = _ENTRY.unpack_from(content, at)
            if _text(content, start + key) == name:
                yield Path(_text(content, start + value))
    except (OSError, ValueError, struct.error):
        return


def _text(content: bytes, at: int) -> str:
    return os.fsdecode(content[at : content.index(b"\0", at)])
