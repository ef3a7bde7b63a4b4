"""Whatever happens to objects and connections, in the end the sink is what the server has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from partage.kube.reflection import reflector
from tests.kube import api_clients, scripted_server, things

NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
DEEDS = st.one_of(
    st.tuples(st.just("put"), NAMES),
    st.tuples(st.just("delete"), NAMES),
    st.tuples(st.sampled_from(["end", "crash", "expire", "forget", "relist", "rest"]), st.just("")),
)


class Store:
    """An API server in little: objects, versions, a history, watches that are open."""

    def __init__(self, *, streams: bool) -> None:
        self.sizes: dict[str, int] = {}
        self.version = 1
        self._streams = streams
        self._history: list[tuple[int, dict[str, object]]] = []
        self._forgotten = 0  # the newest version that is no longer kept
        self._lists: dict[int, list[dict[str, object]]] = {}
        self._open: list[scripted_server.Watch] = []

    def put(self, name: str) -> None:
        """Add or change an object."""
        self.version += 1
        kind = "MODIFIED" if name in self.sizes else "ADDED"
        self.sizes[name] = self.version
        self._tell(things.event(kind, name, self.version, size=self.version))

    def delete(self, name: str) -> None:
        """Delete an object."""
        if self.sizes.pop(name, None) is not None:
            self.version += 1
            self._tell(things.event("DELETED", name, self.version))

    def end(self) -> None:
        """All watches end in order."""
        self._close(lambda watch: watch.end())

    def crash(self) -> None:
        """All watches break."""
        self._close(lambda watch: watch.crash())

    def expire(self) -> None:
        """All watches are told that they are too old."""
        self._close(lambda watch: watch.send(things.failure(410, "Expired")).end())

    def forget(self) -> None:
        """History and lists so far are gone, and all watches break."""
        self._history, self._lists, self._forgotten = [], {}, self.version
        self.crash()

    def respond(self, request: scripted_server.Request) -> scripted_server.Step:
        """Answer like an API server."""
        if "sendInitialEvents" in request.query:
            return self._stream() if self._streams else scripted_server.refusal(422, "Invalid")
        if "watch" in request.query:
            return self._watch(int(request.query["resourceVersion"]))
        return self._page(request.query.get("continue", ""))

    def _stream(self) -> scripted_server.Watch:
        added = (things.event("ADDED", name, v, size=v) for name, v in self.sizes.items())
        return self._opened(scripted_server.Watch(*added, things.end_of_list(self.version)))

    def _watch(self, version: int) -> scripted_server.Step:
        if version < self._forgotten:
            return scripted_server.refusal(410, "Expired")
        return self._opened(
            scripted_server.Watch(*(event for v, event in self._history if v > version))
        )

    def _page(self, token: str) -> scripted_server.Step:
        """Two objects at a time, all as of the version of the first page."""
        version, at = map(int, token.split(":")) if token else (self.version, 0)
        if not token:
            self._lists[version] = [things.thing(n, v, size=v) for n, v in self.sizes.items()]
        items = self._lists.get(version)
        if items is None:
            return scripted_server.refusal(410, "Expired")
        following = f"{version}:{at + 2}" if len(items) > at + 2 else ""
        meta = {"resourceVersion": str(version), "continue": following}
        return scripted_server.Answer({"metadata": meta, "items": items[at : at + 2]})

    def _tell(self, event: dict[str, object]) -> None:
        self._history.append((self.version, event))
        for watch in self._open:
            watch.send(event)

    def _opened(self, watch: scripted_server.Watch) -> scripted_server.Watch:
        self._open.append(watch)
        return watch

    def _close(self, how: Callable[[scripted_server.Watch], object]) -> None:
        for watch in self._open:
            how(watch)
        self._open.clear()


@settings(max_examples=60, deadline=None)
@given(deeds=st.lists(DEEDS, max_size=25), streams=st.booleans())
def test_whatever_happens(deeds: list[tuple[str, str]], streams: bool) -> None:
    """Puts, deletions, ends, breaks, expired versions and new lists, in any order."""
    asyncio.run(_play(deeds, streams=streams))


async def _play(deeds: list[tuple[str, str]], *, streams: bool) -> None:
    store, shelf = Store(streams=streams), things.Shelf("never there")
    async with scripted_server.Server() as server, api_clients.connected(server) as client:
        server.respond = store.respond
        async with api_clients.reflecting(client, shelf, api_clients.QuickTime()) as made:
            for deed, name in deeds:
                await _do(deed, name, store, made)
            await scripted_server.until(lambda: made.synced.is_set() and shelf.sizes == store.sizes)


async def _do(deed: str, name: str, store: Store, made: reflector.Reflector[things.Thing]) -> None:
    if deed == "rest":
        await asyncio.sleep(0.002)  # long enough for a request, mostly
    elif deed == "relist":
        made.relist()
    elif name:
        getattr(store, deed)(name)
    else:
        getattr(store, deed)()
