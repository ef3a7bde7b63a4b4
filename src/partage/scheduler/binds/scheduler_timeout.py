"""How long kube-scheduler waits for an answer: as the settings say, or shorter, as it shows.

Its ``httpTimeout`` is in its configuration and in no request. If it is shorter than the settings
say, kube-scheduler gives up binds that wait here for their turn, and asks again. It shows:
kube-scheduler closes the connection, again and again after the same time. One that is merely
stopped does so after any time.
"""

from __future__ import annotations

from collections.abc import Callable

_LIKE = 0.1  # two times are the same if they differ by less than this part
_SHORTEST_S = 1.0  # no sensible configuration has less
_SAFE = 0.9  # of what was seen
_REMEMBERED_S = 600.0  # after which somebody may have corrected its configuration


class SchedulerTimeout:
    """The time that an answer may take."""

    def __init__(
        self, http_timeout_s: float, *, on_the_way_s: float, clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._http_timeout_s = http_timeout_s
        self._on_the_way_s = on_the_way_s  # of that time, for request and answer
        self._last_s = 0.0
        self._seen_s = self._seen_at = 0.0  # after which it gave up twice, and when that was

    @property
    def seconds(self) -> float:
        """From the arrival of a request until its answer has to be on its way."""
        set_s, seen_s = self._http_timeout_s - self._on_the_way_s, self._recent_s()
        return min(set_s, _SAFE * seen_s) if seen_s else set_s

    def gave_up(self, waited_s: float) -> None:
        """kube-scheduler closed the connection before the answer."""
        if waited_s >= _SHORTEST_S and abs(waited_s - self._last_s) < _LIKE * waited_s:
            self._seen_s = min(waited_s, self._recent_s() or waited_s)
            self._seen_at = self._clock()
        self._last_s = waited_s

    @property
    def problem(self) -> str:
        """What is wrong with the time-outs; empty if nothing is."""
        seen_s = self._recent_s()
        if not seen_s or seen_s > self._http_timeout_s - self._on_the_way_s:
            return ""
        return (
            f"kube-scheduler gives up after {seen_s:.1f} s, and scheduler.http_timeout_s in the "
            f"extender's settings is {self._http_timeout_s:g}: write 'httpTimeout: "
            f"{self._http_timeout_s:g}s' for the extender in kube-scheduler's configuration, or "
            "change the setting"
        )

    def _recent_s(self) -> float:
        return self._seen_s if self._clock() - self._seen_at < _REMEMBERED_S else 0.0
