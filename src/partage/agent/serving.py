"""Serving: one plugin for each resource that this node offers, kept as the node is.

Which resources those are follows from the dialects that are spoken here and from the node's labels,
how many units from its cards, and how many of them are well from the cards' health. All of that
changes while the agent runs; a resource that is no longer offered is told to have no units, because
the kubelet forgets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from partage.agent import counting, node_pods, world
from partage.core import errors, grants
from partage.dialects import hami, registry
from partage.kubelet import checkpoint, folders, listings, plugins, services
from partage.kubelet import errors as kubelet_errors

log = logging.getLogger(__name__)


class Served:
    """The plugins of the node."""

    def __init__(
        self,
        facts: world.World,
        known: node_pods.NodePods,
        handler: services.Handler,
        folder: folders.Folder,
        *,
        complain: Callable[[str, str], None],
    ) -> None:
        self._world = facts
        self._pods = known
        self._handler = handler
        self._folder = folder
        self._complain = complain  # about a resource, to people
        self._plugins: dict[str, plugins.Plugin] = {}
        self._told: tuple[dict[str, int], dict[str, int]] = ({}, {})
        self._left: set[str] = set()  # to other plugins, or because they are too many

    def problems(self) -> list[str]:
        """Why resources are not registered."""
        return [plugin.problem for plugin in self._plugins.values() if plugin.problem]

    def running(self) -> Collection[plugins.Plugin]:
        """Those that there are now."""
        return self._plugins.values()

    def refresh(self, group: asyncio.TaskGroup) -> None:
        """Offer what the node has now; plugins that are new run in the group."""
        facts = self._world
        offered = registry.offered(facts.node, facts.settings, facts.dialects)
        well = registry.offered(facts.healthy, facts.settings, facts.dialects)
        if (offered, well) == self._told:
            return  # nodes change every few seconds, and lists can be long
        self._told = (offered, well)
        written = self._checkpoint()
        for resource in sorted(offered.keys() | self._plugins.keys()):
            amount = offered.get(resource, 0)
            listed = self._listing(resource, amount, amount - well.get(resource, 0), written)
            plugin = self._plugins.get(resource)
            if plugin is not None:
                self._update(plugin, listed)
            elif self._ours(resource, written) and resource not in self._left:
                self._begin(resource, listed, group)
        facts.served = frozenset(self._plugins)

    def _begin(
        self, resource: str, listed: tuple[listings.Unit, ...], group: asyncio.TaskGroup
    ) -> None:
        try:
            plugin = plugins.Plugin(resource, listed, self._handler, self._folder)
        except kubelet_errors.BadListing as error:
            self._leave(resource, str(error))
            return
        self._plugins[resource] = plugin
        group.create_task(plugin.run(), name=resource)

    def _update(self, plugin: plugins.Plugin, listed: tuple[listings.Unit, ...]) -> None:
        try:
            plugin.update(listed)
        except kubelet_errors.BadListing as error:
            self._leave(plugin.resource, str(error))  # as it is: with the units it has

    def _leave(self, resource: str, why: str) -> None:
        if resource not in self._left:
            self._left.add(resource)
            self._complain(resource, why)

    def _ours(self, resource: str, written: checkpoint.Checkpoint | None) -> bool:
        """NVIDIA's resource belongs to NVIDIA's plugin where that is installed."""
        if resource != hami.CARDS or written is None:
            return True
        registered = written.registered.get(resource, frozenset())
        if counting.ours(registered):
            return True
        self._leave(
            resource,
            f"{resource} is served by another plugin, and left to it; remove that one and start "
            "the agent again if Partage is to serve it",
        )
        return False

    def _checkpoint(self) -> checkpoint.Checkpoint | None:
        try:
            return checkpoint.read(self._folder.path / checkpoint.NAME)
        except errors.PartageError as error:
            log.debug("%s", error)  # a kubelet that never had a plugin has none
            return None

    def _listing(
        self, resource: str, amount: int, sick: int, written: checkpoint.Checkpoint | None
    ) -> tuple[listings.Unit, ...]:
        if not sick or written is None:
            return counting.listing(amount, sick)
        holdings = [each for each in written.holdings if each.resource == resource]
        return counting.listing(
            amount,
            sick,
            held=_ids(holdings),
            held_by_sick=_ids(each for each in holdings if self._on_sick_card(each)),
        )

    def _on_sick_card(self, holding: checkpoint.Holding) -> bool:
        pod = self._pods.known.get(holding.pod_uid)
        if pod is None:
            return False
        facts = self._world
        grant = registry.granted(pod, facts.node, facts.settings)
        if not isinstance(grant, grants.Grant):
            return False
        sick = {card.uuid for card in facts.node.cards if not card.healthy}
        mine = (c for c in grant.containers if c.name == holding.container)
        return any(share.uuid in sick for container in mine for share in container.shares)


def _ids(holdings: Iterable[checkpoint.Holding]) -> set[str]:
    return {each for holding in holdings for each in holding.ids}
