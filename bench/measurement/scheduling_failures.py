"""Scheduling failures: what kube-scheduler said of pods that it could not place.

The benchmarks' clusters are never short of cards, so an event that speaks of a shortage is untrue:
whoever reads it looks for cards that are there. Events of a kind that repeat are one object with a
count.
"""

from __future__ import annotations

import collections
import time
from typing import Any

import msgspec

from bench.measurement import metrics_page
from cluster import api
from partage.scheduler.verbs import filter_texts as reasons

_FAILED = api.path("Event", "", api.DEFAULT) + "?fieldSelector=reason%3DFailedScheduling"
_SHORTAGES = (*reasons.REASONS.values(), "Insufficient")
_QUIET_S = 3.0
_POLL_S = 0.5


class Failures(msgspec.Struct, frozen=True):
    """How often it was said, and what."""

    said: int
    repeated: int  # to pods of which it was said before
    untrue: int
    texts: tuple[str, ...]  # the most frequent ones


def wait_for_events(client: api.Api) -> None:
    """Return when no more events come in: those of a busy scheduler are late, by minutes."""
    written, quiet_since_s = _written(client), time.monotonic()
    while time.monotonic() < quiet_since_s + _QUIET_S:
        time.sleep(_POLL_S)
        before, written = written, _written(client)
        if written != before:
            quiet_since_s = time.monotonic()


def of_pods(client: api.Api, prefix: str) -> Failures:
    """The failures of all pods whose names begin so, as far as events have come in."""
    items = client.call("GET", _FAILED)["items"]
    events = [event for event in items if event["involvedObject"]["name"].startswith(prefix)]
    said = sum(map(_count, events))
    pods = {event["involvedObject"]["uid"] for event in events}
    texts = collections.Counter[str]()
    for event in events:
        texts[event["message"]] += _count(event)
    untrue = sum(count for text, count in texts.items() if _speaks_of_shortage(text))
    most = tuple(text for text, _ in texts.most_common(3))
    return Failures(said, said - len(pods), untrue, most)


def _speaks_of_shortage(text: str) -> bool:
    return any(shortage in text for shortage in _SHORTAGES)


def _written(client: api.Api) -> float:
    return metrics_page.total(client.text("/metrics"), "apiserver_request_total", resource="events")


def _count(event: dict[str, Any]) -> int:
    series = event.get("series") or {}
    return int(series.get("count") or event.get("count") or 1)
