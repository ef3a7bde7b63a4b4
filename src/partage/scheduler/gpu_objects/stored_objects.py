"""Stored objects: what the API server has of the cards, as fingerprints.

A reflector fills it with the objects that carry our mark; others are never seen here. What was
written counts as it was meant, from the answer on: a definition that drops a field would otherwise
make every object differ for ever from what was written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, KeysView, Mapping

import msgspec

from partage.scheduler.gpu_objects import card_objects


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What an object is called, and which version this is."""

    name: str = ""
    resource_version: str = ""
    labels: Mapping[str, str] = {}


class Gpu(msgspec.Struct, frozen=True):
    """An object as the API server tells of it."""

    metadata: Metadata = Metadata()
    spec: card_objects.Spec = card_objects.Spec()
    status: card_objects.Status = card_objects.Status()

    @property
    def digest(self) -> bytes:
        """To compare with what it should be."""
        return card_objects.digest(self.metadata.labels, self.spec, self.status)

    @property
    def is_ours(self) -> bool:
        """Whether Partage made it, and may change and delete it."""
        return self.metadata.labels.get(card_objects.MANAGER_LABEL) == card_objects.MANAGER


class Stored(msgspec.Struct, frozen=True):
    """The version of an object, and what it says."""

    version: str
    digest: bytes


class StoredObjects:
    """All objects that are ours; it tells which node's changed."""

    def __init__(self, changed: Callable[[str], None]) -> None:
        self._changed = changed
        self._by_name: dict[str, Stored] = {}
        self._by_node: dict[str, set[str]] = {}

    def put(self, gpu: Gpu) -> None:
        before = self._by_name.get(gpu.metadata.name)
        if before is None or _is_newer(gpu.metadata.resource_version, before.version):
            self.correct(gpu)

    def correct(self, gpu: Gpu) -> None:
        """It is this, whatever was believed: the answer to a question."""
        self.note(gpu.metadata.name, gpu.metadata.resource_version, gpu.digest)
        self._changed(card_objects.node_of(gpu.metadata.name))

    def drop(self, name: str) -> None:
        node = card_objects.node_of(name)
        if self._by_name.pop(name, None) is None:
            return
        self._by_node[node].discard(name)
        if not self._by_node[node]:
            del self._by_node[node]
        self._changed(node)

    def keys(self) -> Collection[str]:
        return self._by_name.keys()

    def note(self, name: str, version: str, digest: bytes) -> None:
        """An object is this from a version on."""
        self._by_name[name] = Stored(version, digest)
        self._by_node.setdefault(card_objects.node_of(name), set()).add(name)

    def get(self, name: str) -> Stored | None:
        """What is known of an object; None: there is none."""
        return self._by_name.get(name)

    def nodes(self) -> KeysView[str]:
        """The nodes of which there are objects."""
        return self._by_node.keys()

    def names(self, node: str) -> Collection[str]:
        """The objects of a node."""
        return self._by_node.get(node, frozenset())


def _is_newer(version: str, before: str) -> bool:
    """Whether the watch tells more than the answers to our own writes have told."""
    if version.isdigit() and before.isdigit():
        return int(version) > int(before)  # Kubernetes compares them so, too
    return version != before
