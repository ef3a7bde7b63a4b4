"""Leftovers: the files of an agent on its node, removed when Partage has left, but not under pods.

A container that runs is held by files that are mounted into it: its limits, its region, the
library. Were one of them removed on the host, what is mounted on it would vanish in the container,
too, and the container would be free. So the mounts of all processes are looked at first, and what
one of them has stays, with all that a new process of the container would need. It goes when this is
done again after the container has ended; what is in ``/run`` goes with a reboot, too.

Only what agents made is touched: other folders of Partage's, such as those of Slurm's jobs, stay.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from partage.agent.containers import cdi
from partage.core import errors
from partage.fence.store import roots
from partage.kubelet import plugin_sockets

_PROC = Path("/proc")
_OF_A_ROOT = ("tenants", "seats", "lock")
_SCRATCH = "scratch-*"


class StillServes(errors.PartageError):
    """An agent runs on this node."""

    code = "agent-runs"


class Folders(msgspec.Struct, frozen=True, kw_only=True):
    """Where an agent keeps its files."""

    root: Path
    library: Path
    cdi: Path
    device_plugins: Path


class Leftover(msgspec.Struct, frozen=True, kw_only=True):
    """A file or folder that an agent made; one that a container uses has to stay."""

    path: str
    used_by: tuple[str, ...] = ()  # containers, as <pod uid>.<container>


def find(folders: Folders, proc: Path = _PROC) -> list[Leftover]:
    """All that is there, with who uses it."""
    tenants = _used_tenants(folders.root, proc)
    own = [
        *((path, "") for path in _sockets(folders)),
        *_specifications(folders),
        *((path, path.name) for path in _tenants(folders.root)),
    ]
    shared = [*_rest_of_root(folders.root)]
    if folders.library.exists():
        shared.append(folders.library)
    users = tuple(sorted(tenants)) or _used_library(folders.library, proc)
    return [
        *(Leftover(path=str(path), used_by=tuple({tenant} & tenants)) for path, tenant in own),
        *(Leftover(path=str(path), used_by=users) for path in shared),
    ]


def remove(folders: Folders, leftovers: list[Leftover]) -> None:
    """Remove what nobody uses; refused while an agent runs here."""
    plugin_sockets.sweep(folders.device_plugins)
    living = [path for path in _sockets(folders) if path.exists()]
    if living:
        raise StillServes(
            f"an agent serves this node: it listens at {living[0]}",
            instead="take the node's label partage.dev/agent away, or uninstall Partage, first",
        )
    for leftover in leftovers:
        if not leftover.used_by:
            _remove(Path(leftover.path))
    for folder in (folders.root, folders.library.parent):
        if folder.is_dir() and not any(folder.iterdir()):
            _remove_folder(folder)


def _remove(path: Path) -> None:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise errors.FenceError(
            f"{error.filename or path} cannot be removed ({error.strerror})",
            instead="do it as root, with the node's folders writable",
        ) from error


def _remove_folder(folder: Path) -> None:
    """The folder itself may be a mount of this pod, and stay as an empty one."""
    try:
        folder.rmdir()
    except OSError as error:
        if not folder.is_dir():
            raise errors.FenceError(f"{folder} cannot be removed", instead=str(error)) from error


def _sockets(folders: Folders) -> Iterator[Path]:
    for name in sorted(plugin_sockets.others(folders.device_plugins, but=())):
        if plugin_sockets.is_agents(name):
            yield folders.device_plugins / name


def _specifications(folders: Folders) -> Iterator[tuple[Path, str]]:
    """With the tenant of each; one that cannot be read is nobody's."""
    by_name = {started.device: started.tenant for started in cdi.everything(folders.cdi)}
    for path in sorted(folders.cdi.glob("*")) if folders.cdi.is_dir() else ():
        if cdi.is_ours(path):
            yield path, by_name.get(cdi.device_of(path), "")


def _tenants(root: Path) -> Iterator[Path]:
    if _is_ours(root):
        yield from sorted((root / "tenants").iterdir())


def _rest_of_root(root: Path) -> Iterator[Path]:
    if _is_ours(root):
        yield from (root / name for name in _OF_A_ROOT)
        yield from sorted(root.glob(_SCRATCH))


def _is_ours(root: Path) -> bool:
    """A root of programs that people start has the same files, and its tenants are theirs."""
    try:
        return roots.find(root).reach is roots.Reach.CONTAINERS
    except errors.FenceError:
        return False


def _used_tenants(root: Path, proc: Path) -> set[str]:
    places = _mounted_from(root, proc)
    return {place.split("/")[1] for place in places if place.startswith("tenants/")}


def _used_library(library: Path, proc: Path) -> tuple[str, ...]:
    """For a container whose tenant is not known any more."""
    return ("a container that runs",) if _mounted_from(library, proc) else ()


def _mounted_from(folder: Path, proc: Path) -> set[str]:
    """What is mounted into some process of the things in a folder, as paths below it."""
    origin = _origin(folder, proc)
    if origin is None:
        return set()
    device, path = origin
    prefix = f"{path.rstrip('/')}/"
    mounted: set[str] = set()
    for mounts in _all_mounts(proc):
        mounted |= {
            root.removeprefix(prefix)
            for at, root, _place in mounts
            if at == device and root.startswith(prefix)
        }
    return mounted


def _origin(folder: Path, proc: Path) -> tuple[str, str] | None:
    """Where a folder is: its file system, and its path in that, by the mount that it is in."""
    if not folder.is_dir():
        return None
    path = os.fspath(folder.resolve())
    around = [m for m in _mounts(proc / "self") if f"{path}/".startswith(f"{m[2].rstrip('/')}/")]
    if not around:
        return None
    device, root, place = max(reversed(around), key=lambda mount: len(mount[2]))
    below = path[len(place.rstrip("/")) :]
    return device, f"{root.rstrip('/')}{below}"


_Mount = tuple[str, str, str]  # file system, path in it, place


def _all_mounts(proc: Path) -> Iterator[list[_Mount]]:
    """Of each namespace of mounts, once."""
    seen: set[object] = set()
    for process in proc.iterdir():
        if process.name.isdecimal():
            mounts = _mounts(process)
            key = tuple(mounts)
            if key not in seen:
                seen.add(key)
                yield mounts


def _mounts(process: Path) -> list[_Mount]:
    try:
        text = (process / "mountinfo").read_text(errors="surrogateescape")
    except OSError:  # it has ended meanwhile
        return []
    rows = (line.split(" ") for line in text.splitlines())
    return [(row[2], _unescaped(row[3]), _unescaped(row[4])) for row in rows]


def _unescaped(path: str) -> str:
    for code, character in ((r"\040", " "), (r"\011", "\t"), (r"\134", "\\")):
        path = path.replace(code, character)
    return path
