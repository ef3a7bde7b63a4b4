"""The container image: what the containers of tests run, made of programs of this machine.

There is one image, an OCI archive of one layer, made without any registry: a shell, the small
programs that tests call, the libraries these need, and ``gpu``, a CUDA program that does what its
arguments say (``image/gpu.c``). Its programs are linked dynamically, as those of users are, so
what a node puts into ``/etc/ld.so.preload`` works in them. There is no CUDA in it: as everywhere,
the driver's libraries come from the node.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path
from typing import Any

from native import compilers, libraries, parts

NAME = "localhost/partage-tests:1"
SIMULATED = parts.LIB / "simulated"

_PROGRAMS = (
    *("bash", "cat", "chmod", "cp", "date", "dd", "echo", "env", "false", "grep", "head", "id"),
    *("kill", "ln", "ls", "mkdir", "mknod", "mount", "mv", "nsenter", "ps", "readlink", "rm"),
    *("setpriv", "sh", "sleep", "stat", "tail", "timeout", "touch", "true", "umount", "unshare"),
)
_OCI = "application/vnd.oci.image."
_MAKING = threading.Lock()
_COMMAND = ["/bin/sleep", "infinity"]
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "usr/local/bin", "var")
_USERS = "root:x:0:0:root:/root:/bin/sh\nsomebody:x:1000:1000::/tmp:/bin/sh\n"
_GROUPS = "root:x:0:\nsomebody:x:1000:\n"
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
_PATH = "PATH=/usr/local/bin:/usr/bin:/usr/sbin:/bin:/sbin"


class CannotMake(Exception):
    """The image cannot be made of what is on this machine; the text says what is missing."""


def write(archive: Path) -> None:
    """Write the archive, ready for ``ctr images import``; it is made once in each process."""
    with _MAKING:
        archive.write_bytes(_made())


@functools.cache
def libraries_folder() -> str:
    """Where a program finds libraries without being told: there a node's driver is put."""
    return str(_resolved(next(path for path in _libraries("sh") if "libc.so" in path.name)).parent)


@functools.cache
def _made() -> bytes:
    layer = _layer()
    config = _json(
        architecture=_MACHINES.get(platform.machine(), platform.machine()),
        os="linux",
        # The first process of a container ignores SIGTERM, unless it expects it: why wait for it.
        config={"Env": [_PATH], "Cmd": _COMMAND, "WorkingDir": "/", "StopSignal": "SIGKILL"},
        rootfs={"type": "layers", "diff_ids": [_digest(layer)]},
    )
    manifest = _json(
        schemaVersion=2,
        mediaType=_OCI + "manifest.v1+json",
        config=_described("config.v1+json", config),
        layers=[_described("layer.v1.tar", layer)],
    )
    named = {"annotations": {"io.containerd.image.name": NAME}}
    index = _json(schemaVersion=2, manifests=[_described("manifest.v1+json", manifest) | named])
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        _add(tar, "oci-layout", _json(imageLayoutVersion="1.0.0"))
        _add(tar, "index.json", index)
        for blob in (config, manifest, layer):
            _add(tar, "blobs/sha256/" + _digest(blob).removeprefix("sha256:"), blob)
    return made.getvalue()


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": _OCI + kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def _layer() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder in _FOLDERS:
            _add(tar, folder, mode=0o1777 if folder == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        for link in ("bin", "sbin", "lib", "lib64"):
            _add(tar, link, kind=tarfile.SYMTYPE, link=f"usr/{link}")
        _add(tar, "etc/passwd", _USERS.encode())
        _add(tar, "etc/group", _GROUPS.encode())
        _add(tar, "usr/bin/gpu", _client(), mode=0o755)
        for path in sorted({path for name in _PROGRAMS for path in _files(name)}):
            _add(tar, str(_resolved(path)).lstrip("/"), path.read_bytes(), mode=0o755)
    return made.getvalue()


def _files(program: str) -> list[Path]:
    return [_path(program), *_libraries(program)]


def _path(program: str) -> Path:
    path = shutil.which(program)
    if path is None:
        raise CannotMake(f"there is no {program} on this machine to put into the image of tests")
    return Path(path)


def _libraries(program: str) -> list[Path]:
    """The libraries and the loader that ldd names, by the names under which they are looked for."""
    command = ["ldd", str(_path(program))]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed)]


def _resolved(path: Path) -> Path:
    """Its place below /usr: on some machines /lib and /bin are links, in the image they all are."""
    folder = path.parent.resolve()
    return (
        folder / path.name if folder.is_relative_to("/usr") else Path(f"/usr{folder}") / path.name
    )


def _client() -> bytes:
    """The CUDA program, linked with the driver of the node, whichever that will be."""
    with tempfile.TemporaryDirectory() as scratch:
        made = compilers.system().link(
            Path(scratch) / "gpu",
            [Path(__file__).parent / "image" / "gpu.c"],
            *(f"-isystem{folder}" for folder in libraries.header_folders()),
            f"-L{SIMULATED}",
            "-l:libcuda.so.1",
            "-ldl",
        )
        return made.read_bytes()


def _add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(content), mode, kind, link
    tar.addfile(entry, io.BytesIO(content))
