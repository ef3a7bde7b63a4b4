"""Where ``partage top`` has its numbers from.

What was named: an agent, or a folder of fences. Else the agent of this node, if it answers: it
knows the pods. Else the ledger of this machine, which knows what ``partage run`` started. What
speaks HTTP, and NVML, is imported only when it is needed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from partage.agent import reporting
from partage.cli.top import looks
from partage.fence import roots
from partage.local import places

DEFAULT_AGENT = f"http://{reporting.DEFAULT_ADDRESS}:{reporting.DEFAULT_PORT}"

# Whoever sets one of these means a ledger, whether or not this machine is a node of a cluster too.
_LEDGER_MEANT = (places.VARIABLE, places.SIMULATION)


@contextlib.contextmanager
def first_look(agent: str | None, root: Path | None) -> Iterator[looks.Look]:
    """A look at what was named, or at what is usual here."""
    if agent is None and root is not None:
        from partage.cli.top import folder

        with folder.opened(roots.find(root)) as taken:
            yield looks.of_agent(taken)
    elif found := _agent(agent):
        yield found
    else:
        from partage.local import viewing

        with viewing.opened() as taken_here:
            yield looks.of_machine(taken_here)


def _agent(named: str | None) -> looks.Look | None:
    """An agent that was named must answer; the usual one need not be there."""
    from partage.cli.top import fetching

    if named is not None:
        return looks.of_agent(lambda: fetching.fetch(named))
    if any(map(os.environ.get, _LEDGER_MEANT)):
        return None
    with contextlib.suppress(fetching.CannotFetch):
        return looks.of_agent(lambda: fetching.fetch(DEFAULT_AGENT))
    return None
