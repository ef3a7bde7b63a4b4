"""A fake kubelet, its folder, and plugins that run in it."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from partage.kubelet import device_lists, plugin_folder, plugins, servicer
from tests.kubelet import fake_kubelet


class Recorder:
    """A handler that answers by a rule, and remembers what it was asked."""

    def __init__(self) -> None:
        self.allocations: list[tuple[str, frozenset[str]]] = []
        self.starts: list[tuple[str, frozenset[str]]] = []
        self.running = 0
        self.most_running = 0
        self.gate: asyncio.Event | None = None  # a start waits for it
        self.error: Exception | None = None

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """A name made of the IDs."""
        self.allocations.append((resource, ids))
        if self.error is not None:
            raise self.error
        return device(ids)

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """Wait at the gate, if there is one."""
        self.starts.append((resource, ids))
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            if self.error is not None:
                raise self.error
        finally:
            self.running -= 1


def device(ids: frozenset[str]) -> str:
    """The name that the Recorder gives."""
    return "partage.dev/test=" + ".".join(sorted(ids))


class Node:
    """One folder with a fake kubelet and our plugins in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.kubelet = fake_kubelet.FakeKubelet(path)
        self.folder = plugin_folder.Folder(path)
        self.handler = Recorder()

    def plugin(
        self,
        resource: str,
        units: Sequence[device_lists.Unit],
        handler: servicer.Handler | None = None,
    ) -> plugins.Plugin:
        """A plugin of this node, not yet running."""
        return plugins.Plugin(resource, units, handler or self.handler, self.folder)

    @contextlib.asynccontextmanager
    async def running(self, *these: plugins.Plugin) -> AsyncIterator[None]:
        """The plugins at work; one that ends by itself fails the test."""
        tasks = [asyncio.create_task(self.folder.watch())]
        tasks += [asyncio.create_task(plugin.run()) for plugin in these]
        try:
            yield
            assert [task for task in tasks if task.done()] == []
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def sockets(self) -> list[str]:
        """The names of our sockets that are there."""
        return sorted(path.name for path in self.path.glob("partage-*.sock"))


@pytest.fixture
def path() -> Iterator[Path]:
    """A folder with a short path, as sockets need it."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder)


@pytest.fixture
async def node(path: Path) -> AsyncIterator[Node]:
    """A node whose kubelet does not run yet."""
    node = Node(path)
    yield node
    await node.kubelet.stop()
