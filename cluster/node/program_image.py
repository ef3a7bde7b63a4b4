"""Images of one program of the cluster, as its project publishes them, for pods that run it.

A chart that brings a second kube-scheduler names the image that everybody has. Here that is made
of the program that was built, which is linked statically and needs nothing else.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from cluster.node import image_archive
from cluster.programs import kubernetes_build

_FOLDERS = ("usr", "usr/local", "usr/local/bin", "tmp", "etc")


def name(program: str) -> str:
    """What the image of a program of Kubernetes is called, with the version that was built."""
    return f"registry.k8s.io/{program}:{kubernetes_build.version()}"


def write(program: str, archive: Path) -> None:
    """Write the archive of a program's image, for :meth:`cluster.node.node.Node.import_archive`."""
    content = (kubernetes_build.ensure() / program).read_bytes()
    path = f"usr/local/bin/{program}"
    settings = {
        "Env": ["PATH=/usr/local/bin"],
        "Entrypoint": [f"/{path}"],
        "WorkingDir": "/",
    }
    archive.write_bytes(image_archive.packed(name(program), _layer(path, content), settings))


def _layer(path: str, content: bytes) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder in _FOLDERS:
            mode = 0o1777 if folder == "tmp" else 0o755
            image_archive.add(tar, folder, mode=mode, kind=tarfile.DIRTYPE)
        image_archive.add(tar, path, content, mode=0o755)
    return made.getvalue()
