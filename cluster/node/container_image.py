"""The container image: what the containers of tests run, made of programs of this machine.

It has a shell, the small programs that tests call, the libraries these need, and ``gpu``, a CUDA
program that does what its arguments say (``image/gpu.c``). Its programs are linked dynamically, as
those of users are, so what a node puts into ``/etc/ld.so.preload`` works in them. There is no CUDA
in it: as everywhere, the driver's libraries come from the node.
"""

from __future__ import annotations

import functools
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
from pathlib import Path

from cluster.node import image_archive
from native import compilers, libraries, parts, symbols

NAME = "localhost/partage-tests:1"
SIMULATED = parts.LIB / "simulated"

_PROGRAMS = (
    *("bash", "cat", "chmod", "cp", "date", "dd", "echo", "env", "false", "grep", "head", "id"),
    *("kill", "ln", "ls", "mkdir", "mknod", "mount", "mv", "nsenter", "ps", "readlink", "rm"),
    *("setpriv", "sh", "sleep", "stat", "tail", "timeout", "touch", "true", "umount", "unshare"),
)
_MAKING = threading.Lock()
_COMMAND = ["/bin/sleep", "infinity"]
_FOLDERS = ("dev", "etc", "proc", "root", "run", "sys", "tmp", "usr", "usr/local/bin", "var")
_USERS = "root:x:0:0:root:/root:/bin/sh\nsomebody:x:1000:1000::/tmp:/bin/sh\n"
_GROUPS = "root:x:0:\nsomebody:x:1000:\n"
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
    # The first process of a container ignores SIGTERM, unless it expects it: why wait for it.
    settings = {"Env": [_PATH], "Cmd": _COMMAND, "WorkingDir": "/", "StopSignal": "SIGKILL"}
    return image_archive.packed(NAME, _layer(), settings)


def _layer() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for folder in _FOLDERS:
            image_archive.add(
                tar, folder, mode=0o1777 if folder == "tmp" else 0o755, kind=tarfile.DIRTYPE
            )
        for link in ("bin", "sbin", "lib", "lib64"):
            image_archive.add(tar, link, kind=tarfile.SYMTYPE, link=f"usr/{link}")
        image_archive.add(tar, "etc/passwd", _USERS.encode())
        image_archive.add(tar, "etc/group", _GROUPS.encode())
        image_archive.add(tar, "usr/bin/gpu", _client(), mode=0o755)
        for path in sorted({*_glibc(), *(path for name in _PROGRAMS for path in _files(name))}):
            image_archive.add(tar, str(_resolved(path)).lstrip("/"), path.read_bytes(), mode=0o755)
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


def _glibc() -> list[Path]:
    """What comes with every glibc: a library that is put into containers may need any of it."""
    places = [Path(libraries_folder(), name) for name in symbols.EVERYWHERE]
    return [path for path in places if path.exists()]


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
