"""Etcd: the two questions that tests have for it, over its JSON gateway.

etcd's own command line is not among the programs, and the gateway needs nothing but HTTP.
"""

from __future__ import annotations

import base64
import http.client
from typing import Any

import msgspec

from cluster import child_processes

_ANY_KEY = base64.b64encode(b"\0").decode()
_TIMEOUT_SECONDS = 30


def is_healthy(port: int) -> bool:
    """Whether etcd answers and has a leader."""
    try:
        return _ask(port, "GET", "/health").get("health") == "true"
    except (OSError, http.client.HTTPException, msgspec.DecodeError):
        return False


def compact(port: int) -> int:
    """Forget everything that happened before now; gives the revision that remains."""
    now = int(_ask(port, "POST", "/v3/kv/range", {"key": _ANY_KEY})["header"]["revision"])
    _ask(port, "POST", "/v3/kv/compaction", {"revision": str(now), "physical": True})
    return now


def _ask(port: int, method: str, path: str, body: object = None) -> dict[str, Any]:
    connection = http.client.HTTPConnection(
        child_processes.LOOPBACK, port, timeout=_TIMEOUT_SECONDS
    )
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise http.client.HTTPException(f"etcd: {answer.status} {text.decode(errors='replace')}")
    decoded: dict[str, Any] = msgspec.json.decode(text)
    return decoded
