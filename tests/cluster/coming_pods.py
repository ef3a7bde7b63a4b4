"""Coming pods: small pods without an owner, made all the time while something else happens.

Each asks for a share, allocates within it and beyond it, and ends well if the one is allowed and
the other refused. So a pod that is lost, that gets no share, or that is not held, is one that does
not end well. All the while the records on all pods are added up, card by card.
"""

from __future__ import annotations

import collections
import json
import threading
import time
from concurrent import futures
from types import TracebackType
from typing import Self

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import making

PREFIX = "coming-"
_SHARE_MIB, _WITHIN_MIB, _BEYOND_MIB = 1000, 500, 4000
_PROGRAM = f"gpu try {_WITHIN_MIB} && ! gpu try {_BEYOND_MIB}"
_AT_ONCE = 3  # that have not ended yet
_PAUSE_S = 0.3
_ENDED = ("Succeeded", "Failed")


class ComingPods:
    """Makes them, from entering to leaving, and keeps what went wrong."""

    def __init__(self, plane: ControlPlane, *, prefix: str = PREFIX) -> None:
        self.made: list[str] = []
        self.ended_well: set[str] = set()
        self.refused: list[str] = []  # what the API server said to pods that it did not take
        self.over: list[str] = []  # cards on which more was granted than they have
        self.samples = 0
        self._client, self._asking = (api.Api.of(plane.kubeconfig) for _ in range(2))
        self._making = True
        self._prefix = prefix
        self._end = threading.Event()
        self._thread = futures.ThreadPoolExecutor(1)
        self._working: futures.Future[None] | None = None

    def __enter__(self) -> Self:
        self._working = self._thread.submit(self._work)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.shutdown()
        for client in (self._client, self._asking):
            client.close()
        if self._working is not None and error is None:
            self._working.result()

    def failed(self) -> dict[str, str]:
        """What is known of those that did not end well, once all have ended; no more are made."""
        self._making = False
        making.eventually(self._are_over, patience_s=240, why=self._why)
        return {name: str(pod["status"])[:600] for name, pod in self._present().items()}

    def _are_over(self) -> bool:
        assert self._working is None or not self._working.done(), "pods come no more"
        return not self._waiting()

    def _waiting(self) -> dict[str, str]:
        present = self._present().items()
        return {n: str(p["status"]) for n, p in present if p["status"].get("phase") != "Failed"}

    def _why(self) -> str:
        return "\n".join(f"{name}: {status[:600]}" for name, status in self._waiting().items())

    def _present(self) -> dict[str, api.Object]:
        """Those that have not ended well; of one that is not there nobody knows how it ended."""
        pods = {pod["metadata"]["name"]: pod for pod in self._asking.list_all("Pod")}
        gone: api.Object = {"status": {"phase": "Failed", "reason": "it is gone"}}
        return {name: pods.get(name, gone) for name in self.made if name not in self.ended_well}

    def _work(self) -> None:
        while not self._end.wait(_PAUSE_S):
            self._step()

    def _step(self) -> None:
        pods = self._client.list_all("Pod")
        self._add_up(pods)
        own = [pod for pod in pods if pod["metadata"]["name"].startswith(self._prefix)]
        for pod in own:
            if pod["status"].get("phase") == "Succeeded":
                self.ended_well.add(pod["metadata"]["name"])
                self._client.delete("Pod", pod["metadata"]["name"], grace_seconds=0)
        waiting = sum(pod["status"].get("phase") not in _ENDED for pod in own)
        if self._making and waiting < _AT_ONCE:
            self._make()

    def _make(self) -> None:
        name = f"{self._prefix}{len(self.made)}"
        container = objects.container(
            "sh", "-c", _PROGRAM, limits={"partage.dev/memory-mib": _SHARE_MIB}
        )
        try:
            self._client.create(objects.running_pod(name, container, restartPolicy="Never"))
        except api.ApiError as error:
            self.refused.append(str(error))
        else:
            self.made.append(name)

    def _add_up(self, pods: list[api.Object]) -> None:
        taken: collections.Counter[str] = collections.Counter()
        for pod in pods:
            record = (pod["metadata"].get("annotations") or {}).get("partage.dev/grant")
            if record and pod["status"].get("phase") not in _ENDED:
                for container in json.loads(record)["containers"]:
                    taken.update({s["uuid"]: s["memory_mib"] for s in container["shares"]})
        sizes = self._sizes()
        self.samples += 1
        for uuid, memory_mib in taken.items():
            if memory_mib > sizes.get(uuid, 0):
                self.over.append(f"{time.time()}: {memory_mib} MiB on {uuid} of {sizes}")

    def _sizes(self) -> dict[str, int]:
        """Of all cards, as their agents have written them."""
        written = (
            node["metadata"].get("annotations") or {} for node in self._client.list_all("Node")
        )
        records = [json.loads(w["partage.dev/cards"]) for w in written if "partage.dev/cards" in w]
        return {card["uuid"]: card["memory_mib"] for r in records for card in r["cards"]}
