"""The cache: what is large, or slow to make, and can be made again.

A folder in it is named after a checksum of all it is made of, and gets its name when it is
complete. So all checkouts share one cache, nothing in it is ever out of date, and what was killed
leaves nothing that looks finished. Two who make the same at once both make it, and one is used.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path


def root() -> Path:
    """Where Partage keeps what is large and can be made again."""
    if chosen := os.environ.get("PARTAGE_CACHE"):
        return Path(chosen).resolve()
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "partage"


def key(*facts: object) -> str:
    """A name for what these facts decide."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


def made(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by ``make`` if it is not there."""
    if folder.exists():
        os.utime(folder)  # what was not used for long can be told, and removed
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
    try:
        make(unfinished)
        unfinished.rename(folder)
    except OSError:
        if not folder.exists():  # else somebody else was quicker
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def forget(entries: Iterable[Path], *, unused_since: float) -> None:
    """Remove the files and folders that were not used since then."""
    for entry in entries:
        if entry.stat().st_mtime < unused_since:
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
