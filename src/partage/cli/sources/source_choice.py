"""The choice of a source: where ``partage top`` gets its numbers from.

What was named: an agent, or a folder of fences. Else the agent of this node, if it answers: it
knows the pods. Else the ledger of this machine, which knows what ``partage run`` started. What
speaks HTTP, and NVML, is imported only when it is needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from partage.cli.display import snapshots
from partage.cli.sources import agent_address
from partage.fence.store import roots
from partage.local.state import location

# A user who sets one of these means a ledger, even on a machine that is a node of a cluster.
_LEDGER_MEANT = (location.VARIABLE, location.SIMULATION)


@contextlib.contextmanager
def first_snapshot(agent: str | None, root: Path | None) -> Iterator[snapshots.Snapshot]:
    """A first snapshot of what was named, or of what is usual on this machine."""
    if agent is None and root is not None:
        from partage.cli.sources import fence_folder

        with fence_folder.opened(roots.find(root)) as report:
            yield snapshots.of_agent(report)
    elif snapshot := _agent(agent):
        yield snapshot
    else:
        from partage.cli.sources import this_machine

        with this_machine.opened() as view:
            yield snapshots.of_machine(view)


def _agent(named: str | None) -> snapshots.Snapshot | None:
    """An agent that was named must answer; the usual one need not be there."""
    from partage.cli.sources import agent_report

    if named is not None:
        return snapshots.of_agent(lambda: agent_report.fetch(named))
    if any(map(os.environ.get, _LEDGER_MEANT)):
        return None
    with contextlib.suppress(agent_report.CannotFetch):
        return snapshots.of_agent(lambda: agent_report.fetch(agent_address.DEFAULT))
    return None
