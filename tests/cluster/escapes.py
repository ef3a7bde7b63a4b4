"""A way around the fence for tests: a library that the loader takes for the fence.

Its SONAME is the fence's path, so that a loader which has it does not load the fence once more.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from cluster import api, objects
from tests.native import fenced

FENCE = "/etc/partage/fence/libpartage.so"
NAME = "own"
# As hard as a pod can be made from outside.
LOCKED = {
    "runAsUser": 1000,
    "runAsGroup": 1000,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def config_map(folder: Path) -> api.Object:
    """The library, as anybody may bring it."""
    flags = ("-shared", "-fPIC", f"-Wl,-soname,{FENCE}")
    content = fenced.compiled(folder / "nothing.so", "nothing.c", *flags).read_bytes()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME},
        "binaryData": {"nothing.so": base64.b64encode(content).decode()},
    }


def pod(name: str, limits: dict[str, int], **spec: Any) -> api.Object:
    """A pod without any privileges that has the library."""
    container = objects.container(limits=limits) | {"securityContext": LOCKED}
    container["volumeMounts"] = [{"name": NAME, "mountPath": "/own"}]
    volumes = [{"name": NAME, "configMap": {"name": NAME}}]
    return objects.running_pod(name, container, volumes=volumes, **spec)


def command(mib: int) -> tuple[str, ...]:
    """Take so much of the card without the fence, and keep it."""
    return "env", "LD_PRELOAD=/own/nothing.so", "gpu", "hold", str(mib)
