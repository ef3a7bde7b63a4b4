"""Network: what connects the nodes of one cluster with its control plane, and pods with Services.

In its middle is a network namespace, the hub (:mod:`cluster.network.hub`), in which the control
plane runs and CoreDNS, which knows the names of Services. Each node has a namespace of its own, and
a pair of interfaces connects it with the hub; another pair connects each pod with its node (the CNI
plugin ``partage-veth`` of :mod:`cluster.node`). kube-proxy on each node sends what is meant for a
Service to one of its pods.

Nothing of it is in the machine's network, so clusters do not meet, and none leads outside. The
kernel removes it when the last process in there has ended.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from cluster import child_processes
from cluster.network import addresses
from cluster.programs import kubernetes_build

HUB = "hub"
NAMES = "dns"

_HUB = Path(__file__).with_name("hub.py")
_TOOLS = {"ip": "iproute2", "nft": "nftables", "nsenter": "util-linux"}  # and Debian's packages
_LATER = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # not every shell looks there


class CannotConnect(Exception):
    """This machine cannot have such a network; the text says why."""


def check_machine() -> None:
    """Raise CannotConnect if this machine lacks a program that the network is made with."""
    if missing := {tool: package for tool, package in _TOOLS.items() if not _path(tool)}:
        raise CannotConnect(
            f"there is no {', '.join(missing)} for a network of pods; "
            f"install {' '.join(missing.values())}"
        )


def environment() -> dict[str, str]:
    """Ours, with all folders on PATH where the tools may be."""
    return {**os.environ, "PATH": _search_path()}


def inside(pid: int) -> list[str | Path]:
    """What stands before a command that is to run in the network namespace of a process."""
    return [_path("nsenter") or "nsenter", f"--net=/proc/{pid}/ns/net", "--"]


class Network:
    """The hub and what runs in it; ``start`` comes before the control plane."""

    def __init__(self, folder: Path, *, ends_with_parent: bool) -> None:
        self._folder = folder
        self._hub, self._names = (
            child_processes.Process(name, folder / "run", ends_with_parent=ends_with_parent)
            for name in (HUB, NAMES)
        )
        self._ready: child_processes.Port | None = None

    def start(self, ports: Iterable[child_processes.Port]) -> None:
        """Make the hub, in which these ports of ours lead to the same ones."""
        check_machine()
        (self._folder / "run").mkdir(parents=True, exist_ok=True)
        self._ready = child_processes.Port()
        passed = [self._ready, *ports]
        numbers = [str(port.number) for port in passed]
        hub: list[str | Path] = [sys.executable, "-I", "-S", _HUB, self._folder]
        self._hub.start([*hub, addresses.HUB, *numbers], env=environment())
        self._hub.wait_until(lambda: all(port.is_served() for port in passed))

    def start_names(self, kubeconfig: Path) -> None:
        """Start CoreDNS, and wait until it knows all Services."""
        assert self._ready is not None
        settings = self._folder / "Corefile"
        settings.write_text(_corefile(kubeconfig, self._ready.number))
        self._names.start([*self.inside(), kubernetes_build.ensure_coredns(), "-conf", settings])
        ready = f"http://{child_processes.LOOPBACK}:{self._ready.number}/ready"
        self._names.wait_until(lambda: child_processes.answers(ready))

    def stop(self) -> None:
        """End it; the namespace goes with the last process in it."""
        for process in (self._names, self._hub):
            process.kill()
        if self._ready is not None:
            self._ready.release()
            self._ready = None

    def inside(self) -> list[str | Path]:
        """What stands before a command that is to run in the hub."""
        return inside(self._hub.pid or 0)

    def attach(self, number: int, pid: int) -> None:
        """Connect a node, in whose network namespace a process is, with the hub.

        What pods send goes to the hub, and from there on to other nodes. The interface of a node
        that was here before may still be: the kernel takes its time with a namespace.
        """
        outside, address = f"node{number}", addresses.node(number)
        _run(
            self.inside(),
            f"ip link delete {outside} 2>/dev/null || true",
            f"ip link add {outside} type veth peer name eth0 netns {pid}",
            f"ip link set {outside} up",
            f"ip route add {address} dev {outside} src {addresses.HUB}",
            f"ip route add {addresses.pods(number)}.0/24 via {address} src {addresses.HUB}",
        )
        _run(
            inside(pid),
            "ip link set lo up",
            f"ip address add {address}/32 dev eth0",
            "ip link set eth0 up",
            f"ip route add {addresses.HUB} dev eth0",
            f"ip route add default via {addresses.HUB}",
            "echo 1 >/proc/sys/net/ipv4/ip_forward",
        )

    def pids(self) -> dict[str, int]:
        """The programs that run."""
        pids = {process.name: process.pid for process in (self._hub, self._names)}
        return {name: pid for name, pid in pids.items() if pid is not None}


def _run(prefix: list[str | Path], *commands: str) -> None:
    script = ["sh", "-exc", "\n".join(commands)]  # x: the last line that is shown is what failed
    done = subprocess.run(
        [*prefix, *script], capture_output=True, text=True, check=False, env=environment()
    )
    if done.returncode:
        raise CannotConnect(f"a node cannot be connected with its cluster:\n{done.stderr}")


def _corefile(kubeconfig: Path, ready_port: int) -> str:
    return f"""\
{addresses.DOMAIN}:53 {{
    errors
    ready {child_processes.LOOPBACK}:{ready_port}
    kubernetes {addresses.DOMAIN} {{
        kubeconfig {kubeconfig}
    }}
}}
"""


def _path(tool: str) -> str | None:
    return shutil.which(tool, path=_search_path())


def _search_path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *_LATER])
