"""Settings of a node: what its containerd and kubelet are given.

Everything of a node is in its folder, but for a few places that the programs insist on. Those are
covered, for the node's processes alone, with folders of the node (:func:`covers`).
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from cluster.node import container_image

KUBELET = "kubelet"  # the folder that the node sees as /var/lib/kubelet
NVIDIA = "nvidia-container-runtime"  # a program in the node's folder
RUNTIME_CLASS = "nvidia"  # of pods that get the driver by it

_PLUGINS = Path(__file__).with_name("cni")
# Folders of the node, by the places where programs insist on finding them.
_PLACES = {
    "/var/lib/kubelet": KUBELET,
    "/var/lib/cni": "cni-results",
    "/run/containerd": "shims",
    "/var/log/containers": "container-logs",
}
# The same for what pods mount from their node by its usual paths, as Partage's agent does.
_SHARED_PLACES = {
    "/etc/cdi": "cdi",
    "/run/cdi": "cdi",
    "/run/partage": "partage/fences",
    "/var/lib/partage": "partage/library",
}
# kubelet sets these for the whole machine, unless it finds them as it wants them.
_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


def covers(folder: Path, *, shared: bool) -> str:
    """The places that the node's processes see otherwise than we do, for ``namespaces.py``.

    With ``shared`` also those that pods mount by their usual paths.
    """
    lines = []
    for place, name in (_PLACES | (_SHARED_PLACES if shared else {})).items():
        Path(place).mkdir(parents=True, exist_ok=True)
        (folder / name).mkdir(parents=True, exist_ok=True)
        lines.append(f"{place}\t{folder / name}")
    existing = {name: value for name, value in _SYSCTLS.items() if Path("/proc/sys", name).exists()}
    for name, value in existing.items():
        read = folder / "sysctl" / name.replace("/", ".")
        read.parent.mkdir(exist_ok=True)
        read.write_text(f"{value}\n")
        lines.append(f"/proc/sys/{name}\t{read}")
    return "\n".join(lines)


def hierarchies() -> list[Path]:
    """The roots of the machine's cgroups: one in version 2, several in version 1."""
    fields = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(place) for _, place, kind, *_ in fields if kind in ("cgroup", "cgroup2")]


def containerd(folder: Path, *, programs: Path, runc: Path) -> str:
    """containerd's configuration, which is TOML; all that is quoted here is a valid JSON string.

    The second runtime is what :func:`nvidia_runtime` writes, on a node with cards.
    """

    def at(name: str) -> str:
        return json.dumps(str(folder / name))

    return f"""\
version = 3
imports = []
root = {at("root")}
state = {at("state")}
[grpc]
  address = {at("containerd.sock")}
[ttrpc]
  address = {at("containerd.ttrpc")}
[plugins."io.containerd.internal.v1.opt"]
  path = {at("opt")}
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{container_image.NAME}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # else nothing starts where CAP_SYS_RESOURCE is missing
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = [{at("cdi")}]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{json.dumps(str(_PLUGINS))}]
    conf_dir = {at("cni")}
    use_internal_loopback = true
{_runtime("runc", programs, runc)}
{_runtime(RUNTIME_CLASS, programs, folder / NVIDIA)}
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"""


def nvidia_runtime(edits: Path, runc: Path) -> str:
    """The program that is runc for pods of the runtime class of NVIDIA."""
    script = Path(__file__).with_name("nvidia_runtime.py")
    command = shlex.join(map(str, [sys.executable, "-I", "-S", script, edits, runc]))
    return f'#!/bin/sh\nexec {command} "$@"\n'


def network() -> str:
    """Which CNI plugin containerd calls for a pod."""
    plugins = [{"type": "partage-lo"}]
    return json.dumps({"cniVersion": "1.0.0", "name": "lo", "plugins": plugins})


def kubelet(
    folder: Path, *, address: str, port: int, group: str, more: Mapping[str, Any] | None = None
) -> str:
    """kubelet's configuration; ``more`` is what a network adds."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "port": port,
            "healthzPort": 0,
            # It listens on loopback, for the API server and for tests.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{group}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{folder / 'containerd.sock'}",
            "podLogsDir": str(folder / "logs"),
            "volumePluginDir": str(folder / "volume-plugins"),
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,  # images cannot be pulled again
            "nodeStatusUpdateFrequency": "2s",
            "maxPods": 250,
            "eventRecordQPS": 1000,  # 0 would be the client's default, five a second
            "eventBurst": 5000,
            "kubeAPIQPS": 200,
            "kubeAPIBurst": 400,
            **(more or {}),
        },
        sort_keys=False,
    )


def _runtime(name: str, programs: Path, program: Path) -> str:
    section = f'plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{name}'
    return f"""\
  [{section}]
    runtime_type = "io.containerd.runc.v2"
    runtime_path = {json.dumps(str(programs / "containerd-shim-runc-v2"))}
    [{section}.options]
      BinaryName = {json.dumps(str(program))}
      SystemdCgroup = false"""
