"""An API server in which every call may be applied or not, and answered or not, in any order.

A call waits until the test says what becomes of it. What the server does with a Binding, a patch
and a read is what a real one does, versions and uids included; the watch is a list of everything
that was ever written, which each reader follows at its own pace.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from partage.dialects import pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from tests.scheduler import small_cluster


class Call:
    """One request, and what has become of it so far."""

    def __init__(self, verb: str, path: str, body: Any) -> None:
        self.verb = verb
        self.name = path.removeprefix("/api/v1/namespaces/default/pods/").split("/")[0]
        self.body = body
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.outcome: Any = None  # an answer or an error, once it was applied
        self.applied = False


class Server:
    """The pods, and the calls that are under way."""

    def __init__(self) -> None:
        self.revision = 100
        self.pods: dict[str, pods.Pod] = {}
        self.history: list[tuple[str, pods.Pod]] = []  # what a watch brings, in order
        self.calls: list[Call] = []

    def write(self, kind: str, pod: pods.Pod) -> pods.Pod:
        """Store a pod at a new version."""
        self.revision += 1
        meta = msgspec.structs.replace(pod.metadata, resource_version=str(self.revision))
        pod = msgspec.structs.replace(pod, metadata=meta)
        if kind == "DELETED":
            del self.pods[pod.metadata.name]
        else:
            self.pods[pod.metadata.name] = pod
        self.history.append((kind, pod))
        return pod

    def add(self, name: str, uid: str, units: int) -> None:
        """Create a pod."""
        self.write("ADDED", small_cluster.pod(name, {small_cluster.MEMORY: units}, uid=uid))

    def apply(self, call: Call) -> None:
        """Do what a call asks for, once."""
        if call.applied:
            return
        call.applied = True
        try:
            call.outcome = getattr(self, f"_{call.verb.lower()}")(call)
        except kube_errors.KubeError as error:
            call.outcome = error

    def _get(self, call: Call) -> pods.Pod:
        if call.name not in self.pods:
            raise kube_errors.NotFound(404, "NotFound", call.name)
        return self.pods[call.name]

    def _post(self, call: Call) -> bytes:
        pod, meta = self._get(call), call.body["metadata"]
        self._check(pod, meta)
        if pod.spec.node_name:
            raise kube_errors.Conflict(409, "Conflict", "already assigned")
        written = {**pod.metadata.annotations, **meta["annotations"]}
        self.write(
            "MODIFIED",
            msgspec.structs.replace(
                pod,
                metadata=msgspec.structs.replace(pod.metadata, annotations=written),
                spec=msgspec.structs.replace(pod.spec, node_name=call.body["target"]["name"]),
            ),
        )
        return b"{}"

    def _patch(self, call: Call) -> bytes:
        pod, meta = self._get(call), call.body["metadata"]
        self._check(pod, meta)
        return msgspec.json.encode(self.write("MODIFIED", pod))

    def _check(self, pod: pods.Pod, named: dict[str, Any]) -> None:
        version = named.get("resourceVersion") or pod.metadata.resource_version
        if (named["uid"], version) != (pod.metadata.uid, pod.metadata.resource_version):
            raise kube_errors.Conflict(409, "Conflict", "precondition failed")


class Client(kube.Api):
    """What one process sees of the server."""

    def __init__(self, server: Server) -> None:
        """Nothing is connected."""
        self._server = server

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """Read a pod."""
        return await self._call("GET", path, None)

    async def create(self, path: str, body: object, *, timeout_s: float | None = None) -> bytes:
        """Send a Binding."""
        answer: bytes = await self._call("POST", path, json.loads(msgspec.json.encode(body)))
        return answer

    async def patch(self, path: str, body: object, *, kind: Any = None) -> bytes:
        """Patch a pod."""
        answer: bytes = await self._call("PATCH", path, json.loads(msgspec.json.encode(body)))
        return answer

    async def _call(self, verb: str, path: str, body: Any) -> Any:
        call = Call(verb, path, body)
        self._server.calls.append(call)
        return await call.answer
