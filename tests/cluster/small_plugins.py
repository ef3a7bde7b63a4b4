"""Small device plugins on real kubelets; a container is told which units it has."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from cluster.node.node import Node
from partage.core import errors
from partage.kubelet import plugin_folder
from partage.kubelet.plugins import Plugin

KIND = "partage.test/set"


class Handler:
    """Names a CDI device by its IDs, and writes its specification when the container starts."""

    def __init__(self, folder: Path) -> None:
        self.error: errors.PartageError | None = None
        self.starts = 0
        self._folder = folder

    def allocated(self, resource: str, ids: frozenset[str]) -> str:
        """A name, and no specification yet."""
        return f"{KIND}={digest(ids)}"

    async def starting(self, resource: str, ids: frozenset[str]) -> None:
        """The container is told its IDs."""
        self.starts += 1
        if self.error is not None:
            raise self.error
        edits = {"env": [f"UNITS={','.join(sorted(ids))}"]}
        device = {"name": digest(ids), "containerEdits": edits}
        specification = {"cdiVersion": "0.5.0", "kind": KIND, "devices": [device]}
        aside = self._folder / f"{digest(ids)}.aside"
        aside.write_text(json.dumps(specification))
        aside.replace(self._folder / f"partage.test-{digest(ids)}.json")


def digest(ids: frozenset[str]) -> str:
    """A name made of IDs."""
    return hashlib.sha256(",".join(sorted(ids)).encode()).hexdigest()[:16]


@contextlib.asynccontextmanager
async def serving(
    node: Node, folder: plugin_folder.Folder, *plugins: Plugin
) -> AsyncIterator[None]:
    """The plugins at work on the node."""
    works = (folder.watch(), *(plugin.run() for plugin in plugins))
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await until(lambda: all(plugin.registered for plugin in plugins))
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for left in node.cdi.glob("partage.test-*.json"):
            left.unlink()


async def until(holds: Callable[[], Any]) -> Any:
    """Wait for something that is true sooner or later; asked in a thread, as it may block."""
    async with asyncio.timeout(60):
        while True:
            if result := await asyncio.to_thread(holds):
                return result
            await asyncio.sleep(0.1)
