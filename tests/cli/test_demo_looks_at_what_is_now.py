"""What ``partage demo`` sees: a look that was begun before something happened does not show it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import msgspec

from partage.cli.commands.demo import observer
from partage.local.view import views
from tests.cli import ps_views

_PATIENCE_S = 60.0


def test_a_look_under_way_is_not_the_next() -> None:
    """It may show a program that has ended since, and the next one does not."""
    begun, release = threading.Event(), threading.Event()
    nodes = iter(("before", "after", *["later"] * 1000))

    def look() -> views.View:
        node = next(nodes)
        begun.set()
        assert release.wait(_PATIENCE_S)
        return msgspec.structs.replace(ps_views.view(), node=node)

    @contextlib.contextmanager
    def opened() -> Iterator[Callable[[], views.View]]:
        yield look

    watch = observer.Watch(opened)
    thread = threading.Thread(target=watch.run)
    thread.start()
    assert begun.wait(_PATIENCE_S)
    threading.Timer(0.05, release.set).start()
    assert watch.next(timeout_s=_PATIENCE_S).node != "before"
    watch.end()
    thread.join()
