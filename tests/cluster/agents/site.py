"""A site: real nodes with agents, the extender and kube-scheduler, and what tests ask of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from cluster import api
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.node.node import Node
from cluster.partage_processes import extender_process
from cluster.partage_processes.agent_process import Agent
from native import parts
from partage.dialects import registry
from partage.fence.store import limits, roots, tenants
from tests.cluster import making

# Every dialect but HAMi's, for whose pods a card would be ten.
SPOKEN = [name for name in registry.dialect_names() if name != "hami"]
OFFLINE_CLASS = "batch"  # a PriorityClass whose pods are offline
OPTIONS = (
    *("--quiet-after-xid", "2", "--dialects", ",".join(SPOKEN)),
    *("--compute-class", f"{OFFLINE_CLASS}=offline"),
)
_PARTAGE = Path(sys.executable).with_name("partage")
_SIMSMI = parts.LIB / "simulated" / "simsmi"


class Site:
    """All of it, running."""

    def __init__(
        self, nodes: Sequence[Node], folder: Path, *, options: Sequence[str] = OPTIONS
    ) -> None:
        self.nodes = nodes
        self.plane: ControlPlane = nodes[0].plane
        self.client = self.plane.client
        self.extender = extender_process.Extender(folder, self.plane.kubeconfig)
        self.agents = tuple(Agent(node, self.plane.kubeconfig, options=options) for node in nodes)

    def start(self) -> None:
        """Start what does not run."""
        if self.extender.pid is None:
            self.extender.start()
        for agent in self.agents:
            if agent.pid is None:
                agent.start()
        making.schedule(self.plane, self.extender.port, advertised=scheduler_config.offered())

    def close(self) -> None:
        """End it."""
        for agent in self.agents:
            agent.close()
        self.extender.close()

    def agent(self, node: str) -> Agent:
        """The agent of a node."""
        return self.agents[self._index(node)]

    def node(self, name: str) -> Node:
        """A node by its name."""
        return self.nodes[self._index(name)]

    def create(self, *pods: api.Object) -> None:
        """Create pods."""
        self.client.create_all(pods)

    def running(self, *names: str, patience_s: float = 90) -> list[api.Object]:
        """These pods, once all of them run."""

        def check() -> list[api.Object] | None:
            by_name = {pod["metadata"]["name"]: pod for pod in self.client.list_all("Pod")}
            ready = [by_name[name] for name in names if name in by_name and _runs(by_name[name])]
            return ready if len(ready) == len(names) else None

        pods: list[api.Object] = making.eventually(
            check, patience_s=patience_s, why=lambda: self.describe(names)
        )
        return pods

    def pod(self, name: str) -> api.Object:
        """A pod as it is now."""
        return self.client.get("Pod", name)

    def gone(self, *names: str) -> None:
        """Delete pods, and wait until they are gone."""
        for name in names:
            self.client.delete("Pod", name)

        def left() -> bool:
            return bool({p["metadata"]["name"] for p in self.client.list_all("Pod")} & set(names))

        making.eventually(lambda: not left(), patience_s=90)

    def said(self, pod: str, *command: str, container: str = "main") -> str:
        """What a command in a container prints, if it ends well."""
        done = self.exec(pod, *command, container=container)
        assert done.returncode == 0, done
        return str(done.stdout)

    def exec(self, pod: str, *command: str, container: str = "main") -> Any:
        """Run a command in a container."""
        node = self.pod(pod)["spec"]["nodeName"]
        return self.node(node).exec(pod, container, *command)

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """What a container has in its environment from its start.

        It is said to run a moment before its program does: until then its first process is runc's.
        And it is said to run for a moment after it has ended, where it is about to be made anew.
        """

        def of_program() -> str:
            done = self.exec(pod, "cat", "/proc/1/environ", container=container)
            if done.returncode and "not found" in done.stderr:
                return ""
            assert done.returncode == 0, done
            return "" if "_LIBCONTAINER_" in done.stdout else str(done.stdout)

        text: str = making.eventually(of_program)
        return dict(entry.split("=", 1) for entry in text.split("\0") if entry)

    def cards(self, pod: str, container: str = "main") -> dict[str, int]:
        """The cards that a program in the container sees: uuid, and total MiB."""
        lines = self.said(pod, "gpu", "info", container=container).split("\n")
        return {line.split()[0]: int(line.split()[2]) for line in lines if line}

    def tenant(self, pod: api.Object, container: str = "main") -> limits.Limits:
        """What holds a container."""
        name = f"{pod['metadata']['uid']}.{container}"
        return tenants.read(self.root(pod["spec"]["nodeName"]), name).limits

    def root(self, node: str) -> roots.Root:
        """The fences of a node."""
        return roots.find(self.node(node).root / "fences")

    def events(self, name: str) -> list[str]:
        """The messages of a pod's events."""
        return making.events(self.plane, name)

    def describe(self, names: Iterable[str]) -> str:
        """What is known of pods that do not run, for whoever reads a failure."""
        lines = []
        for name in list(names)[:5]:
            try:
                status = json.dumps(self.pod(name)["status"])[:1500]
                lines.append(f"{name}: {status}\n{self.events(name)[-5:]}")
            except api.ApiError as error:
                lines.append(f"{name}: {error}")
        return "\n".join([*lines, *(agent.log(lines=15) for agent in self.agents)])

    def _index(self, name: str) -> int:
        return [node.name for node in self.nodes].index(name)


def partage(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command on the cluster."""
    environment = {**os.environ, "KUBECONFIG": str(site.plane.kubeconfig)}
    return subprocess.run(
        [_PARTAGE, *words], env=environment, capture_output=True, text=True, check=False
    )


def simsmi(node: Node, *arguments: str) -> None:
    """Do something to a node's cards: lose one, heal it."""
    subprocess.run([_SIMSMI, *arguments], env={**os.environ, **node.environment}, check=True)


def shares(pod: api.Object, container: str = "main") -> dict[str, dict[str, Any]]:
    """The shares that a container was granted, by uuid."""
    granted = [c for c in making.grant(pod)["containers"] if c["name"] == container]
    return {share["uuid"]: share for share in granted[0]["shares"]}


def fence(pod: api.Object, container: str = "main") -> str:
    """The fence that is in force, by the pod's grant."""
    granted = [c for c in making.grant(pod)["containers"] if c["name"] == container]
    return str(granted[0]["fence"])


def names(pods: Iterable[api.Object]) -> Collection[str]:
    """Of pods."""
    return [pod["metadata"]["name"] for pod in pods]


def _runs(pod: api.Object) -> bool:
    statuses = pod["status"].get("containerStatuses", [])
    return pod["status"].get("phase") == "Running" and all(status["ready"] for status in statuses)
