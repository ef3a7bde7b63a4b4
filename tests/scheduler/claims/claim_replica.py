"""A controller of claims for tests: with a fleet of its own, and no clock."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection
from typing import Any

from partage.core import demands, fleet
from partage.dialects import contract, pods
from partage.kube import events
from partage.scheduler.claims import claim_grants, claim_store, controller
from tests.core import small_fleets
from tests.scheduler.claims import claim_server

CARD_MIB = 8192
NODES = ("n0", "n1")


class Replica:
    """A controller with a fleet of its own, which knows what the server has shown it."""

    def __init__(self, server: claim_server.Server, fate: Any) -> None:
        self.server = server
        self.leading = True
        self._seen: dict[tuple[str, str], Any] = {}
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        self.fleet = fleet.standard()
        for name in NODES:
            self.fleet.set_node(small_fleets.node(name, CARD_MIB))
        self.store = claim_store.ClaimStore(self.fleet, settings=contract.Settings)
        self.grants = claim_grants.ClaimGrants(self.store, self.fleet)
        self.api = claim_server.Api(server, fate)
        unread = events.Events(self.api, "test", "here", now=lambda: self.now)  # type: ignore[arg-type]
        self.controller = controller.Controller(
            self.store,
            self.fleet,
            self.api,  # type: ignore[arg-type]
            unread,
            leading=lambda: self.leading,
            now=lambda: self.now,
            freed=lambda _node: self.store.look_again(),
            sleep=_no_pause,
        )

    def read(self) -> None:
        """Take over all objects as they are, as after a list."""
        self._read(all_of=True)

    def read_news(self) -> None:
        """Take over what changed, as after a watch."""
        self._read(all_of=False)

    def _read(self, *, all_of: bool) -> None:
        for sink, plural, key in (
            (self.store.classes, "elasticgpuclasses", _name),
            (self.store.claims, "elasticgpuclaims", _uid),
            (self.store.elastic_gpus, "elasticgpus", _name),
        ):
            shown = {key(item): item for item in self.server.listed(plural)}
            for gone in set(sink.keys()) - shown.keys():
                sink.drop(gone)
            for name, item in shown.items():
                if all_of or self._seen.get((plural, name)) != item:
                    sink.put(item)
                self._seen[plural, name] = item

    def asks(self, key: str, nodes: Collection[str], *others: str) -> object:
        """A pod that names claims, and could go to these nodes."""
        pod = pods.Pod(metadata=pods.Metadata(name="p", namespace="default", uid="pod"))
        containers = tuple(
            demands.ContainerDemand(f"c{number}", demands.Demand(claim=claim))
            for number, claim in enumerate((key, *others))
        )
        demand = demands.PodDemand(containers=containers, dialect="claims")
        return self.grants.grant(pod, demand, nodes)

    def work(self) -> None:
        """All that is due, once."""
        asyncio.run(self.all_due())

    def settle(self) -> None:
        """What a new leader does first."""
        asyncio.run(self.controller.settle())

    async def all_due(self) -> None:
        """The same, in a loop of somebody else's."""
        async with asyncio.TaskGroup() as group:
            self.controller.begin_due(group)


async def _no_pause(_seconds: float) -> None:
    await asyncio.sleep(0)


def _name(item: Any) -> str:
    return str(item.metadata.name)


def _uid(item: Any) -> str:
    return str(item.metadata.uid)
