"""Faults: what goes wrong between a client and the API server, for which requests and how often.

They are values that a test hands to a :class:`cluster.faults.fault_proxy.FaultProxy`, and may be
added and ended from any thread while requests are under way. Which requests are struck is counted
and not drawn by lot, so that a test sees the same numbers each time: "one in ten" is the tenth,
the twentieth and so on.
"""

from __future__ import annotations

import http
import itertools
from concurrent import futures
from typing import NamedTuple

import msgspec

SILENCE = 0  # in place of a status: the connection is closed without an answer

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete", "GET": "get"}
_VERBS_OF_MANY = {"DELETE": "deletecollection", "GET": "list"}
_REASONS = {
    http.HTTPStatus.TOO_MANY_REQUESTS: "TooManyRequests",
    http.HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    http.HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
    http.HTTPStatus.GATEWAY_TIMEOUT: "Timeout",
}
_OF_NAMESPACES = ("status", "finalize")  # are no kinds of objects within one


class Request(NamedTuple):
    """A request in the words of RBAC; ``resource`` has its subresource: ``pods/binding``."""

    verb: str
    resource: str
    name: str = ""


class Requests(NamedTuple):
    """Some requests; what is empty may be anything."""

    verb: str = ""
    resource: str = ""
    name: str = ""

    def include(self, request: Request) -> bool:
        """Whether a request is one of them."""
        return all(mine in ("", its) for mine, its in zip(self, request, strict=True))


ALL = Requests()
BINDINGS = Requests("create", "pods/binding")
WATCHES = Requests("watch")


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a request: ``status`` is told in place of the server's answer, if any is."""

    delay_s: float = 0.0
    is_held: bool = False  # until the fault ends
    is_forwarded: bool = True
    status: int | None = None
    retry_after_s: int = 0


class Fault:
    """Every ``one_in``-th of some requests is struck, ``times`` times at most; 0: no end."""

    def __init__(
        self, requests: Requests, effect: Effect, *, one_in: int = 1, times: int = 0
    ) -> None:
        self.effect = effect
        self.hits = 0  # requests that were struck so far; their effect may be still to come
        self._requests = requests
        self._one_in = one_in
        self._times = times
        self._seen = itertools.count(1)
        self.ended: futures.Future[None] = futures.Future()

    def strikes(self, request: Request) -> bool:
        """Whether this request is struck; asked once for each, by the proxy's thread alone."""
        used_up = self._times and self.hits >= self._times
        if self.ended.done() or used_up or not self._requests.include(request):
            return False
        if next(self._seen) % self._one_in:
            return False
        self.hits += 1
        return True

    def end(self) -> None:
        """Nothing more is struck, and what was held back goes on its way."""
        if not self.ended.done():
            self.ended.set_result(None)


def swallow(requests: Requests, *, one_in: int = 1, times: int = 0) -> Fault:
    """The server does what is asked, and its answer gets lost with the connection."""
    return Fault(requests, Effect(status=SILENCE), one_in=one_in, times=times)


def misreport(requests: Requests, status: int = 504, *, one_in: int = 1, times: int = 0) -> Fault:
    """The server does what is asked, and the client is told an error."""
    return Fault(requests, Effect(status=status), one_in=one_in, times=times)


def turn_away(
    requests: Requests,
    status: int = 429,
    *,
    retry_after_s: int = 1,
    one_in: int = 1,
    times: int = 0,
) -> Fault:
    """The server never sees the request, and the client is told an error."""
    effect = Effect(is_forwarded=False, status=status, retry_after_s=retry_after_s)
    return Fault(requests, effect, one_in=one_in, times=times)


def drop(requests: Requests, *, one_in: int = 1, times: int = 0) -> Fault:
    """The server never sees the request, and the connection is closed."""
    return Fault(requests, Effect(is_forwarded=False, status=SILENCE), one_in=one_in, times=times)


def delay(requests: Requests, seconds: float, *, one_in: int = 1, times: int = 0) -> Fault:
    """The request reaches the server late, even if its client has gone meanwhile."""
    return Fault(requests, Effect(delay_s=seconds), one_in=one_in, times=times)


def hold_back(requests: Requests, *, one_in: int = 1, times: int = 0) -> Fault:
    """The request reaches the server when the fault ends, even if its client has gone by then."""
    return Fault(requests, Effect(is_held=True), one_in=one_in, times=times)


def request_of(method: str, path: str, query: str = "") -> Request:
    """What a request is, by its method, path and query; a path without objects is itself."""
    rest = path.strip("/").split("/")
    if rest[0] not in ("api", "apis") or len(rest) < (3 if rest[0] == "api" else 4):
        return Request(_VERBS.get(method, method.lower()), path)
    del rest[: 2 if rest[0] == "api" else 3]
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in _OF_NAMESPACES:
        del rest[:2]
    kind, name, subresource = (*rest, "", "")[:3]
    resource = f"{kind}/{subresource}" if subresource else kind
    return Request(_verb(method, name, query), resource, name)


def status_body(status: int) -> bytes:
    """An error as the API server would write it."""
    written = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{http.HTTPStatus(status).phrase}: said by the fault proxy of a test",
        "reason": _REASONS.get(http.HTTPStatus(status), "Unknown"),
        "code": status,
    }
    return msgspec.json.encode(written)


def _verb(method: str, name: str, query: str) -> str:
    if method == "GET" and any(word in ("watch=1", "watch=true") for word in query.split("&")):
        return "watch"
    by_name = _VERBS if name or method not in _VERBS_OF_MANY else _VERBS_OF_MANY
    return by_name.get(method, method.lower())
