"""Routes: which handler answers which path.

A path is fixed, or has parameters, as in ``/explain/{namespace}/{pod}``, each for a whole segment.
Fixed paths are found by one look into a dictionary, with the bytes as they came.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable, Iterator

import msgspec

from partage.services.http import messages

_POST, _GET, _HEAD = b"POST", b"GET", b"HEAD"


class Route(msgspec.Struct, frozen=True):
    """What answers, and the form of its answer when it fails."""

    path: str
    handler: messages.Handler
    failed: messages.Failed = messages.failed
    open: bool = False  # also to clients without a certificate
    takes_body: bool = False


class Match(msgspec.Struct, frozen=True):
    """A route, and the values of its parameters."""

    route: Route
    arguments: tuple[str, ...] = ()


class Gone(msgspec.Struct, frozen=True):
    """A client that disconnected before its answer."""

    path: str
    waited_s: float


class Routes:
    """All that is served, and who may ask."""

    def __init__(
        self, *, certified: bool = False, gone: Callable[[Gone], None] = lambda _: None
    ) -> None:
        self.certified = certified  # whether clients have to show a certificate
        self.gone = gone
        self._fixed: dict[tuple[bytes, bytes], Match] = {}
        self._parametrized: list[tuple[bytes, list[str], Route]] = []

    def get(self, path: str, handler: messages.Handler, *, open_to_all: bool = False) -> None:
        """Answer GET, and HEAD with it."""
        self._add(_GET, Route(path, handler, open=open_to_all))

    def post(
        self, path: str, handler: messages.Handler, failed: messages.Failed = messages.failed
    ) -> None:
        """Answer POST; ``failed`` says in the form of its answers what went wrong."""
        self._add(_POST, Route(path, handler, failed, takes_body=True))

    def find(self, method: bytes, target: bytes) -> Match | messages.Answer:
        """What answers a request, or what is answered if nothing does."""
        match = self._fixed.get((method, target))
        return match or self._search(method, target)

    def _add(self, method: bytes, route: Route) -> None:
        if "{" in route.path:
            self._parametrized.append((method, route.path.split("/"), route))
        else:
            self._fixed[method, route.path.encode()] = Match(route)

    def _search(self, method: bytes, target: bytes) -> Match | messages.Answer:
        segments = _segments(target)
        if segments is None:
            return messages.failed(400, "the request has no valid path")
        fitting = dict(self._fitting(segments))
        match = fitting.get(_GET if method == _HEAD else method)
        if match is not None:
            return match
        if not fitting:
            return messages.failed(404, "not found")
        return _method_not_allowed(b", ".join(sorted(fitting)).decode())

    def _fitting(self, segments: list[str]) -> Iterator[tuple[bytes, Match]]:
        """What answers at a path, by method; fixed paths win over those with parameters."""
        for method, patterns, route in self._parametrized:
            if len(patterns) == len(segments) and all(map(_fits, patterns, segments)):
                pairs = zip(patterns, segments, strict=True)
                values = tuple(segment for pattern, segment in pairs if pattern[:1] == "{")
                yield method, Match(route, values)
        path = "/".join(segments).encode()
        for method in (_GET, _POST):
            if (method, path) in self._fixed:
                yield method, self._fixed[method, path]


def _fits(pattern: str, segment: str) -> bool:
    return bool(segment) if pattern[:1] == "{" else pattern == segment


def _segments(target: bytes) -> list[str] | None:
    """A target's path, cut where its slashes were written; what is escaped stays in its segment."""
    try:
        path = urllib.parse.urlsplit(target.decode("ascii")).path
        return [urllib.parse.unquote(segment, errors="strict") for segment in path.split("/")]
    except ValueError:
        return None


def _method_not_allowed(allowed: str) -> messages.Answer:
    refusal = messages.failed(405, f"this path accepts only {allowed}")
    return msgspec.structs.replace(refusal, allow=allowed)
