"""Whether the kubelet still counts on this agent, asked where there is doubt.

There is doubt when a socket of another plugin comes or goes in the kubelet's folder, and when the
node's status has other amounts than are offered here. Both happen for good reasons, too: other
plugins serve other resources, and a status is up to ten seconds old. So the kubelet itself is asked
what it counts, a few times, and for as long as another plugin has a resource of ours. What is to be
done about it is each plugin's business; here people are told, once for all resources.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import NoReturn

import msgspec

from partage.core import errors, quantities
from partage.dialects import pods
from partage.kubelet import plugin_folder, plugin_sockets, plugins
from partage.kubelet.registrations import Standing

log = logging.getLogger(__name__)

_PAUSES_S = (0.5, 0.5, 1.0, 2.0, 4.0, 8.0)  # before each question; a kubelet may be slow to see it
_TAKEN_S = 5.0  # between questions while another has a resource


class Callbacks(msgspec.Struct, frozen=True):
    """How the kubelet is asked, and people are told."""

    ask: Callable[[], Awaitable[Mapping[str, frozenset[str]]]]  # the IDs it counts, by resource
    taken: Callable[[str], None]  # another plugin has resources of ours
    back: Callable[[str], None]  # that is over


class Auditor:
    """Looks into doubts about the registrations of some plugins."""

    def __init__(
        self,
        folder: plugin_folder.Folder,
        served: Callable[[], Collection[plugins.Plugin]],
        callbacks: Callbacks,
    ) -> None:
        self._folder = folder
        self._served = served
        self._callbacks = callbacks
        self._doubt = asyncio.Event()
        self._seen = folder.others
        self._reported: Mapping[str, Standing] = {}  # of resources that are not ours, as reported

    def compare(self, allocatable: Mapping[str, pods.Amount]) -> None:
        """The node's status has these amounts; others than ours are a reason to ask."""
        for plugin in self._served():
            if plugin.registered and _amount(allocatable, plugin.resource) != len(plugin.healthy):
                self._doubt.set()

    async def run(self) -> NoReturn:
        """For ever: look into doubts. A new one begins it anew."""
        due_s: list[float] = []
        while True:
            if await self._doubt_comes(due_s[0] if due_s else None):
                due_s = list(_PAUSES_S)
                await asyncio.sleep(due_s[0])
            del due_s[0]
            await self._look()
            if not due_s and self._reported:
                due_s = [_TAKEN_S]

    async def _doubt_comes(self, within_s: float | None) -> bool:
        """Wait until there is a reason to doubt; False if there was none for so long."""
        try:
            async with asyncio.timeout(within_s):
                await self._folder.until(
                    lambda _: self._doubt.is_set() or self._folder.others != self._seen
                )
        except TimeoutError:
            return False
        self._doubt.clear()
        self._seen = self._folder.others
        return True

    async def _look(self) -> None:
        """Ask once, and let every plugin know; a kubelet that does not answer tells nothing."""
        try:
            counted = await self._callbacks.ask()
        except errors.PartageError as error:
            log.debug("%s", error)
            return
        for plugin in self._served():
            plugin.judge(counted.get(plugin.resource, frozenset()))
        self._tell()

    def _tell(self) -> None:
        """What has changed since it was told last."""
        before = self._reported
        now = self._reported = {
            plugin.resource: standing
            for plugin in self._served()
            if (standing := _standing(plugin, before)) is not Standing.HELD
        }
        taken = _names(r for r, s in now.items() if s is Standing.TAKEN and r not in before)
        lost = _names(r for r, s in now.items() if s is Standing.LOST)
        again = _names(r for r, s in before.items() if s is Standing.TAKEN and r not in now)
        if taken:
            self._callbacks.taken(
                f"another plugin has registered {taken} with the kubelet{self._rival()}: this "
                "agent does not serve it while the other plugin runs. Stop one of the two"
            )
        if lost:
            self._callbacks.back(
                f"the kubelet no longer has a plugin for {lost}: another plugin replaced this "
                "agent and then ended. The agent registers again"
            )
        if again:
            self._callbacks.back(f"this agent serves {again} for the kubelet again")

    def _rival(self) -> str:
        agents = sorted(filter(plugin_sockets.is_agents, self._folder.others))
        return f" (another agent of Partage, at {agents[0]})" if agents else ""


def _standing(plugin: plugins.Plugin, before: Mapping[str, Standing]) -> Standing:
    """How a resource stands; one that was taken is until it is registered again."""
    if before.get(plugin.resource) is Standing.TAKEN and plugin.standing is Standing.HELD:
        return Standing.HELD if plugin.registered else Standing.TAKEN
    return plugin.standing


def _amount(allocatable: Mapping[str, pods.Amount], resource: str) -> int:
    try:
        return quantities.whole(str(allocatable.get(resource, 0)))
    except errors.QuantityError:
        return -1


def _names(resources: Iterable[str]) -> str:
    first, *more = sorted(resources) or [""]
    return f"{first} and {len(more)} more" if more else first
