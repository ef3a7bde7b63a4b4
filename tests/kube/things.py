"""Things, the objects of a made-up kind: as a server writes them, and a sink that keeps them."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from tests.kube import scripted_server

PATH = "/api/v1/things"


class ThingMeta(msgspec.Struct, frozen=True):
    """The metadata of a thing."""

    name: str


class Thing(msgspec.Struct, frozen=True):
    """An object as a job would read it: a name and one field."""

    metadata: ThingMeta
    size: int

    @property
    def key(self) -> str:
        """Its key in a sink."""
        return self.metadata.name


def thing(name: str, version: int = 1, *, size: object = 0) -> dict[str, object]:
    """A thing as the server writes it."""
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Thing", "metadata": meta, "size": size, "spec": {"unread": [1, 2, {}]}}


def event(kind: str, name: str, version: int = 1, *, size: object = 0) -> dict[str, object]:
    """A watch event about a thing."""
    return {"type": kind, "object": thing(name, version, size=size)}


def bookmark(version: int) -> dict[str, object]:
    """A mark of how far a watch has come."""
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def end_of_list(version: int) -> dict[str, object]:
    """The mark after the last object of a streamed list."""
    notes = {"k8s.io/initial-events-end": "true"}
    meta = {"resourceVersion": str(version), "annotations": notes}
    return {"type": "BOOKMARK", "object": {"metadata": meta}}


def failure(code: int, reason: str) -> dict[str, object]:
    """An error in the middle of a watch."""
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": reason}}


def page(*names: str, version: int = 1, following: str = "") -> scripted_server.Answer:
    """A part of a list."""
    meta = {"resourceVersion": str(version), "continue": following}
    return scripted_server.Answer(
        {"metadata": meta, "items": [thing(name, version) for name in names]}
    )


class Shelf:
    """A sink that remembers what it was told, in order."""

    def __init__(self, *names: str) -> None:
        self.sizes: dict[str, int] = dict.fromkeys(names, -1)
        self.changes: list[str] = []

    def put(self, item: Thing) -> None:
        """A thing is there."""
        self.sizes[item.key] = item.size
        self.changes.append(f"+{item.key}")

    def drop(self, key: str) -> None:
        """A thing is gone."""
        self.sizes.pop(key, None)
        self.changes.append(f"-{key}")

    def keys(self) -> Collection[str]:
        """What is there."""
        return self.sizes.keys()
