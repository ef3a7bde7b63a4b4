"""Problems of objects in the cluster: logged once, and remembered while they last."""

from __future__ import annotations

import logging
from collections.abc import Iterator

log = logging.getLogger(__name__)

_MOST = 10_000  # objects; tenants write the annotations that get here


class Problems:
    """One text for each object that has a problem."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def set(self, what: str, text: str) -> None:
        """Say what is wrong with an object now; an empty text means nothing is."""
        before = self._texts.get(what, "")
        if text == before:
            return
        if not text:
            del self._texts[what]
            log.info("%s: no longer a problem: %s", what, before)
            return
        if len(self._texts) < _MOST or before:
            self._texts[what] = text
        log.warning("%s: %s", what, text)

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(sorted(self._texts.items()))

    def __len__(self) -> int:
        return len(self._texts)
