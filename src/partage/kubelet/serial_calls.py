"""One call per set of device IDs at a time.

The kubelet waits 30 s for a container to be made ready, and then asks again while the first call
still works on the same files. So a call is never cut short, even if nobody waits for its answer
any more, and the next for the same IDs begins when it has ended. It does not take over the answer:
meanwhile the IDs may have gone to another pod.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from partage.core import errors

log = logging.getLogger(__name__)

_REMEMBERED = 1000

Ids = frozenset[str]


class SerialCalls:
    """The calls that run, by their IDs."""

    def __init__(self) -> None:
        self._running: dict[Ids, asyncio.Task[None]] = {}
        self._said: dict[Ids, str] = {}  # the kubelet tries again and again

    async def run(
        self, ids: Ids, call: Callable[[], Coroutine[Any, Any, None]]
    ) -> BaseException | None:
        """Wait until no other call runs for these IDs, make the call, and return what it raised.

        If the caller is cancelled while it waits, no call is made; later, the call goes on alone.
        """
        while (before := self._running.get(ids)) is not None:
            await asyncio.wait((before,))
        task = self._running[ids] = asyncio.create_task(call())
        task.add_done_callback(lambda task: self._end(ids, task))
        await asyncio.wait((task,))
        return task.exception()

    def _end(self, ids: Ids, task: asyncio.Task[None]) -> None:
        del self._running[ids]
        # Logged here, since the one who asked may be gone.
        if task.cancelled() or (error := task.exception()) is None:
            self._said.pop(ids, None)
            return
        if isinstance(error, errors.PartageError):
            if self._said.get(ids) != str(error):
                log.warning("a container cannot start yet: %s", error)
            self._said[ids] = str(error)
            if len(self._said) > _REMEMBERED:
                del self._said[next(iter(self._said))]
        else:
            log.error("a container cannot start yet", exc_info=error)
