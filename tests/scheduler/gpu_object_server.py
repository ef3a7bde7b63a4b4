"""An API server with GPU objects: lists, watches, versions, conflicts, and failures on demand."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import stream_lines
from partage.scheduler.gpu_objects import card_objects, definition, stored_objects

MARK = {card_objects.MANAGER_LABEL: card_objects.MANAGER}


class Server(kube.Api):
    """The objects, and what was done to them."""

    def __init__(self, *, status_apart: bool = False, prunes: bool = False) -> None:
        """Nothing is connected."""
        self.objects: dict[str, dict[str, Any]] = {}
        self.installed = True
        self.forbidden = False  # to list objects
        self.status_apart = status_apart
        self.prunes = prunes  # it drops what its definition does not have
        self.answers: list[kube_errors.KubeError] = []  # to the next writes, which do not happen
        self.lost: list[kube_errors.KubeError] = []  # to the next writes, which do happen
        self.writes: list[str] = []
        self.idle_writes: list[str] = []  # those that changed nothing
        self.watchers: list[asyncio.Queue[bytes]] = []
        self.questions = 0  # for the definition
        self._version = 100

    def store(self, gpu: dict[str, Any]) -> dict[str, Any]:
        """Somebody writes an object, and all who watch are told."""
        self._version += 1
        name = gpu["metadata"]["name"]
        before = self.objects.get(name)
        self.objects[name] = gpu
        gpu["metadata"]["resourceVersion"] = str(self._version)
        self._tell("MODIFIED" if before and _marked(before) else "ADDED", gpu, before)
        return gpu

    def remove(self, name: str) -> None:
        """Somebody deletes an object."""
        gpu = self.objects.pop(name)
        self._tell("DELETED", gpu, gpu)

    def read(self) -> dict[str, stored_objects.Gpu]:
        """All of them."""
        return {
            name: msgspec.convert(gpu, stored_objects.Gpu) for name, gpu in self.objects.items()
        }

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """The definition, or one object."""
        await asyncio.sleep(0)
        if path == f"/apis/{definition.VERSION}":
            self.questions += 1
            if not self.installed:
                raise kube_errors.NotFound(404, "", "404 page not found")
            names = ["gpus", *(["gpus/status"] if self.status_apart else [])]
            return msgspec.convert({"resources": [{"name": name} for name in names]}, form)
        if path == definition.PATH:
            if self.forbidden:
                raise kube_errors.Forbidden(403, "Forbidden", "cannot list")
            return msgspec.Raw(b"{}")
        return msgspec.convert(copy.deepcopy(self._stored(_name(path))), form)

    async def create(self, path: str, body: object, *, timeout_s: float | None = None) -> bytes:
        """Make an object, if there is none of that name."""
        gpu = json.loads(msgspec.json.encode(body))
        name = gpu["metadata"]["name"]
        await self._begin(f"create {name}")
        if name in self.objects:
            raise kube_errors.Conflict(409, "AlreadyExists", name)
        if self.status_apart:
            del gpu["status"]
        return self._answered(self.store(self._pruned(gpu)))

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Put parts in the place of those that are there, if it is for this version."""
        assert kind is kube.Patch.JSON
        name, part = _name(path), path.removeprefix(f"{definition.PATH}/{_name(path)}")
        await self._begin(f"patch {name}{part}")
        before = self._stored(name)
        gpu = copy.deepcopy(before)
        for step in json.loads(msgspec.json.encode(body)):
            self._apply(gpu, step, part)
        if gpu["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]:
            raise kube_errors.Conflict(409, "Conflict", "the object has been modified")
        gpu = self._pruned(gpu)
        if gpu == before:
            self.idle_writes.append(name)
            return self._answered(before)
        return self._answered(self.store(gpu))

    async def delete(self, path: str, *, uid: str = "", version: str = "") -> None:
        """Remove an object, if it is still of this version."""
        assert not uid
        await self._begin(f"delete {_name(path)}")
        if self._stored(_name(path))["metadata"]["resourceVersion"] != version:
            raise kube_errors.Conflict(409, "Conflict", "the version is another")
        self.remove(_name(path))
        self._answered({})

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Any = None, *, idle_s: float = 0
    ) -> AsyncIterator[stream_lines.Lines]:
        """All marked objects, then whatever happens to them."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        if "sendInitialEvents" in query:
            for gpu in filter(_marked, self.objects.values()):
                queue.put_nowait(_event("ADDED", gpu))
            note = {"k8s.io/initial-events-end": "true"}
            meta = {"resourceVersion": str(self._version), "annotations": note}
            queue.put_nowait(_event("BOOKMARK", {"metadata": meta}))
        self.watchers.append(queue)
        try:
            yield stream_lines.Lines(_chunks(queue))
        finally:
            self.watchers.remove(queue)

    async def _begin(self, write: str) -> None:
        await asyncio.sleep(0)
        self.writes.append(write)
        if not self.installed:
            raise kube_errors.NotFound(404, "", "404 page not found")
        if self.answers:
            raise self.answers.pop(0)

    def _answered(self, gpu: dict[str, Any]) -> bytes:
        if self.lost:
            raise self.lost.pop(0)
        return msgspec.json.encode(gpu)

    def _stored(self, name: str) -> dict[str, Any]:
        if name not in self.objects:
            raise kube_errors.NotFound(404, "NotFound", name)
        return self.objects[name]

    def _apply(self, gpu: dict[str, Any], step: dict[str, Any], part: str) -> None:
        assert step["op"] == "add"
        first, *rest = [word.replace("~1", "/") for word in step["path"].strip("/").split("/")]
        if first == "metadata":
            place = gpu["metadata"]
            for word in rest[:-1]:
                place = place[word]
            place[rest[-1]] = step["value"]
        elif (first == "status") == (part == "/status") or not self.status_apart:
            gpu[first] = step["value"]

    def _pruned(self, gpu: dict[str, Any]) -> dict[str, Any]:
        if self.prunes:
            gpu["spec"].pop("model", None)
        return gpu

    def _tell(self, kind: str, gpu: dict[str, Any], before: dict[str, Any] | None) -> None:
        """Who watches marked objects is told that one lost its mark as if it were deleted."""
        if not _marked(gpu):
            kind = "DELETED" if before and _marked(before) else ""
        for queue in self.watchers if kind else ():
            queue.put_nowait(_event(kind, gpu))


def _marked(gpu: dict[str, Any]) -> bool:
    return bool(MARK.items() <= gpu["metadata"].get("labels", {}).items())


def _name(path: str) -> str:
    return path.removeprefix(f"{definition.PATH}/").removesuffix("/status")


def _event(kind: str, gpu: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": gpu}).encode() + b"\n"


async def _chunks(queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await queue.get()
