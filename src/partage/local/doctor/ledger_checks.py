"""Checks of the ledger, its disk, who may use it, and what ended programs left there."""

from __future__ import annotations

import collections
import contextlib
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from partage.fence.store import roots, tenants
from partage.local.doctor import findings
from partage.local.ledger import ledger as ledgers
from partage.local.ledger import schema, shared_setup
from partage.local.state import disk_problems, location
from partage.local.state import leases as lease_files

_LEAST_BYTES = 1 << 20  # that a ledger should be able to grow by
_SETUP = "`sudo partage setup`"


def ledger(context: findings.Context) -> Iterator[findings.Finding]:
    """Where it is, whose, and what is in it."""
    state = location.existing(context.path)
    if state is None or not state.ledger.exists():
        yield findings.ok("ledger", f"{context.path}: the first `partage run` makes it")
        return
    damage = ledgers.damage(state)
    if damage:
        yield findings.problem(
            "ledger",
            f"{state.ledger} is damaged ({damage})",
            "move it away: the leases beside it say what runs",
        )
        return
    living = context.swept.living
    running = sum(entry.grant is not None for entry in living)
    yield _whose(
        context,
        state,
        f"{state.ledger}, version {len(schema.STEPS)}: {running} run, {len(living) - running} wait",
    )


def disk(context: findings.Context) -> Iterator[findings.Finding]:
    """Whether the ledger can be written there; the file that tries it never has a name."""
    folder = next(path for path in (context.path, *context.path.parents) if path.exists())
    kind = location.filesystem(folder) or "N/A"
    if location.is_network(kind):
        yield findings.problem(
            "disk",
            f"{folder} is on a network file system ({kind})",
            f"name a folder on a local disk in {location.VARIABLE}, or run {_SETUP}",
        )
        return
    trouble = disk_problems.trouble(folder, _LEAST_BYTES) if os.access(folder, os.X_OK) else None
    if trouble is None:
        yield findings.ok("disk", f"{folder} is on {kind}")
    else:
        text = f"{folder} ({kind}): {trouble.strerror}"
        yield findings.problem("disk", text, disk_problems.remedy(trouble))


def permissions(context: findings.Context) -> Iterator[findings.Finding]:
    """Whether this user is a member, and whether modes are as `partage setup` makes them."""
    if not context.path.exists():
        yield findings.ok("permissions", f"{context.path} is not there yet")
        return
    status = context.path.stat()
    if context.state is None or not context.state.shared:
        if status.st_uid == os.geteuid():
            yield _own(context.path)
        else:
            yield _stranger(context.path, status)
        return
    gid = context.state.gid
    wrong = [
        f"{part.path}: {what}"
        for part in shared_setup.parts(context.path)
        if (what := shared_setup.defect(part, gid))
    ]
    if wrong:
        yield findings.problem("permissions", "; ".join(wrong), _SETUP)
    else:
        yield findings.ok(
            "permissions", f"you may use {context.path}, as a member of {location.group_name(gid)}"
        )


def leases(context: findings.Context) -> Iterator[findings.Finding]:
    """What programs left that have ended, or that were cut off by a reboot; it takes no card."""
    if context.state is None:
        return
    if not (context.state.fence / "seats").is_dir():
        remedy = _SETUP if context.state.shared else "the next `partage run` makes it anew"
        yield findings.note("leases", f"{context.state.fence} is missing", remedy)
        return
    left = collections.Counter(_owners(context.state, context.swept.ended))
    mine = left.pop(os.geteuid(), 0)
    if left and os.geteuid() != 0:
        whose = ", ".join(f"{count} of {location.user_name(uid)}" for uid, count in left.items())
        yield findings.note(
            "leases",
            f"ended programs of others have left files: {whose}",
            f"they or root can remove them: {_SETUP}",
        )
    elif mine or left:
        count = mine + left.total()
        yield findings.ok(
            "leases", f"{count} of ended programs; the next `partage run` removes them"
        )
    else:
        yield findings.ok("leases", "no ended program has left anything")


def _whose(context: findings.Context, state: location.StateFolder, text: str) -> findings.Finding:
    if state.shared:
        return findings.ok("ledger", f"{text}; shared by group {location.group_name(state.gid)}")
    if context.environ.get(location.VARIABLE) or context.environ.get(location.SIMULATION):
        return findings.ok("ledger", f"{text}; yours alone")
    return findings.note(
        "ledger", f"{text}; yours alone: what others are granted is not seen", _SETUP
    )


def _own(path: Path) -> findings.Finding:
    """A folder of this user, who may have closed it themselves; or root has, by working there."""
    writing = 0 if disk_problems.is_read_only(path) else os.W_OK  # `disk` reports the other
    closed = [
        needed
        for needed in _needed(path)
        if os.path.lexists(needed) and not _usable(needed, os.R_OK | writing)
    ]
    if not closed:
        return findings.ok("permissions", f"{path} is yours")
    text = f"you may not read and write {', '.join(map(str, closed))}"
    if all(path_.lstat().st_uid == os.geteuid() for path_ in closed):
        return findings.problem(
            "permissions", text, f"`chmod u+rwX {shlex.join(map(str, closed))}`"
        )
    user = location.user_name(os.geteuid())
    return findings.problem("permissions", text, f"`sudo chown -R {user} {shlex.quote(str(path))}`")


def _needed(path: Path) -> Iterator[Path]:
    """What `partage run` writes in a state folder."""
    fence = path / "fence"
    yield from (path, path / "leases", fence, fence / "lock", fence / "tenants", fence / "seats")
    with contextlib.suppress(OSError):
        yield from (fence / "seats").iterdir()
    yield from (path / f"ledger.db{suffix}" for suffix in ("", "-wal", "-shm"))


def _usable(path: Path, access: int) -> bool:
    return os.access(path, access | (os.X_OK if path.is_dir() else 0))


def _stranger(path: Path, status: os.stat_result) -> findings.Finding:
    """A folder that this user may not use; they may be a member who has not logged in since."""
    import grp

    group, user = location.group_name(status.st_gid), location.user_name(os.geteuid())
    try:
        members = grp.getgrgid(status.st_gid).gr_mem
    except KeyError:
        members = []
    if user in members and status.st_gid not in os.getgroups():
        text = f"{user} is a member of group {group}, but this login does not know it yet"
        return findings.problem("permissions", text, f"log in again, or `newgrp {group}`")
    return findings.problem(
        "permissions",
        f"{user} may not use {path}",
        f"`sudo usermod -aG {group} {user}`, and log in again; or a folder of your own in "
        f"{location.VARIABLE}",
    )


def _owners(state: location.StateFolder, ended: tuple[str, ...]) -> Iterator[int]:
    """Of what is left, by user: leases, and fences without one."""
    for token in ended:
        lease_file = lease_files.find(state.leases, token)
        if lease_file is not None:
            yield lease_file.uid
    root = roots.find(state.fence)
    for name in tenants.names(root):
        if not (state.leases / name.rpartition(".")[2]).exists():
            yield (root.tenants / name).stat().st_uid
