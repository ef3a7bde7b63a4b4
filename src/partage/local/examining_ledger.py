"""Examinations of the ledger, its disk, who may use it, and what ended programs left there."""

from __future__ import annotations

import collections
import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from partage.fence import roots, tenants
from partage.local import disks, findings, places, schema, setting_up
from partage.local import leases as lease_files
from partage.local import ledger as ledgers

_LEAST_BYTES = 1 << 20  # that a ledger should be able to grow by
_SETUP = "`sudo partage setup`"


def ledger(around: findings.Around) -> Iterator[findings.Finding]:
    """Where it is, whose, and what is in it."""
    place = places.there(around.path)
    if place is None or not place.ledger.exists():
        yield findings.ok("ledger", f"{around.path}: the first `partage run` makes it")
        return
    damage = ledgers.damage(place)
    if damage:
        yield findings.problem(
            "ledger",
            f"{place.ledger} is damaged ({damage})",
            "move it away: who runs is found again by the leases beside it",
        )
        return
    living = around.swept.living
    running = sum(each.grant is not None for each in living)
    yield _whose(
        around,
        place,
        f"{place.ledger}, version {len(schema.STEPS)}: {running} run, {len(living) - running} wait",
    )


def disk(around: findings.Around) -> Iterator[findings.Finding]:
    """Whether the ledger can be written there; the file that tries it never has a name."""
    folder = next(each for each in (around.path, *around.path.parents) if each.exists())
    kind = places.filesystem(folder) or "N/A"
    if places.is_network(kind):
        yield findings.problem(
            "disk",
            f"{folder} is on a network file system ({kind})",
            f"name a folder on a local disk in {places.VARIABLE}, or run {_SETUP}",
        )
        return
    trouble = disks.trouble(folder, _LEAST_BYTES) if os.access(folder, os.X_OK) else None
    if trouble is None:
        yield findings.ok("disk", f"{folder} is on {kind}")
    else:
        text = f"{folder} ({kind}): {trouble.strerror}"
        yield findings.problem("disk", text, disks.remedy(trouble))


def permissions(around: findings.Around) -> Iterator[findings.Finding]:
    """Whether this user is a member, and whether modes are as `partage setup` makes them."""
    if not around.path.exists():
        yield findings.ok("permissions", f"{around.path} is not there yet")
        return
    status = around.path.stat()
    if around.place is None or not around.place.shared:
        if status.st_uid == os.geteuid():
            yield _own(around.path)
        else:
            yield _stranger(around.path, status)
        return
    gid = around.place.gid
    wrong = [
        f"{part.path}: {what}"
        for part in setting_up.parts(around.path)
        if (what := setting_up.wrong(part, gid))
    ]
    if wrong:
        yield findings.problem("permissions", "; ".join(wrong), _SETUP)
    else:
        yield findings.ok("permissions", f"you may use what is for group {places.group_name(gid)}")


def leases(around: findings.Around) -> Iterator[findings.Finding]:
    """What programs left that have ended, or that were cut off by a reboot; it takes no card."""
    if around.place is None:
        return
    if not (around.place.fence / "seats").is_dir():
        remedy = _SETUP if around.place.shared else "the next `partage run` makes it anew"
        yield findings.note("leases", f"{around.place.fence} is missing", remedy)
        return
    left = collections.Counter(_owners(around.place, around.swept.ended))
    mine = left.pop(os.geteuid(), 0)
    if left and os.geteuid() != 0:
        whose = ", ".join(f"{count} of {places.user_name(uid)}" for uid, count in left.items())
        yield findings.note(
            "leases",
            f"ended programs of others have left files: {whose}",
            f"they or root can remove them: {_SETUP}",
        )
    elif mine or left:
        count = mine + left.total()
        yield findings.ok("leases", f"{count} of ended programs; the next `partage run` clears up")
    else:
        yield findings.ok("leases", "no ended program has left anything")


def _whose(around: findings.Around, place: places.Place, text: str) -> findings.Finding:
    if place.shared:
        return findings.ok("ledger", f"{text}; shared by group {places.group_name(place.gid)}")
    if around.environ.get(places.VARIABLE) or around.environ.get(places.SIMULATION):
        return findings.ok("ledger", f"{text}; yours alone")
    return findings.note(
        "ledger", f"{text}; yours alone: what others are granted is not seen", _SETUP
    )


def _own(path: Path) -> findings.Finding:
    """A place of this user, who may have kept himself from it; or root has, by working there."""
    closed = [each for each in _needed(path) if os.path.lexists(each) and not _usable(each)]
    if not closed:
        return findings.ok("permissions", f"{path} is yours")
    text = f"you may not read and write {', '.join(map(str, closed))}"
    if all(each.lstat().st_uid == os.geteuid() for each in closed):
        return findings.problem(
            "permissions", text, f"`chmod u+rwX {shlex.join(map(str, closed))}`"
        )
    user = places.user_name(os.geteuid())
    return findings.problem("permissions", text, f"`sudo chown -R {user} {shlex.quote(str(path))}`")


def _needed(path: Path) -> Iterator[Path]:
    """What `partage run` writes in a place."""
    fence = path / "fence"
    yield from (path, path / "leases", fence, fence / "lock", fence / "tenants", fence / "seats")
    with contextlib.suppress(OSError):
        yield from (fence / "seats").iterdir()
    yield from (path / f"ledger.db{suffix}" for suffix in ("", "-wal", "-shm"))


def _usable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK | (os.X_OK if path.is_dir() else 0))


def _stranger(path: Path, status: os.stat_result) -> findings.Finding:
    """A place that this user may not use; he may be a member who has not logged in since."""
    import grp

    group, user = places.group_name(status.st_gid), places.user_name(os.geteuid())
    try:
        members = grp.getgrgid(status.st_gid).gr_mem
    except KeyError:
        members = []
    if user in members and status.st_gid not in os.getgroups():
        text = f"{user} is a member of group {group}, but this login does not know it yet"
        return findings.problem("permissions", text, f"log in again, or `newgrp {group}`")
    return findings.problem(
        "permissions",
        f"{path} is not for {user}",
        f"`sudo usermod -aG {group} {user}`, and log in again; or a folder of your own in "
        f"{places.VARIABLE}",
    )


def _owners(place: places.Place, ended: tuple[str, ...]) -> Iterator[int]:
    """Of what is left, by user: leases, and fences without one."""
    for token in ended:
        found = lease_files.find(place.leases, token)
        if found is not None:
            yield found.uid
    root = roots.find(place.fence)
    for name in tenants.names(root):
        if not (place.leases / name.rpartition(".")[2]).exists():
            yield (root.tenants / name).stat().st_uid
