"""Claims in the extender: the store, the controller, and the watches that feed them.

Where the definitions are not installed there is nothing to do, and they are looked for again once
in a while. Where they are, their objects are read before anything is decided: an ElasticGPU holds
its share whether or not a pod uses it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from partage.dialects.claims import objects
from partage.kube import api as kube
from partage.kube import discovery, events
from partage.kube import errors as kube_errors
from partage.kube.reflection import reflector
from partage.scheduler.claims import claim_grants, claim_store, controller
from partage.scheduler.mirror import mirror as mirrors

log = logging.getLogger(__name__)

_LOOK_EVERY_S = 60.0
_ASK_AGAIN_S = 1.0
_PATHS = (objects.ELASTIC_GPUS_PATH, objects.CLAIMS_PATH, objects.CLASSES_PATH)
_NEEDED = {"elasticgpus", "elasticgpuclaims", "elasticgpuclasses"}
_FORBIDDEN = (
    "{error}; claims are not bound, and what ElasticGPUs hold is not respected: allow it, as "
    "deploy/extender.yaml does, and restart the extender"
)


class Claims:
    """The parts, put together."""

    def __init__(
        self,
        api: kube.Api,
        mirror: mirrors.Mirror,
        *,
        may_write: Callable[[], bool],
        wake_all: Callable[[], None],
    ) -> None:
        self._api = api
        self._mirror = mirror
        self._wake_all = wake_all
        self._reflectors: dict[str, reflector.Reflector[Any]] = {}
        self._removed = False  # the definitions, after they were there
        self.store = claim_store.ClaimStore(
            mirror.fleet,
            settings=lambda: mirror.settings,
            freed=self._freed,
            changed=self._claim_changed,
        )
        self.grants = claim_grants.ClaimGrants(self.store, mirror.fleet)
        self._controller = controller.Controller(
            self.store,
            mirror.fleet,
            api,
            events.Events(api, "partage-claims", socket.gethostname(), now=_now),
            leading=may_write,
            now=_now,
            freed=self._freed,
        )

    async def installed(self) -> bool:
        """Whether the definitions are there, and may be read."""
        try:
            if not await discovery.served(self._api, objects.API_VERSION) >= _NEEDED:
                return False
            if not await discovery.readable(self._api, _PATHS):
                return False
        except kube_errors.Forbidden as error:
            self._mirror.problems.set("Elastic GPU", _FORBIDDEN.format(error=error))
            return False
        self._mirror.problems.set("Elastic GPU", "")
        return True

    def reflectors(self) -> dict[str, reflector.Reflector[Any]]:
        """What keeps the store equal to the cluster; classes come before what names them."""
        store = self.store
        self._reflectors = {
            "elasticgpuclasses": reflector.Reflector(
                self._api, objects.CLASSES_PATH, objects.ElasticGPUClass, store.classes, key=_name
            ),
            "elasticgpus": reflector.Reflector(
                self._api,
                objects.ELASTIC_GPUS_PATH,
                objects.ElasticGPU,
                store.elastic_gpus,
                key=_name,
            ),
            "elasticgpuclaims": reflector.Reflector(
                self._api, objects.CLAIMS_PATH, objects.ElasticGPUClaim, store.claims, key=_uid
            ),
        }
        return self._reflectors

    def waits_for(self, kind: str) -> bool:
        """Whether a kind has to be read before anything is decided.

        Where the definitions were removed there is nothing to read, and all other pods go on.
        """
        return not (self._removed and kind in self._reflectors)

    async def are_served(self) -> bool:
        """The same, once the API server has answered: what ElasticGPUs hold must not be missed."""
        while True:
            try:
                return await self.installed()
            except kube_errors.KubeError as error:
                log.warning("whether Elastic GPU is installed is not known yet: %s", error.what)
                await asyncio.sleep(_ASK_AGAIN_S)

    async def run(self, begin: Callable[[], None]) -> NoReturn:
        """Work, as soon as there are definitions; ``begin`` starts the watches."""
        while True:
            if await self.are_served():
                break
            await asyncio.sleep(_LOOK_EVERY_S)
        begin()
        log.info("claims of Elastic GPU are served")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_definitions())
            group.create_task(self._controller.run())
        raise AssertionError("tasks that never end have ended")

    async def settle(self) -> None:
        """Before a new leader decides anything: nothing that was sent before may yet happen."""
        await self._controller.settle()

    def begin_term(self) -> None:
        """Pods that waited in an earlier term may be gone; those that wait now will ask again."""
        self.store.wanted.clear()

    async def finish(self) -> bool:
        """At the end: whether nothing that was sent can happen any more."""
        return await self._controller.finish()

    def room_changed(self, node: str) -> None:
        """A node has more room than before, or is gone, or has other cards."""
        self.store.look_again(node)
        self._wake()

    async def _watch_definitions(self) -> NoReturn:
        """A list that is not there is no reason to wait if there is nothing to be listed."""
        while True:
            await asyncio.sleep(_ASK_AGAIN_S)
            unread = not all(kind.synced.is_set() for kind in self._reflectors.values())
            removed = unread and not await self.are_served()
            if removed and not self._removed:
                log.warning("the definitions of Elastic GPU were removed; claims are not served")
            self._removed = removed

    def _freed(self, node: str) -> None:
        self._mirror.freed(node)

    def _claim_changed(self, key: str) -> None:
        if key in self.grants.waiting:
            self._wake()

    def _wake(self) -> None:
        """Pods that wait for a claim are asked about again, if there are any."""
        if self.grants.waiting:
            self.grants.waiting.clear()
            self._wake_all()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _name(item: objects.ElasticGPU | objects.ElasticGPUClass) -> str:
    return item.metadata.name


def _uid(claim: objects.ElasticGPUClaim) -> str:
    return claim.metadata.uid
