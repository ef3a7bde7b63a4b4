"""Containers: those of one node, asked for past kubelet and the API server, through containerd.

``ctr`` starts in a few hundredths of a second, so tests can look into many containers; ``kubectl
exec`` takes several times as long.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

from cluster import images, processes

_NAMESPACE = "k8s.io"  # of containerd, in which kubelet's containers are
_SHIM = "containerd-shim-runc-v2"
_DEPRECATION = 'msg="DEPRECATION: '
_PATIENCE_SECONDS = 120


class Containers:
    """The containers of the containerd that listens on a socket."""

    def __init__(self, programs: Path, socket: Path) -> None:
        self._ctr = programs / "ctr"
        self._socket = socket

    def is_there(self) -> bool:
        """Whether containerd answers."""
        return self._call("version").returncode == 0

    def import_image(self) -> None:
        """Have the image that tests run."""
        archive = self._socket.with_name("image.tar")
        images.write(archive)
        done = self._call("images", "import", "--local", str(archive))
        archive.unlink()
        if done.returncode:
            raise processes.ProgramFailed(f"containerd refuses the image: {done.stderr}")

    def running(self) -> list[str]:
        """The IDs of containers and pods' sandboxes that run.

        Those that have ended are not listed, nor those that stopped and were left behind, as a
        kubelet does that is killed in the middle; it forgets them a minute later, or never.
        """
        rows = [row.split() for row in self._call("tasks", "list").stdout.splitlines()[1:]]
        return [name for name, _pid, status in rows if status != "STOPPED"]

    def exec(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, with its environment, and wait for its end."""
        fifos = f"--fifo-dir={self._socket.with_name('fifos')}"
        name = f"--exec-id={uuid.uuid4().hex}"
        return self._call("tasks", "exec", fifos, name, container, *command)

    def shim(self, pod_uid: str) -> int | None:
        """The process between containerd and the containers of a pod."""
        for shim in self._shims():
            if any(_is_of_pod(child, pod_uid) for child in processes.children(shim)):
                return shim
        return None

    def _shims(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            words = processes.command_line(int(entry.name)) if entry.name.isdigit() else ""
            if _SHIM in words and str(self._socket) in words:
                yield int(entry.name)

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [self._ctr, "--address", self._socket]
        done = subprocess.run(
            [*command, "--namespace", _NAMESPACE, *arguments],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
        )
        # What ctr itself has to say about the machine is not what the command said.
        said = done.stderr.splitlines(keepends=True)
        done.stderr = "".join(line for line in said if _DEPRECATION not in line)
        return done


def log_text(folder: Path) -> str:
    """What the present or last run of a container wrote, out of its folder of logs."""
    runs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
    lines = runs[-1].read_text().splitlines() if runs else []
    return "".join(map(_unframed, lines))


def _is_of_pod(pid: int, pod_uid: str) -> bool:
    try:
        return f"pod{pod_uid}" in Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _unframed(line: str) -> str:
    """Without what the runtime puts before it: the time, the stream, and whether it is whole."""
    _, _, whole, text = line.split(" ", 3)
    return text + ("\n" if whole == "F" else "")
