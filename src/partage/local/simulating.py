"""Simulating: the simulated driver in the place of the real one, for this process and its children.

``PARTAGE_SIMULATE=2x16GiB`` (or ``partage --simulate 2x16GiB``) is the only switch, and it is a
switch of libraries: from here on ``libnvidia-ml.so.1`` and ``libcuda.so.1`` are those of
``native/simcuda``, and all that runs is the product's own code. Cards of that driver are called
"Simulated ...", and that is how every table knows.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import MutableMapping
from pathlib import Path

from partage.core import errors
from partage.fence import library
from partage.local import places

VARIABLE = places.SIMULATION
# As native/simcuda reads them: so many cards at most, with names of so many letters.
_GROUP = re.compile(r"(?:([1-9]\d?)x)?[1-9]\d{0,5}[GM]iB(?::[ -+\--~]{1,53})?", re.ASCII)
_MOST_CARDS = 32
_LONGEST = 100  # characters; the folder is named so


def switch(cards: str, environ: MutableMapping[str, str]) -> None:
    """Let this process and its children meet simulated cards."""
    if not 1 <= _count(cards) <= _MOST_CARDS:
        raise errors.InputError(
            f"--simulate: {cards[:80]!r} are no cards",
            instead=f"write up to {_MOST_CARDS}, for example 2x16GiB, or 16GiB,24GiB:Tesla T4",
        )
    folder = library.folder() / "simulated"
    environ[VARIABLE] = cards
    environ["SIMCUDA_CARDS"] = cards
    environ.setdefault("SIMCUDA_STATE", str(places.find(environ).path / "machine"))
    others = [p for p in environ.get("LD_LIBRARY_PATH", "").split(":") if p and p != str(folder)]
    environ["LD_LIBRARY_PATH"] = ":".join([str(folder), *others])
    _load(folder / "libnvidia-ml.so.1")


def on(environ: MutableMapping[str, str] = os.environ) -> bool:
    """Whether this process was switched."""
    return bool(environ.get(VARIABLE))


def _count(cards: str) -> int:
    """How many cards a text names; 0 if it cannot be read."""
    groups = [_GROUP.fullmatch(each) for each in cards.split(",")]
    readable = all(groups) and len(cards) <= _LONGEST
    return sum(int(each[1] or 1) for each in groups if each) if readable else 0


def _load(path: Path) -> None:
    """The loader read LD_LIBRARY_PATH when this process began; a loaded library has its name."""
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise errors.DeviceError(
            "library-not-found",
            f"there is no simulated driver ({error})",
            instead="run `python -m native` in a checkout, or install Partage from a wheel",
        ) from error
