"""Ways around the fence for tests, for a user in a container without any privileges.

A library whose SONAME is the fence's path: a loader which has it does not load the fence once more.
And a user namespace, in which the user may mount nothing over the loader's list. Neither is enough
while the fence stands in the driver's place as well; so the driver behind it comes first, by its
other name.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from cluster import api, objects
from partage.fence.library import originals
from tests.native import fenced

FENCE = "/etc/partage/fence/libpartage.so"
DRIVER = f"/etc/partage/fence/{originals.BEHIND[originals.CUDA]}"
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


def renamed(mib: int, driver: str = DRIVER) -> tuple[str, ...]:
    """Take so much of the card behind the library, and keep it."""
    return "env", f"LD_PRELOAD=/own/nothing.so:{driver}", "gpu", "hold", str(mib)


def covered(mib: int, driver: str = DRIVER) -> tuple[str, ...]:
    """The same, where the loader's list of libraries is empty."""
    held = f"LD_PRELOAD={driver} exec gpu hold {mib}"
    inside = f"mount --bind /dev/null /etc/ld.so.preload && {held}"
    return "unshare", "--user", "--map-root-user", "--mount", "sh", "-c", inside
