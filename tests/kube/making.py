"""Things, sinks, clocks and kubeconfigs for the tests of the Kubernetes client."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import pathlib
import subprocess
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping

import msgspec
import yaml

from partage.kube import api, credentials, reflector
from tests.kube import scripted

PATH = "/api/v1/things"


class ThingMeta(msgspec.Struct, frozen=True):
    """Who a thing is."""

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


def page(*names: str, version: int = 1, following: str = "") -> scripted.Answer:
    """A part of a list."""
    meta = {"resourceVersion": str(version), "continue": following}
    return scripted.Answer({"metadata": meta, "items": [thing(name, version) for name in names]})


class Shelf:
    """A sink that remembers what it was told, in order."""

    def __init__(self, *names: str) -> None:
        self.sizes: dict[str, int] = dict.fromkeys(names, -1)
        self.told: list[str] = []

    def put(self, item: Thing) -> None:
        """A thing is there."""
        self.sizes[item.key] = item.size
        self.told.append(f"+{item.key}")

    def drop(self, key: str) -> None:
        """A thing is gone."""
        self.sizes.pop(key, None)
        self.told.append(f"-{key}")

    def keys(self) -> Collection[str]:
        """What is there."""
        return self.sizes.keys()


class QuickTime:
    """A clock that only sleeping moves, and sleep that takes no time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        """What time it is."""
        return self.now_s

    async def sleep(self, delay_s: float) -> None:
        """Time passes at once."""
        self.slept.append(delay_s)
        self.now_s += delay_s
        await asyncio.sleep(0)


@contextlib.asynccontextmanager
async def connected(server: scripted.Server) -> AsyncIterator[api.Api]:
    """A client of this server that needs no login."""
    async with api.Api(credentials.Credentials(server.url), timeout_s=5.0) as client:
        yield client


@contextlib.asynccontextmanager
async def running(job: Coroutine[object, object, object]) -> AsyncIterator[asyncio.Task[object]]:
    """A task for the length of a block; its own failure is the block's."""
    task = asyncio.ensure_future(job)
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def reflector_of(
    client: api.Api,
    shelf: reflector.Sink[Thing],
    time: QuickTime,
    *,
    query: Mapping[str, str] | None = None,
    idle_s: float = 5.0,
) -> reflector.Reflector[Thing]:
    """A reflector whose delays are the shortest and take no time."""
    return reflector.Reflector(
        client,
        PATH,
        Thing,
        shelf,
        key=lambda item: item.key,
        query=query or {},
        idle_s=idle_s,
        clock=time.clock,
        chance=lambda: 0.0,
        sleep=time.sleep,
    )


@contextlib.asynccontextmanager
async def reflecting(
    client: api.Api,
    shelf: reflector.Sink[Thing],
    time: QuickTime,
    *,
    query: Mapping[str, str] | None = None,
    idle_s: float = 5.0,
) -> AsyncIterator[reflector.Reflector[Thing]]:
    """Such a reflector at work."""
    made = reflector_of(client, shelf, time, query=query, idle_s=idle_s)
    async with running(made.run()):
        yield made


def kubeconfig(
    file: pathlib.Path,
    *,
    name: str = "lab",
    cluster: Mapping[str, object] | None = None,
    user: Mapping[str, object] | None = None,
    namespace: str = "",
    current: str | None = None,
) -> pathlib.Path:
    """A kubeconfig with one cluster, user and context, all of one name."""
    context = {"cluster": name, "user": name, **({"namespace": namespace} if namespace else {})}
    cluster = {"server": "https://lab.example:6443"} if cluster is None else cluster
    content = {
        "clusters": [{"name": name, "cluster": dict(cluster)}],
        "users": [{"name": name, "user": dict(user or {})}],
        "contexts": [{"name": name, "context": context}],
        "current-context": name if current is None else current,
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return file


def base64_of(file: pathlib.Path) -> str:
    """A file as it stands in a kubeconfig's ``-data`` field."""
    return base64.b64encode(file.read_bytes()).decode()


class Certificates:
    """An authority, a server's certificate for the name ``kube.test`` and 127.0.0.1, a client's."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.authority = folder / "ca.crt"
        folder.mkdir(parents=True, exist_ok=True)
        _openssl(folder, "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
                 " -subj /CN=test-ca -keyout ca.key -out ca.crt")  # fmt: skip
        self.issue("server", names="DNS:kube.test,IP:127.0.0.1")
        self.issue("client")

    def issue(self, name: str, *, names: str = "DNS:nobody.test") -> None:
        """A key and a certificate signed by the authority."""
        (self.folder / "names").write_text(f"subjectAltName={names}\n")
        _openssl(self.folder, "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
                 f" -subj /CN={name} -keyout {name}.key -out {name}.csr")  # fmt: skip
        _openssl(self.folder, f"x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -days 2"
                 f" -extfile names -out {name}.crt")  # fmt: skip


def _openssl(folder: pathlib.Path, arguments: str) -> None:
    command = ["openssl", *arguments.split()]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
