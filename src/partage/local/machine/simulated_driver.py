"""The simulated driver instead of the real one, for this process and its children.

``PARTAGE_SIMULATE=2x16GiB`` (or ``partage --simulate 2x16GiB``) is the only switch, and it is a
switch of files: from here on ``libnvidia-ml.so.1``, ``libcuda.so.1`` and ``nvidia-smi`` are those
of ``native/simcuda``, and all that runs is the product's own code. Cards of that driver are called
"Simulated ...", and that is how every table knows.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from partage.core import errors
from partage.fence.library import libpartage
from partage.local.state import disk_problems, leases, location

VARIABLE = location.SIMULATION
NO_FILE = "operating-system"  # NVML's reason where the simulated driver has no file for its cards
# As native/simcuda reads them: so many cards at most, with names of so many letters.
_GROUP = re.compile(r"(?:([1-9]\d?)x)?[1-9]\d{0,5}[GM]iB(?::[ -+\--~]{1,53})?", re.ASCII)
_MOST_CARDS = 32
_MARK = "simulated"  # a file in the state folder
_LONGEST = 100  # characters; the folder is named so
_STATE = "SIMCUDA_STATE"
_CARD_BYTES = 1 << 18  # more than it takes for a card


def switch(cards: str, environ: MutableMapping[str, str]) -> None:
    """Let this process and its children meet simulated cards."""
    select(cards, environ)
    make_state_folder(environ)


def make_state_folder(environ: Mapping[str, str]) -> None:
    """Make the folder of simulated cards, if it is the state folder; its users report trouble."""
    with contextlib.suppress(OSError, errors.LedgerError):
        state = location.where(environ)
        if environ.get(_STATE) == str(state / "machine"):
            state.mkdir(mode=0o700, parents=True, exist_ok=True)


def select(cards: str, environ: MutableMapping[str, str]) -> None:
    """The variables and the library alone: nothing is made on a disk."""
    if not 1 <= _count(cards) <= _MOST_CARDS:
        raise errors.InputError(
            f"--simulate: {cards[:80]!r} is not a list of cards",
            instead=f"write up to {_MOST_CARDS}, for example 2x16GiB, or 16GiB,24GiB:Tesla T4",
        )
    folder = driver_folder()
    environ[VARIABLE] = cards
    if environ.get("SIMCUDA_CARDS", cards) != cards:
        environ.pop(_STATE, None)  # of another simulated machine, around this one
    environ["SIMCUDA_CARDS"] = cards
    if not environ.get(_STATE):
        with contextlib.suppress(OSError, errors.LedgerError):
            environ[_STATE] = str(location.where(environ) / "machine")
    libraries = [part for part in environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    environ["LD_LIBRARY_PATH"] = _first(folder, libraries)
    programs = environ.get("PATH", os.defpath).split(":")
    environ["PATH"] = _first(folder, programs)  # for nvidia-smi and simsmi
    _load(folder / "libnvidia-ml.so.1")


def driver_folder() -> Path:
    """Where the simulated driver is: its libraries, and its `nvidia-smi`."""
    return libpartage.folder() / "simulated"


def check(
    path: Path,
    environ: Mapping[str, str],
    *,
    elsewhere: str = f"name another folder in {location.VARIABLE}",
) -> None:
    """Refuse a ledger of other cards: simulated grants are none of real cards, and the reverse."""
    now, marked = environ.get(VARIABLE, ""), _marked(path)
    if marked is None:
        if not _used(path):
            return
        marked = _marked(path)  # the first user marks it before they use it, perhaps just now
    if marked == (now or None):
        return
    instead = f"set {VARIABLE}={shlex.quote(marked)}" if marked else "go on without simulated cards"
    raise errors.LedgerError(
        f"the ledger {path} is of {_named(marked)}, not of {_named(now)}",
        instead=f"{instead}, or {elsewhere}",
    )


def claim(state: location.StateFolder, environ: Mapping[str, str]) -> None:
    """Let a ledger that nobody has used be of simulated cards, if that is what this is about."""
    if not environ.get(VARIABLE):
        return
    if _marked(state.path) is None:
        mark(state.path, environ[VARIABLE])
    check(state.path, environ)  # somebody with other cards may have been first


def mark(folder: Path, cards: str) -> None:
    """Let the ledger of a state folder be of simulated cards from now on."""
    path = folder / _MARK
    try:
        _write(path, cards)
    except OSError as error:
        raise disk_problems.Unusable(
            f"{path} cannot be written ({error.strerror})",
            remedy=disk_problems.remedy(error),
        ) from error


def without_file(environ: Mapping[str, str]) -> errors.DeviceError:
    """The error of a simulated driver that cannot make or open the file of its cards."""
    cards_file = Path(environ.get(_STATE, ""))
    trouble = _trouble(cards_file, environ)
    what = "the state file of the simulated cards cannot be made or written"
    return errors.DeviceError(
        NO_FILE,
        f"{what}: {cards_file}: {trouble.strerror}" if trouble else f"{what}: {cards_file}",
        instead=f"unset {_STATE}"
        if _elsewhere(cards_file, environ)
        else disk_problems.remedy(trouble),
    )


def on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was switched."""
    return bool(environ.get(VARIABLE))


def is_marked(path: Path) -> bool:
    """Whether a state folder is of simulated cards, as its mark says."""
    return _marked(path) is not None


def _used(path: Path) -> bool:
    """Whether somebody has used a ledger for real, or it was made for many."""
    state = location.existing(path)
    if state is None:
        return False
    folder = state.leases
    return state.shared or any(
        (lease_file := leases.find(folder, token)) and lease_file.entry
        for token in leases.tokens(folder)
    )


def _marked(path: Path) -> str | None:
    """What a ledger is of; an empty mark is none: its maker had no time to write it."""
    try:
        return (path / _MARK).read_text("utf-8")[:_LONGEST] or None
    except (OSError, UnicodeDecodeError):
        return None


def _write(path: Path, cards: str) -> None:
    """The mark gets its name when it is whole; the first stays, unless nothing is in it."""
    fresh = path.with_name(f".{_MARK}.{os.urandom(8).hex()}")
    try:
        with fresh.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(cards)
        os.link(fresh, path)
    except FileExistsError:
        if not path.stat().st_size:
            fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _trouble(cards_file: Path, environ: Mapping[str, str]) -> OSError | None:
    """What the disk says; None if it would let one write."""
    try:
        os.close(os.open(cards_file, os.O_RDWR | os.O_CLOEXEC))
    except FileNotFoundError:
        return disk_problems.trouble(cards_file.parent, _count(environ[VARIABLE]) * _CARD_BYTES)
    except OSError as error:
        return error
    return None


def _elsewhere(cards_file: Path, environ: Mapping[str, str]) -> bool:
    """Whether somebody has named another file than that of the ledger's folder."""
    return cards_file.parent != location.where(environ)


def _named(cards: str | None) -> str:
    return f"simulated cards ({cards})" if cards else "real cards"


def _count(cards: str) -> int:
    """How many cards a text names; 0 if it cannot be read."""
    groups = [_GROUP.fullmatch(group) for group in cards.split(",")]
    readable = all(groups) and len(cards) <= _LONGEST
    return sum(int(group[1] or 1) for group in groups if group) if readable else 0


def _first(folder: Path, folders: Sequence[str]) -> str:
    """A list of folders with this one before all others."""
    return ":".join([str(folder), *(part for part in folders if part != str(folder))])


def _load(path: Path) -> None:
    """The loader read LD_LIBRARY_PATH when this process began; a loaded library has its name."""
    try:
        ctypes.CDLL(str(path))
    except OSError as error:
        raise errors.DeviceError(
            "library-not-found",
            f"the simulated driver cannot be loaded ({error})",
            instead="run `make native` in a checkout, or install Partage from a wheel",
        ) from error
