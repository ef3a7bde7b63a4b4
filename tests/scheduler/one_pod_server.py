"""An API server with one pod, for what a real one cannot be made to answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from tests.scheduler import small_cluster


class Server(kube.Api):
    """An API server with one pod that does as it is told."""

    def __init__(self) -> None:
        """Nothing is connected."""
        self.pod: pods.Pod | None = small_cluster.pod("p", {small_cluster.MEMORY: 3}, version=7)
        self.answers: list[Exception | None] = []
        self.bindings: list[dict[str, Any]] = []
        self.reads = 0
        self.patches: list[str] = []
        self.written: list[dict[str, Any]] = []  # their bodies
        self.refusal: Exception | None = None  # of patches
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """Read the pod."""
        self.reads += 1
        if self.away:
            raise kube_errors.Unreachable("no answer", sent=False)
        assert path == "/api/v1/namespaces/default/pods/p"
        if self.pod is None:
            raise kube_errors.NotFound(404, "NotFound", "no pod")
        return self.pod

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Give the pod a newer version."""
        self.patches.append(path)
        self.written.append(json.loads(msgspec.json.encode(body)))
        if self.away:
            raise kube_errors.Unreachable("no answer", sent=False)
        if self.refusal is not None:
            raise self.refusal
        assert self.pod is not None
        newer = str(self.pod.metadata.version + 1)
        meta = msgspec.structs.replace(self.pod.metadata, resource_version=newer)
        self.pod = msgspec.structs.replace(self.pod, metadata=meta)
        return msgspec.json.encode(self.pod)

    async def create(self, path: str, body: object, *, timeout_s: float | None = None) -> bytes:
        """Take a Binding."""
        assert path == "/api/v1/namespaces/default/pods/p/binding"
        await self.gate.wait()
        answer = self.answers.pop(0) if self.answers else None
        if answer is not None:
            raise answer
        self.bindings.append(json.loads(msgspec.json.encode(body)))
        return b"{}"
