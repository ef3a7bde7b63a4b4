"""Node: a real node of a control plane, with its own containerd and kubelet.

What runs on it are containers as on any node; only its GPUs are simulated
(:mod:`cluster.node.simulated_cards`). Several nodes share the machine: each has its own namespaces
of processes and mounts (:mod:`cluster.node.namespaces`), its own cgroup and its own address of the
loopback network, which is its name. Ending a node is ending the first process in its namespaces:
the kernel ends all the others, the containers too, and all mounts go with them. So nothing stays
behind, even if the process that started it is killed.

Pods use the image :data:`cluster.node.container_image.NAME` with ``imagePullPolicy: Never``. They
have a network of their own, in which there is nothing but loopback, unless they say
``hostNetwork``. If the control plane has a network (:mod:`cluster.network.network`), the node has a
network namespace and an address of its own there, and kube-proxy, and its pods reach all others.
"""

from __future__ import annotations

import hashlib
import http
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent import futures
from pathlib import Path

from cluster import api, child_processes
from cluster.control_plane import access_files
from cluster.control_plane.control_plane import ControlPlane
from cluster.network import network
from cluster.node import (
    container_image,
    containerd_client,
    namespace_processes,
    network_settings,
    node_settings,
    simulated_cards,
)
from cluster.programs import kubernetes_build

FIRST, CONTAINERD, KUBELET, KUBE_PROXY = "first", "containerd", "kubelet", "kube-proxy"

_CARDS = "cards"  # a folder
_CLEARING_SECONDS = 60


class CannotRun(Exception):
    """This machine cannot have real nodes; the text says why."""


class NoSuchContainer(Exception):
    """The pod has no such container that runs."""


def check_machine() -> None:
    """Raise CannotRun if this machine cannot have real nodes."""
    if os.geteuid() != 0:
        raise CannotRun("kubelet and containerd need root; run this as root")
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "true"]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise CannotRun("there is no unshare program; install util-linux") from None
    if tried.returncode:
        raise CannotRun(f"no namespaces can be made here: {tried.stderr.strip()}")
    if not (container_image.SIMULATED / "libcuda.so.1").exists():
        raise CannotRun("the simulated driver is not built; build it with `python -m native`")


def start_all(nodes: Iterable[Node]) -> None:
    """Start several nodes at once; if one fails, its error is raised when all have tried."""
    with futures.ThreadPoolExecutor() as pool:
        for started in [pool.submit(node.start) for node in nodes]:
            started.result()


def clear(nodes: Collection[Node]) -> None:
    """Delete all pods of the control plane, and wait until the nodes have no containers left.

    Before them goes what would make them anew.
    """
    client = next(iter(nodes)).plane.client
    for kind in ("StatefulSet", "Deployment"):
        for owner in client.list_all(kind):
            client.delete(kind, owner["metadata"]["name"], owner["metadata"]["namespace"])
    for namespace in {pod["metadata"]["namespace"] for pod in client.list_all("Pod")}:
        client.call("DELETE", api.path("Pod", "", namespace) + "?gracePeriodSeconds=0")
    deadline = time.monotonic() + _CLEARING_SECONDS
    while left := [*client.list_all("Pod"), *(one for node in nodes for one in node.containers())]:
        if time.monotonic() > deadline:
            raise child_processes.ProgramFailed(f"pods or containers do not go away: {left}")
        time.sleep(0.05)


class Node:
    """One node, in a folder of its own; ``number`` tells it from others of the control plane.

    ``cards`` is as SIMCUDA_CARDS has it; without any there is no driver either.
    Without ``ends_with_parent`` it stays when this process ends, and is found again by its folder.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        number: int,
        *,
        cards: str = "2x16GiB",
        ends_with_parent: bool = True,
    ) -> None:
        self.name = plane.node_name(number)
        self.folder = folder.resolve()
        self.cdi = self.folder / "cdi"
        self.root = self.folder / "partage"
        self.device_plugins = self.folder / node_settings.KUBELET / "device-plugins"
        self.pod_resources = self.folder / node_settings.KUBELET / "pod-resources" / "kubelet.sock"
        self.runtime = self.folder / "containerd.sock"
        self.plane = plane
        self._number = number
        self.cards = (
            simulated_cards.Cards(self.folder / _CARDS, self.name, cards) if cards else None
        )
        self._programs = kubernetes_build.programs_folder()
        self._containers = containerd_client.Containers(self._programs, self.runtime)
        # Nodes of other control planes may be here, with the same numbers.
        self.cgroup = f"partage-{hashlib.sha256(os.fsencode(self.folder)).hexdigest()[:12]}"
        run = self.folder / "run"
        self._first, self._containerd, self._kubelet, self._kube_proxy = (
            namespace_processes.Process(name, run, ends_with_parent=ends_with_parent)
            for name in (FIRST, CONTAINERD, KUBELET, KUBE_PROXY)
        )
        self._port: child_processes.Port | None = None

    @property
    def has_cards(self) -> bool:
        """Whether it has cards, also if it was started by another process."""
        return self.cards is not None or (self.folder / _CARDS).exists()

    @property
    def programs(self) -> list[str]:
        """The programs that it has while it is complete."""
        return [FIRST, CONTAINERD, KUBELET, *([KUBE_PROXY] if self.plane.network else [])]

    @property
    def environment(self) -> dict[str, str]:
        """What a program needs in its environment to be on this node and see its cards."""
        return self.cards.environment if self.cards else {}

    def start(self) -> None:
        """Start the node and wait until it is ready; if a part fails, nothing is left running."""
        check_machine()
        try:
            self._make_folder()
            self._make_namespaces()
            if self.plane.network:
                self._start_network(self.plane.network)
            self.start_containerd()
            self._containers.import_image()
            self.start_kubelet()
            if self.plane.network:
                self._kube_proxy.wait_until(self._knows_services)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything on the node at once, as if its power failed."""
        for process in (self._kube_proxy, self._kubelet, self._containerd, self._first):
            process.kill()
        if self._port is not None:
            self._port.release()
            self._port = None

    def start_kubelet(self) -> None:
        """Start kubelet, and wait until it says that the node is ready."""
        self._forget_readiness()
        self._run(
            self._kubelet,
            "kubelet",
            f"--config={self.folder / 'kubelet.yaml'}",
            f"--kubeconfig={self.folder / 'kubeconfig'}",
            f"--cert-dir={self.folder / 'pki'}",
            f"--hostname-override={self.name}",
            "--v=2",
        )
        self._kubelet.wait_until(self.is_ready)

    def kill_kubelet(self) -> None:
        """End kubelet as a crash would; containers go on."""
        self._kubelet.kill()

    def restart_kubelet(self) -> None:
        """End kubelet, and start it again."""
        self.kill_kubelet()
        self.start_kubelet()

    def start_containerd(self) -> None:
        """Start containerd, and wait until it answers."""
        self._run(self._containerd, "containerd", f"--config={self.folder / 'containerd.toml'}")
        self._containerd.wait_until(self._containers.is_there)

    def import_archive(self, archive: Path, *, name: str = "") -> None:
        """Have another image besides the one of tests, for pods that name it.

        Its name is the one in its archive; with ``name`` that one as well.
        """
        self._containers.import_archive(archive, name=name)

    def kill_containerd(self) -> None:
        """End containerd as a crash would; containers go on."""
        self._containerd.kill()

    def shim(self, pod: str, namespace: str = api.DEFAULT) -> int:
        """The process between containerd and a pod's containers."""
        uid = self.plane.client.get("Pod", pod, namespace)["metadata"]["uid"]
        shim = self._containers.shim(uid)
        if shim is None:
            raise NoSuchContainer(f"pod {pod} has no shim on {self.name}: it does not run there")
        return shim

    def sandbox(self, pod: str, namespace: str = api.DEFAULT) -> str:
        """The ID of a pod's sandbox, in which its containers are; empty while it has none."""
        uid = self.plane.client.get("Pod", pod, namespace)["metadata"]["uid"]
        return self._containers.sandbox(uid)

    def kill_shim(self, pod: str, namespace: str = api.DEFAULT) -> None:
        """End that process, as a crash would."""
        os.kill(self.shim(pod, namespace), signal.SIGKILL)

    def is_ready(self) -> bool:
        """Whether kubelet says that the node is ready."""
        try:
            node = self.plane.client.get("Node", self.name)
        except api.ApiError:
            return False
        conditions = node["status"].get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def exec(
        self, pod: str, container: str, *command: str, namespace: str = api.DEFAULT
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, past kubelet and the API server, and wait for its end."""
        return self._containers.exec(self._container_id(pod, container, namespace), *command)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the machine on the node's network, outside containers."""
        inside = network.inside(self._first_pid())
        return subprocess.run(
            [*inside, *command],
            capture_output=True,
            text=True,
            check=False,
            env=network.environment(),
        )

    def run_inside(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the machine that sees what the node's own programs see."""
        inside = [*namespace_processes.COMMAND, "enter", str(self._first_pid())]
        return subprocess.run([*inside, *command], capture_output=True, text=True, check=False)

    def logs(self, pod: str, container: str, *, namespace: str = api.DEFAULT) -> str:
        """What the container's present or last run has written, on stdout and stderr."""
        uid = self.plane.client.get("Pod", pod, namespace)["metadata"]["uid"]
        return containerd_client.log_text(
            self.folder / "logs" / f"{namespace}_{pod}_{uid}" / container
        )

    def containers(self) -> list[str]:
        """The IDs of containers and pods' sandboxes that run."""
        return self._containers.running()

    def pids(self) -> dict[str, int]:
        """The programs of the node that run, but for those in containers."""
        programs = (self._first, self._containerd, self._kubelet, self._kube_proxy)
        pids = {process.name: process.pid for process in programs}
        return {name: pid for name, pid in pids.items() if pid is not None}

    def log(self, name: str, *, lines: int = 20) -> str:
        """The last lines of the log of ``containerd``, ``kubelet`` or ``kube-proxy``."""
        programs = (self._containerd, self._kubelet, self._kube_proxy)
        return {process.name: process for process in programs}[name].log_tail(lines)

    def _make_folder(self) -> None:
        for name in ("run", "cdi", "cni", "pki", "logs", "partage"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        networked = self.plane.network is not None
        runc = kubernetes_build.ensure_runc()
        settings = {
            "covers": node_settings.covers(self.folder, shared=networked),
            "containerd.toml": node_settings.containerd(
                self.folder, programs=self._programs, runc=runc
            ),
            "cni/10-pods.conflist": (
                network_settings.plugin(self._number) if networked else node_settings.network()
            ),
            "kubelet.yaml": node_settings.kubelet(
                self.folder,
                address=self.name,
                port=self._kubelet_port(),
                group=self.cgroup,
                more=network_settings.kubelet() if networked else None,
            ),
        }
        for name, text in settings.items():
            (self.folder / name).write_text(text)
        self._write_kubeconfig("kubeconfig", access_files.kubelet(self.name))
        if self.cards:
            self.cards.install(self.cdi)
            program = self.folder / node_settings.NVIDIA
            program.write_text(node_settings.nvidia_runtime(self.cards.all, runc))
            program.chmod(0o755)

    def _kubelet_port(self) -> int:
        if self.plane.network:
            return network_settings.KUBELET_PORT
        if self._port is None:
            self._port = child_processes.Port(self.name)
        return self._port.number

    def _write_kubeconfig(self, name: str, user: str) -> None:
        self.plane.write_kubeconfig(self.folder / name, user, server=self.plane.server_for_nodes)

    def _make_namespaces(self) -> None:
        groups = [hierarchy / self.cgroup for hierarchy in node_settings.hierarchies()]
        own_network = [shutil.which("unshare") or "unshare", "--net"] if self.plane.network else []
        make = [*own_network, *namespace_processes.COMMAND, "make"]
        self._first.start([*make, self.folder / "covers", *groups])
        self._first.wait_until(
            lambda: namespace_processes.has_mounts(self._first, self.folder / "covers")
        )

    def _start_network(self, between: network.Network) -> None:
        """Connect the node, and start kube-proxy, which is ready about when kubelet is."""
        between.attach(self._number, self._first_pid())
        self._write_kubeconfig("kube-proxy.kubeconfig", access_files.PROXY)
        path = self.folder / "kube-proxy.yaml"
        kubeconfig = self.folder / "kube-proxy.kubeconfig"
        path.write_text(network_settings.kube_proxy(self.name, kubeconfig))
        program = kubernetes_build.ensure_kube_proxy()
        self._run(self._kube_proxy, program, f"--config={path}", env=network.environment())

    def _knows_services(self) -> bool:
        """Whether kube-proxy has written its table."""
        return self.run("nft", "list", "table", "ip", "kube-proxy").returncode == 0

    def _first_pid(self) -> int:
        return namespace_processes.first_pid(self._first)

    def _run(
        self,
        process: namespace_processes.Process,
        program: str | Path,
        *options: str,
        env: Mapping[str, str] | None = None,
    ) -> None:
        command: list[str | Path] = [self._programs / program, *options]
        inside = [*namespace_processes.COMMAND, "enter", str(self._first_pid())]
        process.start([*inside, *command], env=env)

    def _forget_readiness(self) -> None:
        """Say that nobody knows, as a controller would after a while: what is said next is new."""
        unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}
        change = {"status": {"conditions": [unknown]}}
        try:
            self.plane.client.patch(
                "Node", self.name, change, subresource="status", how=api.STRATEGIC
            )
        except api.ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _container_id(self, pod: str, container: str, namespace: str) -> str:
        pod_status = self.plane.client.get("Pod", pod, namespace)["status"]
        kinds = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
        for status in (status for kind in kinds for status in pod_status.get(kind, [])):
            if status["name"] == container and "containerID" in status:
                return str(status["containerID"]).rpartition("/")[2]
        raise NoSuchContainer(f"pod {pod} has no container {container} that was started")
