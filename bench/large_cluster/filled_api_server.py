"""Filled API server: a real one with many nodes and bound pods, as Partage would have bound them.

Each pod is created and then bound by a Binding that carries its grant, because the record of a
grant names the pod's uid, and only the API server gives that. Which card is chosen is decided by a
fleet in this process, so that no card has more than it can hold.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from concurrent import futures

from bench.large_cluster import filled_mirror, realistic_objects
from cluster import api, progress

_CONNECTIONS = 8
_BATCH = 500


class FilledApiServer:
    """Makes nodes and pods, and deletes some."""

    def __init__(self, client: api.Api, nodes: int, *, subject: str = "scale") -> None:
        self._client = client
        self._names = realistic_objects.names(nodes)
        self._filled = filled_mirror.FilledMirror(filled_mirror.empty(), self._names)
        self._source = random.Random(2)
        self._sizes_gib = realistic_objects.sizes_gib(self._source)
        self._numbers = itertools.count()
        self._decision_lock = threading.Lock()
        self._shown = progress.Progress(subject)

    def make_nodes(self) -> None:
        """All nodes."""
        self._client.create_all(realistic_objects.node(name) for name in self._names)
        self._shown.note(f"{len(self._names)} nodes are there")

    def make_pods(self, count: int) -> None:
        """Bound pods, evenly over the nodes."""
        nodes = self._names * -(-count // len(self._names))
        with futures.ThreadPoolExecutor(_CONNECTIONS) as pool:
            for made, _ in enumerate(pool.map(self._make_pod, nodes[:count]), 1):
                if made % _BATCH == 0:
                    self._shown.update(f"{made} of {count} pods bound")
        self._shown.done(f"{count} pods are bound")

    def unbound(self, count: int) -> list[api.Object]:
        """Pods that a scheduler may place."""
        return [self._pod(f"coming-{next(self._numbers)}") for _ in range(count)]

    def _make_pod(self, node: str) -> None:
        pod = self._client.create(self._pod(f"bound-{next(self._numbers)}"))
        with self._decision_lock:
            node, written = self._grant(pod, node)
        where = api.path("Pod", pod["metadata"]["name"], api.DEFAULT, "binding")
        self._client.call("POST", where, realistic_objects.binding(pod, node, written))

    def _grant(self, pod: api.Object, node: str) -> tuple[str, dict[str, str]]:
        read = filled_mirror.read_pod(pod)
        for name in itertools.chain([node], self._any_node()):
            written = filled_mirror.granted(self._filled.mirror, read, name)
            if written is not None:
                return name, written
        raise AssertionError("one of infinitely many")

    def _any_node(self) -> Iterator[str]:
        while True:
            yield self._source.choice(self._names)

    def _pod(self, name: str) -> api.Object:
        with self._decision_lock:
            size_gib = next(self._sizes_gib)
        return realistic_objects.pod(name, {realistic_objects.MEMORY: size_gib}, cpu="100m")
