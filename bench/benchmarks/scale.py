"""Scale: memory and stops of a real extender on a large cluster in a real API server.

Nodes of 8 cards and ten bound pods for each, with grants as Partage writes them. Then an extender
reads all of it, and these are measured:

- the time of the first sync, and the memory after it;
- the longest stop of its event loop while pods come through a real kube-scheduler and go again;
- the longest stop while everything is read once more, because the API server has forgotten the
  versions that the watches were at, as after an outage;
- the longest stop by a scrape of ``/metrics``.

A stop is the processor time that the loop's thread uses between two ticks
(:mod:`bench.extender.stop_detector`), so other work on the machine does not count. The aims are
absolute: 250 MB, and 20 ms.

The full size is 5,000 nodes and 50,000 pods; `make bench` takes a fifth of it. Say
``PARTAGE_BENCH_NODES=5000 make bench ARGS=scale`` for all of it, ten minutes on two cores.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator

import msgspec

from bench.extender import stop_detector
from bench.large_cluster import filled_api_server, own_control_plane
from bench.measurement import binding_watch, process_usage, results
from cluster import api, child_processes, objects
from cluster.control_plane import control_plane, scheduler_config

NODES = int(os.environ.get("PARTAGE_BENCH_NODES", "1000"))
PODS_PER_NODE = 10
_WAVES = 4
_WAVE_PODS = 100
_SCRAPES = 20
_AIM_MB = 250
_AIM_MS = 20
_PATIENCE_S = 300.0
_LESSON_S = 5.0  # after which what follows the first sync is over
_GAPS = re.compile(r'^partage_watch_gaps_total\{kind="(?:nodes|pods)"\} (\S+)', re.MULTILINE)


def run() -> Iterator[results.Result]:
    """All lines."""
    return own_control_plane.run(_run)


def _run(plane: control_plane.ControlPlane) -> Iterator[results.Result]:
    server = filled_api_server.FilledApiServer(plane.client, NODES)
    server.make_nodes()
    server.make_pods(NODES * PODS_PER_NODE)
    with Extender(plane.kubeconfig).running() as extender:
        yield from _measured(plane, server, extender)


def _measured(
    plane: control_plane.ControlPlane, server: filled_api_server.FilledApiServer, extender: Extender
) -> Iterator[results.Result]:
    size = f"{NODES} nodes, {NODES * PODS_PER_NODE} pods"
    yield results.Amount(what=f"first sync of {size}", amount=extender.synced_s, unit="s")
    yield _memory("resident memory after the first sync", extender)
    time.sleep(_LESSON_S)
    yield from _stops("during the first sync", extender, aimed=False)
    _come_and_go(plane, server, extender)
    yield from _stops(f"while {_WAVES * _WAVE_PODS} pods come and go", extender)
    _read_again(plane, extender)
    yield from _stops("while everything is read again", extender)
    for _ in range(_SCRAPES):
        extender.get("/metrics")
    yield from _stops(f"by {_SCRAPES} scrapes of /metrics", extender)
    yield _memory("resident memory at the end", extender)
    yield results.Amount(
        what="memory at its highest",
        amount=process_usage.memory_mb(extender.pid, "VmHWM"),
        unit="MB",
    )


def _memory(what: str, extender: Extender) -> results.Amount:
    used_mb = process_usage.memory_mb(extender.pid)
    return results.Amount(what=what, amount=used_mb, unit="MB", aim=_AIM_MB)


def _stops(when: str, extender: Extender, *, aimed: bool = True) -> Iterator[results.Result]:
    longest = extender.longest()
    aim = _AIM_MS if aimed else None
    what = f"longest stop {when}"
    yield results.Amount(what=what, amount=longest.cpu_ms, unit="ms", aim=aim)
    yield results.Note(
        f"  (of {longest.ticks} ticks; with waits for other threads {longest.held_ms:.1f} ms, by "
        f"the clock {longest.clock_ms:.1f} ms; longest collection {longest.gc_ms:.1f} ms, "
        f"generation {longest.gc_generation})"
    )


def _come_and_go(
    plane: control_plane.ControlPlane, server: filled_api_server.FilledApiServer, extender: Extender
) -> None:
    plane.start_scheduler(
        scheduler_config.partage(
            plane.kubeconfig,
            port=extender.port,
            advertised={objects.MEMORY, objects.COUNT},
            queries_per_second=1000,
        )
    )
    for _ in range(_WAVES):
        coming = server.unbound(_WAVE_PODS)
        with binding_watch.Watch(plane.kubeconfig) as watch:
            plane.client.create_all(coming)
            watch.wait(_WAVE_PODS, patience_s=_PATIENCE_S)
        for pod in coming:
            plane.client.delete("Pod", pod["metadata"]["name"], api.DEFAULT, grace_seconds=0)
    plane.stop_scheduler()


def _read_again(plane: control_plane.ControlPlane, extender: Extender) -> None:
    """Until nodes and pods have been listed once more."""
    # Something has to happen that the watches do not see, or they would still be up to date.
    unseen = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "unseen-"}}
    plane.client.create(unseen)
    plane.compact_etcd()
    deadline = time.monotonic() + _PATIENCE_S
    while not all(float(gaps) for gaps in _GAPS.findall(extender.get("/metrics"))):
        if time.monotonic() > deadline:
            raise TimeoutError("the extender did not read everything again")
        time.sleep(1)


class Extender:
    """The extender with a stop detector, as a process."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._kubeconfig = kubeconfig
        self._held = child_processes.Port()
        self._child: subprocess.Popen[bytes] | None = None
        self.port = self._held.number
        self.synced_s = 0.0

    @property
    def pid(self) -> int:
        """Its pid."""
        assert self._child is not None
        return self._child.pid

    @contextlib.contextmanager
    def running(self) -> Iterator[Extender]:
        """Start it, and wait until it is ready."""
        command = [
            sys.executable,
            "-m",
            "bench.extender.stop_detector",
            str(self._kubeconfig),
            str(self.port),
        ]
        began = time.monotonic()
        self._child = child_processes.spawn(
            command, ends_with_parent=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        with self._child:
            try:
                self._wait()
                self.synced_s = time.monotonic() - began
                yield self
            finally:
                self._child.kill()
                self._held.release()

    def longest(self) -> stop_detector.Longest:
        """The longest stops since this was last asked."""
        assert self._child is not None
        assert self._child.stdout is not None
        self._child.send_signal(signal.SIGUSR1)
        return msgspec.json.decode(self._child.stdout.readline(), type=stop_detector.Longest)

    def get(self, path: str) -> str:
        """The text at a path."""
        with urllib.request.urlopen(self._url(path), timeout=_PATIENCE_S) as answer:
            text: str = answer.read().decode()
        return text

    def _wait(self) -> None:
        assert self._child is not None
        while not child_processes.answers(self._url("/readyz")):
            assert self._child.poll() is None, "the extender has ended"
            time.sleep(0.05)

    def _url(self, path: str) -> str:
        return f"http://{child_processes.LOOPBACK}:{self.port}{path}"
