"""The part of NVIDIA's container runtime, on a node whose cards are simulated.

Run as a script: ``nvidia_runtime.py EDITS RUNC [ARGUMENT...]`` becomes runc with these arguments.
If they make a container that asks for all cards in NVIDIA's words, by the variable
NVIDIA_VISIBLE_DEVICES, its specification first gets the driver's files and the device nodes, which
are in the file EDITS, in the words of CDI. Other values are left alone: nothing asks for them here.

containerd calls it for pods of the runtime class ``nvidia``, as on a node with NVIDIA's toolkit. It
does not know of the variables that are added, so what is run by ``exec`` does not have them. The
script needs nothing but the standard library: it runs several times for each container.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from typing import Any, NoReturn

_ASKED = "NVIDIA_VISIBLE_DEVICES=all"


def main(edits: str, command: list[str]) -> NoReturn:
    if "create" in command:
        bundle = command[command.index("--bundle") + 1]
        _change(f"{bundle}/config.json", edits)
    os.execv(command[0], command)


def _change(specification: str, edits: str) -> None:
    with open(specification) as text:  # noqa: PTH123 (pathlib takes longer to import than all else)
        container: dict[str, Any] = json.load(text)
    if _ASKED not in container["process"].get("env", []):
        return
    with open(edits) as text:  # noqa: PTH123
        _edit(container, json.load(text))
    with open(specification, "w") as changed:  # noqa: PTH123
        json.dump(container, changed)


def _edit(container: dict[str, Any], edits: dict[str, Any]) -> None:
    names = {variable.partition("=")[0] for variable in edits["env"]}
    process, linux = container["process"], container["linux"]
    kept = [variable for variable in process["env"] if variable.partition("=")[0] not in names]
    process["env"] = [*kept, *edits["env"]]
    container["mounts"] += [_mount(mount) for mount in edits["mounts"]]
    nodes = [_device(node) for node in edits["deviceNodes"]]
    linux.setdefault("devices", []).extend(nodes)
    allowed = [
        {"allow": True, "access": "rwm", **{key: node[key] for key in ("type", "major", "minor")}}
        for node in nodes
    ]
    linux.setdefault("resources", {}).setdefault("devices", []).extend(allowed)


def _mount(mount: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "bind",
        "source": mount["hostPath"],
        "destination": mount["containerPath"],
        "options": mount["options"],
    }


def _device(node: dict[str, str]) -> dict[str, Any]:
    state = os.stat(node["hostPath"])  # noqa: PTH116
    return {
        "type": "c",
        "path": node["path"],
        "major": os.major(state.st_rdev),
        "minor": os.minor(state.st_rdev),
        "fileMode": stat.S_IMODE(state.st_mode),
        "uid": 0,
        "gid": 0,
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
