"""A small API server: its objects over real HTTP, in pages, with its refusals."""

from __future__ import annotations

import asyncio
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, Self

import msgspec
import yaml
from aiohttp import web

Object = dict[str, Any]

NODES, PODS, NAMESPACES = "/api/v1/nodes", "/api/v1/pods", "/api/v1/namespaces"
CONFIGMAPS = "/api/v1/namespaces/kube-system/configmaps"
_ELASTIC = "/apis/elasticgpu.io/v1alpha1"
CLASSES, CLAIMS = f"{_ELASTIC}/elasticgpuclasses", f"{_ELASTIC}/elasticgpuclaims"
ELASTIC_GPUS = f"{_ELASTIC}/elasticgpus"
TOKEN = "let-me-in"
_LARGEST_PAGE = 2  # items; every list of any size has several pages


class Result(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int | None
    out: str
    err: str


class Cluster:
    """Objects by path, and the paths that are answered with a refusal instead."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Object]] = {
            kind: [] for kind in (NODES, PODS, CONFIGMAPS, NAMESPACES)
        }
        self.refused: dict[str, tuple[int, str, str]] = {}
        self.busy: set[str] = set()  # paths that are refused once
        self.expiring: set[str] = set()  # paths whose list expires once, on its second page
        self.requests: list[tuple[str, str]] = []  # path and field selector
        self.conflicts = 0  # how many patches find that the object has changed
        self.budgets: dict[str, int] = {}  # how often evictions of a pod are refused
        self._runner = web.AppRunner(self._application(), access_log=None)
        self._address = ""

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self._address = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop."""
        await self._runner.cleanup()

    async def run(self, program: str, *arguments: str, folder: pathlib.Path) -> Result:
        """Run a command that is told of this cluster."""
        path = folder / "kubeconfig"
        if not path.exists():
            kubeconfig(path, self._address)
        return await run(program, *arguments, environ={"KUBECONFIG": str(path)})

    def _application(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        app.router.add_patch("/{path:.*}", self._patch)
        app.router.add_post("/{path:.*}/eviction", self._evict)
        return app

    async def _patch(self, request: web.Request) -> web.Response:
        """A merge patch of an object's annotations, in the version that it names."""
        if request.path in self.refused:
            return _status(*self.refused[request.path])
        folder, _, name = request.path.rpartition("/")
        (item,) = (item for item in self.objects[folder] if item["metadata"]["name"] == name)
        meta, change = item["metadata"], (await request.json())["metadata"]
        version = str(meta.get("resourceVersion", ""))
        if self.conflicts or version != change["resourceVersion"]:
            self.conflicts -= 1
            meta["resourceVersion"] = f"{version}x"
            return _status(409, "Conflict", "the object has been modified")
        merged = {**meta["annotations"], **change["annotations"]}
        meta["annotations"] = {key: text for key, text in merged.items() if text is not None}
        return web.json_response(item)

    async def _evict(self, request: web.Request) -> web.Response:
        """The pod is gone at once, unless its budget says no."""
        body = await request.json()
        name, uid = body["metadata"]["name"], body["deleteOptions"]["preconditions"]["uid"]
        if self.budgets.get(name, 0):
            self.budgets[name] -= 1
            return _status(429, "TooManyRequests", "it would violate the disruption budget")
        kept = [pod for pod in self.objects[PODS] if pod["metadata"]["uid"] != uid]
        self.objects[PODS] = kept
        return web.json_response({"kind": "Status", "status": "Success"}, status=201)

    async def _answer(self, request: web.Request) -> web.Response:
        path = request.path
        self.requests.append((path, request.query.get("fieldSelector", "")))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized", "Unauthorized")
        if path in self.refused:
            return _status(*self.refused[path])
        if path in self.busy:
            self.busy.remove(path)
            return _status(429, "TooManyRequests", "the server has received too many requests")
        if path in self.objects:
            return self._list(path, request.query)
        folder, _, name = path.rpartition("/")
        for item in self.objects.get(folder, ()):
            if item["metadata"]["name"] == name:
                return web.json_response(item)
        return _status(404, "NotFound", f'{folder.rpartition("/")[2]} "{name}" not found')

    def _list(self, path: str, query: Mapping[str, str]) -> web.Response:
        start = int(query.get("continue", "0"))
        if start and path in self.expiring:
            self.expiring.remove(path)
            return _status(410, "Expired", "The provided continue parameter is too old")
        items = [item for item in self.objects[path] if _selected(item, query)]
        end = start + min(_LARGEST_PAGE, int(query["limit"]))
        metadata = {"resourceVersion": "1", "continue": str(end) if end < len(items) else ""}
        return web.Response(
            body=msgspec.json.encode({"metadata": metadata, "items": items[start:end] or None}),
            content_type="application/json",
        )


def kubeconfig(path: pathlib.Path, server: str) -> pathlib.Path:
    """Write a kubeconfig that leads to a server; in its context ``stranger`` nobody is let in."""
    users = {"here": {"token": TOKEN}, "stranger": {"token": "wrong"}}
    config = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": name, "user": user} for name, user in users.items()],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in users],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return path


async def run(program: str, *arguments: str, environ: Mapping[str, str]) -> Result:
    """Run an installed command; nothing of our own environment reaches it."""
    process = await asyncio.create_subprocess_exec(
        pathlib.Path(sys.executable).with_name(program),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environ),
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    return Result(process.returncode, out.decode(), err.decode())


def node(
    name: str,
    *,
    memory: int = 0,
    count: int = 0,
    address: str = "",
    annotations: Mapping[str, str] | None = None,
    allocatable: Mapping[str, object] | None = None,
) -> Object:
    """A node that offers so much of gpushare's memory on so many cards."""
    amounts = {"aliyun.com/gpu-mem": str(memory), "aliyun.com/gpu-count": str(count)}
    return {
        "metadata": {"name": name, "uid": f"node-{name}", "annotations": dict(annotations or {})},
        "status": {
            "capacity": amounts,
            "allocatable": {"cpu": "8", **(amounts if allocatable is None else allocatable)},
            "addresses": [
                {"type": "Hostname", "address": name},
                *([{"type": "InternalIP", "address": address}] if address else []),
            ],
        },
    }


def pod(
    name: str,
    node: str,
    *limits: Mapping[str, object],
    annotations: Mapping[str, str] | None = None,
    phase: str = "Running",
    namespace: str = "default",
    deleted: bool = False,
) -> Object:
    """A pod with a container for each of the limits."""
    deletion = {"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {}
    return {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "annotations": dict(annotations or {}),
            **deletion,
        },
        "spec": {
            "nodeName": node,
            "containers": [
                {
                    "name": f"c{i}",
                    "resources": {"limits": {k: str(v) for k, v in container_limits.items()}},
                }
                for i, container_limits in enumerate(limits)
            ],
        },
        "status": {"phase": phase},
    }


def namespace(name: str, **most: str) -> Object:
    """A namespace with totals."""
    annotations = {f"partage.dev/most-{what}": text for what, text in most.items()}
    return {"metadata": {"name": name, "annotations": annotations}}


def shared(name: str, node: str, units: int, index: int | str | None, **more: Any) -> Object:
    """A pod as gpushare places it; without an index it is bound all the same."""
    marks = {} if index is None else {"ALIYUN_COM_GPU_MEM_IDX": str(index)}
    given = {"ALIYUN_COM_GPU_MEM_POD": str(units), **marks} if marks else {}
    annotations = {**given, **more.pop("annotations", {})}
    return pod(name, node, {"aliyun.com/gpu-mem": units}, annotations=annotations, **more)


def _selected(item: Object, query: Mapping[str, str]) -> bool:
    field, _, value = query.get("fieldSelector", "").partition("=")
    if field == "spec.nodeName":
        return bool(item["spec"]["nodeName"] == value)
    return field != "metadata.name" or bool(item["metadata"]["name"] == value)


def _status(code: int, reason: str, message: str) -> web.Response:
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(body, status=code)
