"""Routes: which handler answers which path.

A path is fixed, or has places such as ``/explain/{namespace}/{pod}``, each for one whole segment.
Fixed paths are found by one look into a dictionary, with the bytes as they came.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator

import msgspec

from partage.services.http import messages

_POST, _GET, _HEAD = b"POST", b"GET", b"HEAD"


class Route(msgspec.Struct, frozen=True):
    """What answers, and what is said in its place when it cannot."""

    path: str
    handler: messages.Handler
    failed: messages.Failed = messages.failed
    open: bool = False  # also to clients without a certificate
    takes_body: bool = False


class Found(msgspec.Struct, frozen=True):
    """A route, and what stood at its places."""

    route: Route
    arguments: tuple[str, ...] = ()


class Gone(msgspec.Struct, frozen=True):
    """A client that went away before its answer."""

    path: str
    waited_s: float


class Routes:
    """All that is served, and who may ask."""

    def __init__(
        self, *, certified: bool = False, gone: Callable[[Gone], None] = lambda _: None
    ) -> None:
        self.certified = certified  # whether clients have to show a certificate
        self.gone = gone
        self._fixed: dict[tuple[bytes, bytes], Found] = {}
        self._placed: list[tuple[bytes, list[str], Route]] = []

    def get(self, path: str, handler: messages.Handler, *, open_to_all: bool = False) -> None:
        """Answer GET, and HEAD with it."""
        self._add(_GET, Route(path, handler, open=open_to_all))

    def post(
        self, path: str, handler: messages.Handler, failed: messages.Failed = messages.failed
    ) -> None:
        """Answer POST; ``failed`` says in the form of its answers what went wrong."""
        self._add(_POST, Route(path, handler, failed, takes_body=True))

    def find(self, method: bytes, target: bytes) -> Found | messages.Answer:
        """What answers a request, or what is answered if nothing does."""
        found = self._fixed.get((method, target))
        return found or self._search(method, target)

    def _add(self, method: bytes, route: Route) -> None:
        if "{" in route.path:
            self._placed.append((method, route.path.split("/"), route))
        else:
            self._fixed[method, route.path.encode()] = Found(route)

    def _search(self, method: bytes, target: bytes) -> Found | messages.Answer:
        segments = _segments(target)
        if segments is None:
            return messages.failed(400, "the request names no path")
        fitting = dict(self._fitting(segments))
        found = fitting.get(_GET if method == _HEAD else method)
        if found is not None:
            return found
        if not fitting:
            return messages.failed(404, "there is nothing at this path")
        return _not_so(b", ".join(sorted(fitting)).decode())

    def _fitting(self, segments: list[str]) -> Iterator[tuple[bytes, Found]]:
        """What answers at a path, by method; fixed paths before those with places."""
        for method, places, route in self._placed:
            if len(places) == len(segments) and all(map(_fits, places, segments)):
                pairs = zip(places, segments, strict=True)
                yield method, Found(route, tuple(each for place, each in pairs if place[:1] == "{"))
        path = "/".join(segments).encode()
        for method in (_GET, _POST):
            if (method, path) in self._fixed:
                yield method, self._fixed[method, path]


def _fits(place: str, segment: str) -> bool:
    return bool(segment) if place[:1] == "{" else place == segment


def _segments(target: bytes) -> list[str] | None:
    """A target's path, cut where its slashes were written; what is escaped stays in its segment."""
    try:
        path = urllib.parse.urlsplit(target.decode("ascii")).path
        return [urllib.parse.unquote(each, errors="strict") for each in path.split("/")]
    except ValueError:
        return None


def _not_so(allowed: str) -> messages.Answer:
    refusal = messages.failed(405, f"this path is for {allowed}")
    return msgspec.structs.replace(refusal, allow=allowed)
