"""New prices for the priced policy, learned beside the decisions.

Making a lesson takes up to a few tenths of a second, so it is made in a thread, from copies of what
arrived. The ranks that it makes stale are made anew one by one, between requests.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from partage.core.policies import priced
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

_PAUSE_S = 1.0


async def run(mirror: mirrors.Mirror) -> NoReturn:
    """For ever: a lesson whenever enough has arrived."""
    while True:
        await asyncio.sleep(_PAUSE_S)
        if not mirror.mix.due:
            continue
        try:
            await learn(mirror)
        except Exception:  # opinions are worth nothing beside the decisions that go on
            log.exception("no lesson was learned")


async def learn(mirror: mirrors.Mirror) -> None:
    """One lesson."""
    arrived, states = mirror.mix.copy(), list(mirror.fleet.states())
    mirror.mix.learned()
    lesson = await asyncio.to_thread(priced.learn, arrived, states)
    for _ in mirror.fleet.set_policy(priced.Priced(lesson)):
        await asyncio.sleep(0)
