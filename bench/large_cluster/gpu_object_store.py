"""GPU object store: an API server that has GPU objects alone, and notes when it was written to.

It is of the form that ours has: the status is written apart. Nobody else writes, so its watch tells
nothing after the first list, which is empty. Each answer takes a while, as that of a real one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from partage.kube import api as kube
from partage.kube import stream_lines
from partage.scheduler.gpu_objects import definition

_ANSWER_S = 0.01
_END = {"resourceVersion": "1", "annotations": {"k8s.io/initial-events-end": "true"}}


class GpuObjectStore(kube.Api):
    """The objects, and how many writes there were in each second."""

    def __init__(self) -> None:
        """Nothing is connected."""
        self.objects: dict[str, dict[str, Any]] = {}
        self.in_second: collections.Counter[int] = collections.Counter()

    @property
    def writes(self) -> int:
        """How many there were in all."""
        return self.in_second.total()

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """That the definition is there, and may be read."""
        resources = [{"name": "gpus"}, {"name": "gpus/status"}]
        return msgspec.convert({"resources": resources}, form) if query is None else msgspec.Raw()

    async def create(self, path: str, body: Any, *, timeout_s: float | None = None) -> bytes:
        """A new object, without its status."""
        name = body["metadata"]["name"]
        self.objects[name] = {**body, "status": {}}
        return await self._written(name)

    async def patch(self, path: str, body: Any, *, kind: Any = None) -> bytes:
        """Parts of an object are replaced."""
        name = path.removeprefix(f"{definition.PATH}/").removesuffix("/status")
        parts = {step["path"].strip("/"): step["value"] for step in body}
        self.objects[name] |= {part: parts[part] for part in ("spec", "status") if part in parts}
        return await self._written(name)

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Any = None, *, idle_s: float = 0
    ) -> AsyncIterator[stream_lines.Lines]:
        """The end of an empty list, and silence."""
        yield stream_lines.Lines(_silence())

    async def _written(self, name: str) -> bytes:
        self.in_second[int(asyncio.get_running_loop().time())] += 1
        await asyncio.sleep(_ANSWER_S)
        made = self.objects[name]
        made["metadata"] = {**made["metadata"], "resourceVersion": str(self.writes)}
        return msgspec.json.encode(made)


async def _silence() -> AsyncIterator[bytes]:
    end = {"type": "BOOKMARK", "object": {"metadata": _END}}
    yield msgspec.json.encode(end) + b"\n"
    await asyncio.Event().wait()
