"""What is done about a finding, and the words for it."""

from __future__ import annotations

from collections.abc import Callable

from partage.core import errors
from partage.fence import processes
from partage.fence.store import limits, roots, tenants
from partage.fence.watch import escapes
from partage.fence.watch.escapes import Then


def proper(requested: Then, finding: escapes.Finding) -> Then:
    """What is really done: a process that takes nothing from others is reported, and left alone.

    An honest program that no fence gets into, for another C library say, is found as well.
    """
    return requested if finding.harms else Then.TELL


def done(
    root: roots.Root,
    then: Then,
    finding: escapes.Finding,
    is_tenants: Callable[[processes.Facts], bool],
) -> str:
    """Do it; the answer says what was done.

    Whether the process is the tenant's is checked when no other process can take its id any more.
    """
    if then is Then.TELL:
        return "nothing was done about it"
    if then is Then.PAUSE:
        return _paused(root, finding.tenant)
    process = finding.process
    failed = processes.end(process.pid, process.started_ticks, is_tenants)
    return f"it was not ended: {failed}" if failed else "it was ended"


def _paused(root: roots.Root, tenant: str) -> str:
    try:
        tenants.change(root, tenant, limits.Change(paused=True))
    except (errors.PartageError, OSError) as error:
        return f"its tenant was not paused: {error}"
    where = "" if root.path == roots.DEFAULT else f"--root {root.path} "
    return f"its tenant is paused; `partage fence set {where}{tenant} --resume` resumes it"
