"""Node taints: a node in a mode that is for pods with cards gets the taint of that mode.

Which labels ask for which taint is known to the dialects. The taint is put when a label asks for it
and taken away when none does any more; all others stay as they are. What was put is noted in an
annotation of the node, so that a taint of the same name on a node without the label, where somebody
set it by hand, is not taken for ours. One that is already there when a label asks for it is noted
as ours, too: that is what a node of a cluster looks like in which T9k's own scheduler ran before.

The list of taints can only be replaced as a whole, and others write it as well (a cordon, the
controllers of nodes). So it is read anew, and written on condition that the node is still of the
version that was read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, NoReturn

import msgspec

from partage.dialects import nodes, registry
from partage.kube import api as kube
from partage.kube import errors as kube_errors

log = logging.getLogger(__name__)

ANNOTATION = "partage.dev/taints"  # those that were put, as kubectl writes them

_PAUSE_S = 1.0  # before what failed is tried again


class Change(msgspec.Struct, frozen=True):
    """What is to be done to the taints of a node."""

    added: tuple[nodes.Taint, ...]
    removed: tuple[nodes.Taint, ...]
    noted: str  # the annotation from then on


def change(
    intended: Collection[nodes.Taint], present: Iterable[nodes.Taint], noted: str
) -> Change | None:
    """What a node lacks, and what it has too much; None if it is as it should be.

    A key can be there once with each effect. Where somebody else gave it another value, that stays.
    """
    ours = set(noted.split(","))
    removed = tuple(taint for taint in present if str(taint) in ours and taint not in intended)
    kept = [taint for taint in present if taint not in removed]
    places = {(taint.key, taint.effect) for taint in kept}
    added = tuple(taint for taint in intended if (taint.key, taint.effect) not in places)
    noted_now = ",".join(str(taint) for taint in intended if taint in (*kept, *added))
    if not added and not removed and noted_now == noted:
        return None
    return Change(added, removed, noted_now)


class NodeTaints:
    """Keeps the taints of all nodes as their labels say."""

    def __init__(self, api: kube.Api, *, leading: Callable[[], bool], put: bool = True) -> None:
        self._api = api
        self._leading = leading
        self._put = put  # false: no label asks for a taint, and those that were put are removed
        self._names: dict[str, None] = {}  # of nodes that are not as they should be
        self._due = asyncio.Event()
        self._forbidden = False

    def look(self, node: nodes.Node) -> None:
        """A node was read; it is called for every heartbeat, and does nothing for most."""
        if self._change(node.metadata, node.spec.taints) is not None:
            self._names[node.metadata.name] = None
            self._due.set()

    async def run(self) -> NoReturn:
        """For ever: write what differs, one node after the other."""
        while True:
            await self._due.wait()
            self._due.clear()
            names, self._names = self._names, {}
            # A replica that does not lead forgets them: it reads all nodes again when it begins to.
            failed = [n for n in names if self._leading() and not await self._settled(n)]
            if failed:
                await asyncio.sleep(_PAUSE_S)
                self._names.update(dict.fromkeys(failed))
                self._due.set()

    def _change(self, meta: nodes.Metadata, present: Iterable[nodes.Taint]) -> Change | None:
        intended = registry.node_taints(meta.labels) if self._put else ()
        return change(intended, present, meta.annotations.get(ANNOTATION, ""))

    async def _settled(self, name: str) -> bool:
        """Whether nothing is left to be done to a node."""
        try:
            await self._settle(name)
        except kube_errors.NotFound as error:
            log.debug("node %s is gone: %s", name, error)
        except kube_errors.Forbidden as error:
            self._complain(error)
        except kube_errors.Conflict as error:
            log.debug("node %s changed meanwhile; trying again: %s", name, error)
            return False
        except kube_errors.KubeError as error:
            log.warning(
                "node %s does not have the taints of its mode; trying again: %s", name, error
            )
            return False
        return True

    async def _settle(self, name: str) -> None:
        path = f"/api/v1/nodes/{name}"
        node = await self._api.get(path, _Node)
        present = msgspec.convert(node.spec.taints, tuple[nodes.Taint, ...])
        due = self._change(node.metadata, present)
        if due is None:
            return
        await self._api.patch(path, _patch(node, present, due))
        log.info(
            "node %s: its labels ask for the taints (%s); added: %s; removed: %s",
            *(name, due.noted, _shown(due.added), _shown(due.removed)),
        )

    def _complain(self, error: kube_errors.Forbidden) -> None:
        """Once is enough: rights do not change often, and all else works without this one."""
        if not self._forbidden:
            self._forbidden = True
            log.error(
                "nodes do not get the taints of their modes: %s; "
                "allow 'patch' on nodes, as deploy/extender.yaml does",
                error,
            )


class _Metadata(nodes.Metadata, frozen=True, rename="camel"):
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True):
    taints: tuple[dict[str, Any], ...] = ()  # with fields that we do not know, such as timeAdded


class _Node(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


def _patch(node: _Node, present: Iterable[nodes.Taint], due: Change) -> dict[str, Any]:
    """The whole list, since it can only be replaced, for the version of the node that was read."""
    written = zip(node.spec.taints, present, strict=True)
    kept = [fields for fields, taint in written if taint not in due.removed]
    metadata = {
        "resourceVersion": node.metadata.resource_version,
        "annotations": {ANNOTATION: due.noted or None},
    }
    return {"metadata": metadata, "spec": {"taints": [*kept, *due.added]}}


def _shown(taints: Iterable[nodes.Taint]) -> str:
    return ", ".join(map(str, taints)) or "none"
