"""The driver's own libraries are found without loading them, as a program would find them."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import pytest

from partage.fence.library import originals

HEADER = bytearray(Path(sys.executable).read_bytes()[:64])
HEADER[16:18] = b"\3\0"  # of a shared library
OTHER_MACHINE = bytes(HEADER[:18]) + b"\x07\x07" + bytes(HEADER[20:])


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, Path]:
    """A process that has loaded nothing, and a loader that knows nothing."""
    empty = tmp_path / "empty"
    empty.touch()
    return {"maps": empty, "cache": empty}


def driver(folder: Path, content: bytes = bytes(HEADER)) -> Path:
    """A folder with a driver; only the beginning of its files is looked at."""
    folder.mkdir(parents=True)
    for name in originals.BEHIND:
        (folder / name).write_bytes(content)
    return folder


def cache(path: Path, *entries: tuple[str, str], before: bytes = b"") -> Path:
    """A cache as ldconfig writes it."""
    at = 48 + 24 * len(entries)
    rows, strings = b"", b""
    for name, target in entries:
        rows += struct.pack("<iIIIQ", 3, at + len(strings), at + len(strings) + len(name) + 1, 0, 0)
        strings += f"{name}\0{target}\0".encode()
    header = struct.pack("<20sII20x", b"glibc-ld.so.cache1.1", len(entries), len(strings))
    path.write_bytes(before + header + rows + strings)
    return path


def found_in(folder: Path) -> dict[str, Path]:
    """The answer where both are in a folder."""
    return {name: folder / name for name in originals.BEHIND}


def test_the_library_path_comes_first(tmp_path: Path, nowhere: dict[str, Path]) -> None:
    """In its order; what is no absolute path is not looked at."""
    first, second = driver(tmp_path / "one"), driver(tmp_path / "a folder")
    for text, expected in (
        (f"{second}:{first}", second),
        (f"lib::{tmp_path};{first}:{second}", first),
        (f"{tmp_path / 'none'}:{second}", second),
    ):
        assert originals.find({"LD_LIBRARY_PATH": text}, **nowhere) == found_in(expected)


def test_then_comes_the_folder_of_the_nvml_that_is_loaded(
    tmp_path: Path, nowhere: dict[str, Path]
) -> None:
    """Before what the loader's cache has; also from a folder with a blank."""
    beside, other = driver(tmp_path / "a folder"), driver(tmp_path / "other")
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f01 r--p 0 08:01 1 /lib/libc.so.6\n"
        f"7f02-7f03 r-xp 0 08:01 2                  {beside}/libnvidia-ml.so.615.71\n"
    )
    loader_cache = cache(
        tmp_path / "cache", *((name, str(other / name)) for name in originals.BEHIND)
    )
    assert originals.find({}, maps, loader_cache) == found_in(beside)
    assert originals.find({}, nowhere["maps"], loader_cache) == found_in(other)


def test_the_cache_may_follow_an_older_one(tmp_path: Path, nowhere: dict[str, Path]) -> None:
    """As ldconfig wrote them for a long time; entries for other machines are passed over."""
    good, bad = driver(tmp_path / "good"), driver(tmp_path / "bad", OTHER_MACHINE)
    entries = [
        (name, str(folder / name)) for folder in (bad, good) for name in reversed(originals.BEHIND)
    ]
    older = b"ld.so-1.7.0" + bytes(37)
    loader_cache = cache(tmp_path / "cache", ("libc.so.6", "/x"), *entries, before=older)
    assert originals.find({}, nowhere["maps"], loader_cache) == found_in(good)


@pytest.mark.parametrize("length", [0, 10, 30, 60, 80, 100])
def test_a_damaged_cache_has_nothing(tmp_path: Path, nowhere: dict[str, Path], length: int) -> None:
    """Wherever it was cut off."""
    loader_cache = cache(tmp_path / "cache", ("libcuda.so.1", "/somewhere/libcuda.so.1"))
    loader_cache.write_bytes(loader_cache.read_bytes()[:length])
    assert originals.find({}, nowhere["maps"], loader_cache) == {}


def test_what_stands_in_the_drivers_place_is_not_the_driver(
    tmp_path: Path, nowhere: dict[str, Path]
) -> None:
    """A folder of ours in the library path, of a program around this one."""
    ours, theirs = driver(tmp_path / "ours"), driver(tmp_path / "theirs")
    for name, behind in originals.BEHIND.items():
        (ours / behind).symlink_to(theirs / name)
    assert originals.find({"LD_LIBRARY_PATH": f"{ours}:{theirs}"}, **nowhere) == found_in(theirs)


def test_where_there_is_none_there_is_none(tmp_path: Path, nowhere: dict[str, Path]) -> None:
    """Or only a part of it, or one for another machine."""
    assert originals.find({}, **nowhere) == {}
    other = driver(tmp_path / "other", OTHER_MACHINE)
    assert originals.find({"LD_LIBRARY_PATH": str(other)}, **nowhere) == {}
    half = driver(tmp_path / "half")
    (half / originals.CUDA).unlink()
    paths = originals.find({"LD_LIBRARY_PATH": str(half)}, **nowhere)
    assert paths == {originals.NVML: half / originals.NVML}
