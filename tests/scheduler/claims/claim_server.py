"""An API server with claims, in which each write may be lost, or applied late, or not answered.

Versions, uids, finalizers and merge patches are as on a real one. A write that was sent by a
controller that is dead may be applied at any later moment.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from partage.dialects.claims import objects
from partage.kube import errors as kube_errors

T = TypeVar("T")
KINDS: dict[str, Any] = {
    "elasticgpuclaims": objects.ElasticGPUClaim,
    "elasticgpuclasses": objects.ElasticGPUClass,
    "elasticgpus": objects.ElasticGPU,
}
PASS, REFUSE, LOSE_ANSWER, LATE = "pass", "refuse", "lose answer", "late"


class Server:
    """The objects, by path, and writes that are still on their way."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.late: list[Callable[[], Any]] = []
        self.events: list[tuple[str, str]] = []  # names of what they are about, and reasons
        self._versions = itertools.count(1)
        self._uids = itertools.count(1)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Store a new object."""
        meta = body["metadata"]
        at = f"{path}/{meta['name']}"
        if at in self.objects:
            raise kube_errors.Conflict(409, "AlreadyExists", at)
        stored = copy.deepcopy(body)
        stored["metadata"] |= {"uid": f"uid-{next(self._uids)}"}
        self.objects[at] = stored
        return self._touched(stored)

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Merge, if uid and version are what the writer has seen."""
        at = path.removesuffix("/status")
        stored = self._stored(at)
        self._compare(at, body.get("metadata", {}))
        before = copy.deepcopy(stored)
        merge(stored, body)
        stored["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
        if stored != before:
            self._touched(stored)
        self._collect(at)
        return stored

    def delete(self, path: str, **seen: str) -> None:
        """Delete, or mark, where a finalizer is."""
        stored = self._stored(path)
        self._compare(path, seen)
        if "deletionTimestamp" not in stored["metadata"]:
            stored["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            self._touched(stored)
        self._collect(path)

    def get(self, path: str) -> dict[str, Any]:
        """An object as it is."""
        return self._stored(path)

    def listed(self, plural: str) -> Iterator[Any]:
        """All objects of a kind, decoded."""
        for path, stored in self.objects.items():
            if f"/{plural}/" in path:
                yield decoded(stored, KINDS[plural])

    def _stored(self, path: str) -> dict[str, Any]:
        try:
            return self.objects[path]
        except KeyError:
            raise kube_errors.NotFound(404, "NotFound", path) from None

    def _compare(self, path: str, seen: dict[str, Any]) -> None:
        meta = self._stored(path)["metadata"]
        for name in ("resourceVersion", "uid"):
            if seen.get(name) not in (None, meta.get(name)):
                raise kube_errors.Conflict(409, "Conflict", f"{path}: {name}")

    def _touched(self, stored: dict[str, Any]) -> dict[str, Any]:
        stored["metadata"]["resourceVersion"] = str(next(self._versions))
        return stored

    def _collect(self, path: str) -> None:
        meta = self.objects[path]["metadata"]
        if "deletionTimestamp" in meta and not meta.get("finalizers"):
            del self.objects[path]


class Api:
    """What one controller is connected by; ``fate`` decides what becomes of each write."""

    def __init__(self, server: Server, fate: Callable[[], str]) -> None:
        self._server = server
        self._fate = fate

    async def create(self, path: str, body: Any) -> bytes:
        """Of events only the reasons are kept."""
        if path.endswith("/events"):
            self._server.events.append((body["involvedObject"]["name"], body["reason"]))
            return b""
        return self._write(lambda: self._server.create(path, copy.deepcopy(body)))

    async def patch(self, path: str, body: Any) -> bytes:
        """A merge patch."""
        return self._write(lambda: self._server.patch(path, copy.deepcopy(body)))

    async def delete(self, path: str, *, uid: str, version: str) -> None:
        """With finalizers, as the server has them."""
        self._write(lambda: self._server.delete(path, uid=uid, resourceVersion=version))

    async def get(self, path: str, form: type[T]) -> T:
        """Always answered."""
        return decoded(self._server.get(path), form)

    def _write(self, write: Callable[[], Any]) -> bytes:
        fate = self._fate()
        if fate == REFUSE:
            raise kube_errors.Unreachable("the server is not there", sent=False)
        if fate == LATE:
            self._server.late.append(write)
            raise kube_errors.Unreachable("no answer", sent=True)
        write()
        if fate == LOSE_ANSWER:
            raise kube_errors.Unreachable("no answer", sent=True)
        return b""


def decoded(stored: dict[str, Any], form: type[T]) -> T:
    """As the wire would bring it."""
    return msgspec.json.decode(msgspec.json.encode(stored), type=form)


def merge(into: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch."""
    for name, value in patch.items():
        if value is None:
            into.pop(name, None)
        elif isinstance(value, dict):
            merge(into.setdefault(name, {}), value)
        else:
            into[name] = value
