"""Sockets of ours in the kubelet's folder: their names, and what dead agents left there.

A name is used once. From 1.37 on the kubelet refuses a second registration of a socket to which it
is connected, and forgets the connection; before, a name used again could be taken for the one
whose file it just removed. So each has a random part in it; and a mark of its resource, by which
another agent of the same node knows what it is for.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import socket
import stat
from collections.abc import Collection, Mapping
from pathlib import Path

from partage.kubelet import errors

_LONGEST_PATH = 107  # bytes that the kernel takes for the path of a socket
_LONGEST_SLUG = 24
_PREFIX, _SUFFIX = "partage-", ".sock"

log = logging.getLogger(__name__)

Identity = tuple[int, int, int]


def identity(path: Path) -> Identity | None:
    """What tells a file from any other that was or will be at this path; None if there is none."""
    try:
        status = path.lstat()
    except OSError:
        return None
    # File systems in memory give a number again at once; the time of change tells those apart.
    return status.st_dev, status.st_ino, status.st_ctime_ns


def new(folder: Path, resource: str) -> Path:
    """A path for a socket that nobody has used."""
    tail = f"{_mark(resource)}-{secrets.token_hex(4)}{_SUFFIX}"
    slug = re.sub(r"[^A-Za-z0-9]+", "-", resource)[:_LONGEST_SLUG]
    room = _LONGEST_PATH - len(os.fsencode(folder / f"{_PREFIX}-{tail}"))
    if room < 0:
        raise errors.BadSocket(
            f"the path {folder} is too long for sockets",
            instead=f"choose a folder that is {-room} bytes shorter",
        )
    return folder / f"{_PREFIX}{slug[:room]}-{tail}"


def remove(path: Path) -> None:
    """Remove a socket of ours, unless the kubelet already has."""
    with contextlib.suppress(OSError):
        path.unlink()


def sweep(folder: Path, *, but: Collection[str] = ()) -> None:
    """Remove sockets of agents at which nobody listens any more, except those that are named."""
    for path in folder.glob(f"{_PREFIX}*{_SUFFIX}"):
        if path.name not in but and _is_dead(path):
            remove(path)
            log.info("removed %s, which an earlier agent left behind", path)


def others(folder: Path, *, but: Collection[str]) -> Mapping[str, Identity]:
    """The sockets of a folder by name, except those that are given."""
    identities: dict[str, Identity] = {}
    with contextlib.suppress(OSError):  # no kubelet has been here yet
        for path in folder.iterdir():
            current = None if path.name in but or not path.is_socket() else identity(path)
            if current is not None:
                identities[path.name] = current
    return identities


def is_agents(name: str) -> bool:
    """Whether a socket is that of an agent of Partage, by its name."""
    return name.startswith(_PREFIX) and name.endswith(_SUFFIX)


def rival(resource: str, own: Identity | None, others: Mapping[str, Identity]) -> str:
    """The youngest socket of another agent for a resource; empty if ours is the youngest."""
    made_ns = 0 if own is None else own[2]
    younger = [
        (made[2], name)
        for name, made in others.items()
        if is_agents(name) and f"-{_mark(resource)}-" in name and made[2] > made_ns
    ]
    return max(younger, default=(0, ""))[1]


def _mark(resource: str) -> str:
    return hashlib.sha256(resource.encode()).hexdigest()[:6]


def _is_dead(path: Path) -> bool:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            return False
        with socket.socket(socket.AF_UNIX) as probe:
            probe.setblocking(False)  # a queue that is full is a sign of life
            probe.connect(os.fspath(path))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
