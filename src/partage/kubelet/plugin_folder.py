"""The kubelet's folder for plugins, watched for its restarts and for other plugins.

A kubelet that starts removes every socket in the folder, makes a new ``kubelet.sock``, and knows no
plugin. Pods whose containers start before their plugin is back fail for good, so it must be seen
at once. One poller serves all plugins of a process: it looks at ``kubelet.sock`` every 0.1 s and
checks for each waiting plugin whether its condition holds. Twenty plugins cost about twenty system
calls a look; a watch by inotify would save those, and would need a second way for the file systems
and mounts on which it sees nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from partage.kubelet import plugin_sockets

PATH = Path("/var/lib/kubelet/device-plugins")  # the kubelet takes no other
LOOK_S = 0.1
_SWEEP_EVERY = 10  # looks, while another agent has sockets here: it may be killed

log = logging.getLogger(__name__)

Condition = Callable[[plugin_sockets.Identity | None], bool]


class Folder:
    """The folder and the kubelet in it; nothing is seen unless `watch` runs."""

    def __init__(self, path: Path = PATH) -> None:
        self.path = path
        self.kubelet_socket = path / "kubelet.sock"
        self.own: set[str] = set()  # the names of the sockets that plugins of this process have
        self.others: Mapping[str, plugin_sockets.Identity] = {}  # those of other plugins, by name
        self._waiting: dict[asyncio.Event, Condition] = {}
        self._looks = 0

    async def watch(self) -> NoReturn:
        """Remove what dead agents left, then look for changes, for ever."""
        plugin_sockets.sweep(self.path)
        kubelet = self.kubelet()
        self._log(kubelet)
        while True:
            before, kubelet = kubelet, self.kubelet()
            if kubelet != before:
                self._log(kubelet)
            self._look_around()
            for event, holds in self._waiting.items():
                if holds(kubelet):
                    event.set()
            await asyncio.sleep(LOOK_S)

    def kubelet(self) -> plugin_sockets.Identity | None:
        """Which kubelet is there now; another value means another one."""
        return plugin_sockets.identity(self.kubelet_socket)

    async def arrival(self) -> plugin_sockets.Identity:
        """Wait until a kubelet is there; the answer says which one."""
        while (kubelet := self.kubelet()) is None:
            await self.until(lambda now: now is not None)
        return kubelet

    async def departure(self, kubelet: plugin_sockets.Identity, *, within_s: float) -> None:
        """Wait until this kubelet is no longer there, or for so long."""
        try:
            async with asyncio.timeout(within_s):
                await self.until(lambda now: now != kubelet)
        except TimeoutError:
            return

    async def until(self, holds: Condition) -> None:
        """Wait until this holds of the kubelet that is there; it is asked at every look."""
        if holds(self.kubelet()):
            return
        event = asyncio.Event()
        self._waiting[event] = holds
        try:
            await event.wait()
        finally:
            del self._waiting[event]

    def _look_around(self) -> None:
        self._looks += 1
        if self._looks % _SWEEP_EVERY == 0 and any(map(plugin_sockets.is_agents, self.others)):
            plugin_sockets.sweep(self.path, but=self.own)
        self.others = plugin_sockets.others(self.path, but=self.own | {self.kubelet_socket.name})

    def _log(self, kubelet: plugin_sockets.Identity | None) -> None:
        if kubelet is None:
            log.warning("no kubelet at %s: waiting for it", self.kubelet_socket)
        else:
            log.info("the kubelet is at %s; it may just have started", self.kubelet_socket)
