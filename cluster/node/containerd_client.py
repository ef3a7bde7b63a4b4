"""Containerd's client: the containers of one node, past kubelet and the API server.

``ctr`` starts in a few hundredths of a second, so tests can look into many containers; ``kubectl
exec`` takes several times as long.
"""

from __future__ import annotations

import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from cluster import child_processes
from cluster.node import container_image

_NAMESPACE = "k8s.io"  # of containerd, in which kubelet's containers are
_SHIM = "containerd-shim-runc-v2"
_DEPRECATION = 'msg="DEPRECATION: '
_PATIENCE_SECONDS = 120
# ctr forgets what it has not read yet when the process ends. So the process stays until both of its
# streams were read up to their ends, which it marks.
_MARK = "-end-of-output-"
_MARKED = f"""
"$@" </dev/null
code=$?
printf %s {_MARK}
printf %s {_MARK} >&2
read -r _
exit $code
"""


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
        container_image.write(archive)
        self.import_archive(archive)
        archive.unlink()

    def import_archive(self, archive: Path, *, name: str = "") -> None:
        """Have another image, under the name that is in its archive, or under this one as well."""
        named = [f"--index-name={name}"] if name else []
        done = self._call("images", "import", "--local", *named, str(archive))
        if done.returncode:
            raise child_processes.ProgramFailed(f"containerd refuses the image: {done.stderr}")

    def running(self) -> list[str]:
        """The IDs of containers and pods' sandboxes that run.

        Those that have ended are not listed, nor those that stopped and were left behind, as a
        kubelet does that is killed in the middle; it forgets them a minute later, or never.
        """
        rows = [row.split() for row in self._call("tasks", "list").stdout.splitlines()[1:]]
        return [name for name, _pid, status in rows if status != "STOPPED"]

    def sandbox(self, pod_uid: str) -> str:
        """The ID of a pod's sandbox that runs; empty if none does."""
        labels = {"io.kubernetes.pod.uid": pod_uid, "io.cri-containerd.kind": "sandbox"}
        those = ",".join(f'labels."{label}"=={value}' for label, value in labels.items())
        of_pod = self._call("containers", "list", "--quiet", those).stdout.split()
        return next(iter({*of_pod}.intersection(self.running())), "")

    def exec(self, container: str, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in a container, with its environment, and wait for its end."""
        fifos = f"--fifo-dir={self._socket.with_name('fifos')}"
        name = f"--exec-id={uuid.uuid4().hex}"
        marked = ("sh", "-c", _MARKED, "sh", *command)
        arguments = self._command("tasks", "exec", fifos, name, container, *marked)
        with subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        ) as running:
            return _read(running)

    def shim(self, pod_uid: str) -> int | None:
        """The process between containerd and the containers of a pod."""
        for shim in self._shims():
            if any(_is_of_pod(child, pod_uid) for child in child_processes.children(shim)):
                return shim
        return None

    def _shims(self) -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            words = child_processes.command_line(int(entry.name)) if entry.name.isdigit() else ""
            if _SHIM in words and str(self._socket) in words:
                yield int(entry.name)

    def _call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._command(*arguments),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            timeout=_PATIENCE_SECONDS,
        )
        done.stderr = _of_command(done.stderr)
        return done

    def _command(self, *arguments: str) -> list[str | Path]:
        return [self._ctr, "--address", self._socket, "--namespace", _NAMESPACE, *arguments]


def log_text(folder: Path) -> str:
    """What the present or last run of a container wrote, out of its folder of logs."""
    runs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
    lines = runs[-1].read_text().splitlines() if runs else []
    return "".join(map(_unframed, lines))


def _read(running: subprocess.Popen[bytes]) -> subprocess.CompletedProcess[str]:
    """All that a marked command says, and how it ended."""
    assert running.stdout is not None
    assert running.stderr is not None
    out, err = _Stream(running.stdout), _Stream(running.stderr)
    try:
        out.join(_PATIENCE_SECONDS)
        err.join(_PATIENCE_SECONDS)
        running.communicate(b"\n", timeout=_PATIENCE_SECONDS)
    except BaseException:
        running.kill()
        raise
    said = (out.text, _of_command(err.text))
    return subprocess.CompletedProcess(running.args, running.returncode, *said)


class _Stream(threading.Thread):
    """Reads a stream up to the mark, or to its end if the process was ended before."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__(daemon=True)
        self._stream = stream
        self._said = b""
        self.start()

    def run(self) -> None:
        while piece := os.read(self._stream.fileno(), 1 << 16):
            self._said += piece
            if self._said.endswith(_MARK.encode()):
                return

    @property
    def text(self) -> str:
        """What was said, without the mark."""
        return self._said.decode().removesuffix(_MARK)


def _of_command(said: str) -> str:
    """Without what ctr itself has to say about the machine."""
    lines = said.splitlines(keepends=True)
    return "".join(line for line in lines if _DEPRECATION not in line)


def _is_of_pod(pid: int, pod_uid: str) -> bool:
    try:
        return f"pod{pod_uid}" in Path(f"/proc/{pid}/cgroup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _unframed(line: str) -> str:
    """Without what the runtime puts before it: the time, the stream, and whether it is whole."""
    _, _, whole, text = line.split(" ", 3)
    return text + ("\n" if whole == "F" else "")
