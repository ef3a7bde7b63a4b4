"""Simulated cards: the GPUs of a node, and what NVIDIA's tools would have written about them.

A node has a machine of its own in the simulated driver (``native/simcuda``), with cards whose UUIDs
no other node has. Its CDI specification is like the one that ``nvidia-ctk cdi generate`` writes on
a real node: a device for each card, by its UUID, and ``all``; with any of them come the driver's
libraries. A container sees those cards alone whose device node it was given. What NVIDIA's runtime
puts into a container that asks for all cards (:mod:`cluster.node.nvidia_runtime`) is the same.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import uuid
from pathlib import Path
from typing import Any

import yaml

from cluster.node import container_image

KIND = "nvidia.com/gpu"
LIBRARIES = container_image.SIMULATED

_FORM = re.compile(r"(?:(\d+)x)?(\d+[KMG]iB)(?::([^,]+))?")
_INSIDE = Path("/run/simcuda")  # where a container finds its machine
_VOID = "NVIDIA_VISIBLE_DEVICES=void"  # says to NVIDIA's older hook that there is nothing to do
_NULL = os.makedev(1, 3)  # not NVIDIA's number: on a machine with a GPU that would be the GPU


class Cards:
    """The cards of one node, in a folder; ``form`` is as SIMCUDA_CARDS has it: 2x16GiB."""

    def __init__(self, folder: Path, node: str, form: str) -> None:
        self._folder = folder
        self._config = folder / "simcuda.conf"
        self._state = folder / "simcuda.state"
        self.all = folder / "all.json"  # the edits for a container that has all cards
        self._sections = _sections(node, form)
        self.uuids = [section["uuid"] for section in self._sections]

    @property
    def environment(self) -> dict[str, str]:
        """What a program of the node needs in its environment to see the cards."""
        return {
            "LD_LIBRARY_PATH": str(LIBRARIES),
            "SIMCUDA_CONFIG": str(self._config),
            "SIMCUDA_STATE": str(self._state),
        }

    def install(self, specifications: Path) -> None:
        """Make the cards, their device nodes and their specification."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._config.write_text("\n".join(map(_section_text, self._sections)))
        for name in ("nvidiactl", *self._nodes()):
            _make_device(self._folder / name)
        subprocess.run(
            [LIBRARIES / "simsmi", "-L"],
            env={**os.environ, **self.environment},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        self._state.chmod(0o666)  # users in containers are not always root
        path = specifications / "nvidia.yaml"
        path.write_text(yaml.safe_dump(self._specification(), sort_keys=False))
        nodes = [self._node(name) for name in ("nvidiactl", *self._nodes())]
        self.all.write_text(json.dumps(self._edits() | {"deviceNodes": nodes}))

    def _nodes(self) -> list[str]:
        return [f"nvidia{minor}" for minor in range(len(self._sections))]

    def _specification(self) -> dict[str, Any]:
        devices = [
            _device(name, [self._node(node)])
            for name, node in zip(self.uuids, self._nodes(), strict=True)
        ]
        devices.append(_device("all", [self._node(node) for node in self._nodes()]))
        return {
            "cdiVersion": "0.5.0",
            "kind": KIND,
            "devices": devices,
            "containerEdits": self._edits() | {"deviceNodes": [self._node("nvidiactl")]},
        }

    def _edits(self) -> dict[str, Any]:
        """What comes with any of the cards."""
        return {
            "env": [
                _VOID,
                f"SIMCUDA_CONFIG={_INSIDE / 'config'}",
                f"SIMCUDA_STATE={_INSIDE / 'state'}",
                "SIMCUDA_NODES=/dev",
            ],
            "mounts": self._mounts(),
        }

    def _node(self, name: str) -> dict[str, str]:
        return {"path": f"/dev/{name}", "hostPath": str(self._folder / name)}

    def _mounts(self) -> list[dict[str, Any]]:
        system = Path(container_image.libraries_folder())
        read_only = [  # nvidia-ctk makes links of the second names, by a hook
            (LIBRARIES / "libcuda.so.1", system / "libcuda.so.1"),
            (LIBRARIES / "libcuda.so.1", system / "libcuda.so"),
            (LIBRARIES / "libnvidia-ml.so.1", system / "libnvidia-ml.so.1"),
            (LIBRARIES / "libnvidia-ml.so.1", system / "libnvidia-ml.so"),
            (LIBRARIES / "simsmi", Path("/usr/bin/nvidia-smi")),
            (self._config, _INSIDE / "config"),
        ]
        mounts = [_mount(source, target, "ro") for source, target in read_only]
        return [*mounts, _mount(self._state, _INSIDE / "state", "rw")]


def _sections(node: str, form: str) -> list[dict[str, str]]:
    sections: list[dict[str, str]] = []
    for part in form.split(","):
        match = _FORM.fullmatch(part)
        if match is None:
            raise ValueError(f"{form!r} does not say which cards a node has; 2x16GiB does")
        model = {"model": match[3]} if match[3] else {}
        sections += [{"memory": match[2], **model} for _ in range(int(match[1] or 1))]
    return [
        {**section, "uuid": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{node}')}"}
        for index, section in enumerate(sections)
    ]


def _section_text(section: dict[str, str]) -> str:
    return "\n".join(["[card]", *(f"{key} = {value}" for key, value in section.items()), ""])


def _make_device(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mknod(path, stat.S_IFCHR, _NULL)
    path.chmod(0o666)


def _device(name: str, nodes: list[dict[str, str]]) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": nodes}}


def _mount(source: Path, target: Path, access: str) -> dict[str, Any]:
    options = [access, "nosuid", "nodev", "rbind", "rprivate"]
    return {"hostPath": str(source), "containerPath": str(target), "options": options}
