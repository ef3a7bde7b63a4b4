"""Starts: pods per second on a real node, with a share of a card and without.

A real kubelet, containerd and runc, with simulated cards and a real ``partage agent`` that serves
every dialect. In turns, a hundred equal pods without a card and a hundred with one GiB of one are
created at once; the time runs until all of them run. Between two rounds the node is emptied.

The floor is the same pods without a card, through the same scheduler. All programs share the
machine's cores, which a hundred containers keep busy, so the ratio is one of processor times: of
the kubelet and containerd with what a card adds to a container, the extender and the agent.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Iterator

from bench.measurement import results
from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node import node
from cluster.partage_processes import agent_process, extender_process
from cluster.programs import kubernetes_build

PODS = int(os.environ.get("PARTAGE_BENCH_STARTS_PODS", "100"))
ROUNDS = int(os.environ.get("PARTAGE_BENCH_STARTS_ROUNDS", "3"))
_CARDS = "80GiB,24GiB"
_KINDS: dict[str, dict[str, int]] = {"plain": {}, "card": {objects.MEMORY: 1}}
_PATIENCE_S = 600.0


def run() -> Iterator[results.Result]:
    """The line, after all rounds."""
    if not kubernetes_build.programs_folder().exists():
        yield results.Note("left out: build Kubernetes first, with `python -m cluster build`")
        return
    try:
        node.check_machine()
    except node.CannotRun as error:
        yield results.Note(f"left out: {error}")
        return
    with tempfile.TemporaryDirectory(prefix="partage-bench-") as folder:
        yield from _measured(pathlib.Path(folder))


def _measured(folder: pathlib.Path) -> Iterator[results.Result]:
    rates: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    with ControlPlane(folder / "plane", controllers=True) as plane:
        place = node.Node(plane, folder / "node", 1, cards=_CARDS)
        extender = extender_process.Extender(folder, plane.kubeconfig)
        agent = agent_process.Agent(place, plane.kubeconfig)
        try:
            place.start()
            extender.start()
            agent.start()
            _schedule(plane, extender.port)
            for number in range(ROUNDS):
                for kind, limits in _KINDS.items():
                    rates[kind].append(_rate(place, kind, limits))
                latest = ", ".join(f"{kind} {done[-1]:.2f} pods/s" for kind, done in rates.items())
                yield results.Note(f"round {number + 1} of {ROUNDS}: {latest}")
        finally:
            agent.close()
            extender.close()
            place.stop()
    yield results.Rate(
        what=f"{PODS} pods with a share of a card, until they run",
        per_second=statistics.median(rates["card"]),
        without="pods without",
        without_per_second=statistics.median(rates["plain"]),
        aim=0.7,
    )


def _schedule(plane: ControlPlane, port: int) -> None:
    plane.start_scheduler(
        scheduler_config.partage(
            plane.kubeconfig, port=port, advertised=(objects.MEMORY,), queries_per_second=500
        )
    )


def _rate(place: node.Node, kind: str, limits: dict[str, int]) -> float:
    client = place.plane.client
    container = objects.container(limits=limits)
    start = time.monotonic()
    client.create_all(objects.running_pod(f"{kind}-{i}", container) for i in range(PODS))
    while _running(client) < PODS:
        if time.monotonic() - start > _PATIENCE_S:
            raise TimeoutError(f"{kind}: {_running(client)} of {PODS} pods run; {_waits(client)}")
        time.sleep(0.1)
    took_s = time.monotonic() - start
    node.clear([place])
    return PODS / took_s


def _running(client: api.Api) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in client.list_all("Pod"))


def _waits(client: api.Api) -> str:
    """What the cluster says of one that does not run."""
    waiting = (pod for pod in client.list_all("Pod") if pod["status"].get("phase") != "Running")
    pod = next(waiting, None)
    return "" if pod is None else f"{pod['metadata']['name']}: {pod['status']}"
