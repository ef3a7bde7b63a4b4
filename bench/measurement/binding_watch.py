"""Binding watch: when each pod was bound, as a watch of the API server tells.

The selector lets pods in when they get their node, so each bound pod is one event, and only its
metadata is asked for: watching must not cost the machine what is to be measured. The API server
ends watches that do not keep up, so this one goes on where it was.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import pathlib
import re
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import msgspec
import yaml

_BOUND = "/api/v1/pods?fieldSelector=spec.nodeName!%3D"
_METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
_ADDED = b'{"type":"ADDED"'
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')
_NAME = re.compile(rb'"metadata":{"name":"([^"]+)"')
_PIECE_BYTES = 1 << 16
_POLL_S = 0.02


class Watch:
    """Counts bindings from the moment it is entered."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._connection, self._token = _connection(kubeconfig)
        self._version = ""  # to go on from
        self._rest = b""  # of a line
        self._bound_at_s: dict[str, float] = {}  # by the pod's name
        self._closed = False
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        answer = self._ask("&limit=1", "application/json").read()
        self._version = msgspec.json.decode(answer)["metadata"]["resourceVersion"]
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        self._closed = True
        # To close the connection would wait for the thread, which waits for the server.
        if self._connection.sock is not None:
            with contextlib.suppress(OSError):
                self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()

    def wait(self, count: int, *, patience_s: float) -> list[float]:
        """The times of so many bindings, in order; raises TimeoutError."""
        deadline = time.monotonic() + patience_s
        while len(self._bound_at_s) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self._bound_at_s)} of {count} pods are bound")
            time.sleep(_POLL_S)
        return list(self._bound_at_s.values())[:count]

    def times_s(self, names: Iterable[str]) -> dict[str, float]:
        """When each of these pods was bound, by the clock of ``time.monotonic``."""
        return {name: self._bound_at_s[name] for name in names}

    def _read(self) -> None:
        while not self._closed:
            with contextlib.suppress(OSError, http.client.HTTPException):
                self._follow()
            self._connection.close()
            self._rest = b""
            time.sleep(_POLL_S)

    def _follow(self) -> None:
        answer = self._ask(f"&watch=1&resourceVersion={self._version}", _METADATA)
        while piece := answer.read1(_PIECE_BYTES):
            *whole, self._rest = (self._rest + piece).split(b"\n")
            for line in whole:
                self._take(line)

    def _take(self, line: bytes) -> None:
        version = _VERSION.search(line)
        if version is not None:
            self._version = version[1].decode()
        name = _NAME.search(line) if line.startswith(_ADDED) else None
        if name is not None:
            self._bound_at_s[name[1].decode()] = time.monotonic()

    def _ask(self, query: str, accept: str) -> http.client.HTTPResponse:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        self._connection.request("GET", _BOUND + query, headers=headers)
        return self._connection.getresponse()


def _connection(kubeconfig: pathlib.Path) -> tuple[http.client.HTTPSConnection, str]:
    read = yaml.safe_load(kubeconfig.read_text())
    where = read["clusters"][0]["cluster"]
    authority = base64.b64decode(where["certificate-authority-data"]).decode()
    server = urllib.parse.urlsplit(where["server"])
    trust = ssl.create_default_context(cadata=authority)
    connection = http.client.HTTPSConnection(server.hostname or "", server.port, context=trust)
    return connection, read["users"][0]["user"]["token"]
