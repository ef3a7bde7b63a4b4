"""Installing: manifests of deploy/ on a control plane, and agents in pods of a real node.

An agent runs in the image that users get. Its DaemonSet is changed in what has to be: it is on the
machine's network, as pods have none; what it writes outside the kubelet's folder goes to the
node's; and the simulated driver is mounted, which NVIDIA's runtime would do. Its command, its
rights, its user, its capabilities and its flags are those of the manifest.
"""

from __future__ import annotations

import copy
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from cluster import api
from cluster.control_plane.control_plane import ControlPlane
from cluster.node import partage_image, simulated_cards
from cluster.node.node import Node

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SYSTEM = "kube-system"


def manifests(name: str, component: str = "") -> list[dict[str, Any]]:
    """The objects of a file; only those of a component, as ``kubectl apply -l`` takes them."""
    written = list(yaml.safe_load_all((DEPLOY / name).read_text()))
    if not component:
        return written
    return [made for made in written if made["metadata"]["labels"]["component"] == component]


def apply(plane: ControlPlane, made: Iterable[api.Object]) -> None:
    """Create objects that are not there."""
    for manifest in made:
        try:
            plane.client.create(manifest)
        except api.ApiError as error:
            if error.status != 409:  # it may be there from another test
                raise


def on_node(daemon_set: api.Object, node: Node, port: int, *more: str) -> api.Object:
    """A DaemonSet of the agent, changed so that its pod can run on this node; ``more`` flags."""
    made = copy.deepcopy(daemon_set)
    spec = made["spec"]["template"]["spec"]
    (agent,) = spec["containers"]
    words = "command" if "command" in agent else "args"
    flags = [*agent.pop(words)[1:], *_places(node), "--port", str(port), *more]
    agent |= {"ports": [{"name": "metrics", "containerPort": port}]}
    for probe in ("readinessProbe", "livenessProbe"):
        agent[probe]["httpGet"]["port"] = port
    _move(
        spec,
        {
            "/run/partage": node.root / "fences",
            "/var/lib/partage": node.root / "lib",
            "/var/run/cdi": node.cdi,
            "/etc/cdi": node.folder / "etc-cdi",
        },
    )
    run_here(spec, node, *flags)
    _mount(spec, "driver", simulated_cards.LIBRARIES, writable=False)
    _mount(spec, "cards", node.folder / "cards", writable=True)
    return made


def run_here(spec: api.Object, node: Node, *words: str) -> None:
    """Let the one container of a pod run ``partage`` with these words, on the machine's network."""
    (container,) = spec["containers"]
    spec["hostNetwork"] = True
    container |= {
        "image": partage_image.NAME,
        "imagePullPolicy": "Never",
        "args": ["partage", *words],
    }
    container.pop("command", None)
    environment = [{"name": name, "value": text} for name, text in _environment(node).items()]
    container["env"] = [*container.get("env", ()), *environment]


def _places(node: Node) -> list[str]:
    """Several nodes are on one machine, so what is the host's on a real one is the node's here."""
    return [
        *("--root", str(node.root / "fences"), "--library-folder", str(node.root / "lib")),
        *("--cdi-folder", str(node.cdi), "--driver-cdi", str(node.cdi)),
    ]


def _environment(node: Node) -> dict[str, str]:
    server = yaml.safe_load(node.plane.kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    where = urllib.parse.urlsplit(server)
    return node.environment | {
        "KUBERNETES_SERVICE_HOST": str(where.hostname),
        "KUBERNETES_SERVICE_PORT": str(where.port),
    }


def _move(spec: api.Object, places: dict[str, Path]) -> None:
    """Other folders in the place of some, on the host and in the container."""
    (agent,) = spec["containers"]
    for volume in spec["volumes"]:
        where = volume["hostPath"]
        where["path"] = str(places.get(where["path"], where["path"]))
    for mount in agent["volumeMounts"]:
        mount["mountPath"] = str(places.get(mount["mountPath"], mount["mountPath"]))


def _mount(spec: api.Object, name: str, path: Path, *, writable: bool) -> None:
    (agent,) = spec["containers"]
    spec.setdefault("volumes", []).append({"name": name, "hostPath": {"path": str(path)}})
    mount = {"name": name, "mountPath": str(path), "readOnly": not writable}
    agent.setdefault("volumeMounts", []).append(mount)
