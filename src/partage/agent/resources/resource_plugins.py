"""One plugin for each resource that this node offers, kept as the node is.

Which resources those are follows from the dialects that are spoken here and from the node's labels,
how many units from its cards, and how many of them are healthy, from the cards' health and from
which of them are cordoned. All of that changes while the agent runs; a resource that is no longer
offered is told to have no units, because the kubelet forgets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from partage.agent import node_state
from partage.agent.pods import node_pods
from partage.agent.resources import device_ids
from partage.core import errors, grants
from partage.dialects import bound_pods, registry
from partage.kubelet import checkpoint, device_lists, plugin_folder, plugins, servicer
from partage.kubelet import errors as kubelet_errors

log = logging.getLogger(__name__)


class ResourcePlugins:
    """The plugins of the node."""

    def __init__(
        self,
        state: node_state.NodeState,
        pods_of_node: node_pods.NodePods,
        handler: servicer.Handler,
        folder: plugin_folder.Folder,
        *,
        complain: Callable[[str, str], None],
    ) -> None:
        self._state = state
        self._pods = pods_of_node
        self._handler = handler
        self._folder = folder
        self._complain = complain  # about a resource, to people
        self._plugins: dict[str, plugins.Plugin] = {}
        self._listed: tuple[dict[str, int], ...] = ()
        self._left: set[str] = set()  # to other plugins, or because they are too many
        self._running: list[asyncio.Task[None]] = []
        self._ended = False

    def problems(self) -> list[str]:
        """Why resources are not registered."""
        return [plugin.problem for plugin in self._plugins.values() if plugin.problem]

    def running(self) -> Collection[plugins.Plugin]:
        """Those that there are now."""
        return self._plugins.values()

    def end(self) -> list[str]:
        """Go from the kubelet, and stay away; the resources that were registered."""
        registered = [plugin.resource for plugin in self._plugins.values() if plugin.registered]
        self._ended = True
        for task in self._running:
            task.cancel()
        return registered

    def refresh(self, group: asyncio.TaskGroup) -> None:
        """Offer what the node has now; plugins that are new run in the group."""
        if self._ended:
            return
        state = self._state
        offered = registry.offered(state.node, state.settings, state.dialects)
        healthy = registry.offered(state.healthy, state.settings, state.dialects)
        written = self._checkpoint() if state.cordoned.cards else None
        withheld = self._withheld(written, healthy)
        if (offered, healthy, withheld) == self._listed:
            return  # nodes change every few seconds, and lists can be long
        self._listed = (offered, healthy, withheld)
        written = written or self._checkpoint()
        for resource in sorted(offered.keys() | self._plugins.keys()):
            counts = _Counts(
                offered.get(resource, 0), healthy.get(resource, 0), withheld.get(resource, 0)
            )
            listed = self._listing(resource, counts, written)
            plugin = self._plugins.get(resource)
            if plugin is not None:
                self._update(plugin, listed)
            elif self._ours(resource, written) and resource not in self._left:
                self._begin(resource, listed, group)
        state.served = frozenset(self._plugins)

    def _begin(
        self, resource: str, listed: tuple[device_lists.Unit, ...], group: asyncio.TaskGroup
    ) -> None:
        try:
            plugin = plugins.Plugin(resource, listed, self._handler, self._folder)
        except kubelet_errors.BadListing as error:
            self._leave(resource, str(error))
            return
        self._plugins[resource] = plugin
        self._running.append(group.create_task(plugin.run(), name=resource))

    def _update(self, plugin: plugins.Plugin, listed: tuple[device_lists.Unit, ...]) -> None:
        try:
            plugin.update(listed)
        except kubelet_errors.BadListing as error:
            self._leave(plugin.resource, str(error))  # as it is: with the units it has

    def _leave(self, resource: str, why: str) -> None:
        if resource not in self._left:
            self._left.add(resource)
            self._complain(resource, why)

    def _ours(self, resource: str, written: checkpoint.Checkpoint | None) -> bool:
        """Whether to serve a resource; a vendor's plugin, where it is installed, comes first."""
        if resource not in registry.names().vendor_resources or written is None:
            return True
        registered = written.registered.get(resource, frozenset())
        if device_ids.ours(registered):
            return True
        self._leave(
            resource,
            f"{resource} is served by another plugin, and the agent leaves it to that plugin; for "
            "Partage to serve it, remove that plugin and restart the agent",
        )
        return False

    def _checkpoint(self) -> checkpoint.Checkpoint | None:
        try:
            return checkpoint.read(self._folder.path / checkpoint.NAME)
        except errors.PartageError as error:
            log.debug("%s", error)  # a kubelet that never had a plugin has none
            return None

    def _withheld(
        self, written: checkpoint.Checkpoint | None, healthy: Mapping[str, int]
    ) -> dict[str, int]:
        """What nobody has of the cordoned cards, by resource.

        That is what the node would offer less without them, and nothing of a resource that does not
        count cards: what claims have is on cards that were given before.
        """
        state = self._state
        cordoned = {card.uuid for card in state.cordoned.cards}
        if not cordoned:
            return {}
        others = registry.offered(state.open, state.settings, state.dialects)
        amounts = {
            resource: amount - others.get(resource, 0) for resource, amount in healthy.items()
        }
        for holding in written.holdings if written is not None else ():
            uuids = self._uuids(holding)
            held = sum(uuid in cordoned for uuid in uuids)
            if held and holding.resource in amounts:
                # Equal shares: of the units, each of the container's cards has the same part.
                amounts[holding.resource] -= len(holding.ids) * held // len(uuids)
        return {resource: max(0, amount) for resource, amount in amounts.items()}

    def _listing(
        self, resource: str, counts: _Counts, written: checkpoint.Checkpoint | None
    ) -> tuple[device_lists.Unit, ...]:
        unhealthy = counts.amount - counts.healthy
        if not (unhealthy or counts.withheld) or written is None:
            return device_ids.listing(counts.amount, unhealthy, withheld_count=counts.withheld)
        holdings = [holding for holding in written.holdings if holding.resource == resource]
        lost = {card.uuid for card in self._state.node.cards if not card.healthy}
        return device_ids.listing(
            counts.amount,
            unhealthy,
            held=_ids(holdings),
            held_by_unhealthy=_ids(
                holding for holding in holdings if not lost.isdisjoint(self._uuids(holding))
            ),
            withheld_count=counts.withheld,
        )

    def _uuids(self, holding: checkpoint.Holding) -> list[str]:
        """The cards of the container that holds some units; none if that is not known."""
        pod = self._pods.by_uid.get(holding.pod_uid)
        if pod is None:
            return []
        grant = bound_pods.granted(pod, self._state.node, self._state.settings)
        if not isinstance(grant, grants.Grant):
            return []
        mine = (c for c in grant.containers if c.name == holding.container)
        return [share.uuid for container in mine for share in container.shares]


class _Counts(msgspec.Struct, frozen=True):
    """How many units of a resource there are, are healthy, and are not to be given away."""

    amount: int
    healthy: int
    withheld: int


def _ids(holdings: Iterable[checkpoint.Holding]) -> set[str]:
    return {device_id for holding in holdings for device_id in holding.ids}
