"""Observes the ledger while ``partage demo`` runs: a thread that reads it again and again.

Every view is judged, and the story waits on the last one: so nothing is read twice, and what the
story reports is what was judged.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from partage.cli.commands.demo import verdict
from partage.core import errors
from partage.local.view import machine_snapshot, views

_APART_S = 0.02


class Stuck(errors.PartageError):
    """The story cannot go on."""

    code = "demo-stuck"


class Watch:
    """The views so far; they come from a thread."""

    def __init__(
        self,
        opened: Callable[
            [], contextlib.AbstractContextManager[Callable[[], views.View]]
        ] = machine_snapshot.opened,
    ) -> None:
        self._opened = opened
        self.views = 0
        self.excesses: list[verdict.Excess] = []
        self._last: views.View | None = None
        self._foreign_mib: dict[str, int] = {}
        self._error: errors.PartageError | None = None
        self._ended = threading.Event()
        self._seen = threading.Condition()

    def until(
        self, true: Callable[[views.View], bool], what: str, *, timeout_s: float
    ) -> views.View:
        """The first view from now on for which something is true; Stuck if none comes."""
        last = self._last
        with self._seen:
            self._seen.wait_for(
                lambda: self._error or (self._last is not last and self._fits(true)), timeout_s
            )
            if self._error:
                raise self._error
            if self._last is None or self._last is last or not true(self._last):
                raise Stuck(f"{what} did not happen within {timeout_s:.0f} s")
            return self._last

    def next(self, *, timeout_s: float) -> views.View:
        """A view that was begun after this call; the one under way may show what was before."""
        least = self.views + 2
        return self.until(
            lambda _: self.views >= least, "a look at the ledger", timeout_s=timeout_s
        )

    def run(self) -> None:
        """Take views until the end; an error is raised where somebody waits for a view."""
        try:
            with self._opened() as look:
                while not self._ended.wait(_APART_S):
                    self._take(look())
        except errors.PartageError as error:
            with self._seen:
                self._error = error
                self._seen.notify_all()

    def end(self) -> None:
        """No more views."""
        self._ended.set()

    def _fits(self, true: Callable[[views.View], bool]) -> bool:
        return self._last is not None and true(self._last)

    def _take(self, view: views.View) -> None:
        if self._last is None:
            self._foreign_mib = {card.uuid: card.foreign_mib for card in view.cards}
        self.excesses += verdict.excesses(view, self._foreign_mib)
        with self._seen:
            self._last = view
            self.views += 1
            self._seen.notify_all()


@contextlib.contextmanager
def watching() -> Iterator[Watch]:
    """Watch the ledger of this process's environment."""
    watch = Watch()
    thread = threading.Thread(target=watch.run, name="watch")
    thread.start()
    try:
        yield watch
    finally:
        watch.end()
        thread.join()
