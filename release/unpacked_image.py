"""The image, unpacked from its archive as a container runtime does it, and its programs run in it.

A program sees the image as its root folder, is the image's user, and has neither network nor
processes beside it. Of a container it lacks the limits, which real nodes test. That takes `unshare`
of util-linux, and for another kind of machine an emulator.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from image import manifests, settings
from release import programs
from release.errors import LeftOut, Wrong

_EMULATOR = "qemu-aarch64-static"  # linked statically, so that it runs in the image's place
_INSIDE = "emulator"


class UnpackedImage:
    """The image for one machine, in a folder."""

    def __init__(self, archive: Path, machine: settings.Machine, root: Path) -> None:
        self._root = root
        self._emulator = _emulator(machine)
        with tarfile.open(archive) as tar:
            manifest = _manifest(tar, machine)
            self.settings: Mapping[str, Any] = _json(tar, manifest["config"])["config"]
            for layer in manifest["layers"]:
                _unpack(_blob(tar, layer), root)
        root.chmod(0o755)  # a temporary folder is its owner's alone
        if self._emulator:
            shutil.copy(self._emulator, root / _INSIDE)

    def run(self, *words: str) -> str:
        """What a program of the image prints."""
        environment = dict(line.split("=", 1) for line in self.settings["Env"])
        emulate = [f"/{_INSIDE}"] if self._emulator else []
        command = [*_isolated(self._root), *emulate, *words]
        return programs.run(command, folder=self._root, environment=environment)


def _isolated(root: Path) -> Sequence[str]:
    user = str(settings.USER)
    if os.geteuid() == 0:
        become = ["--setuid", user, "--setgid", user]
    else:
        become = ["--user", f"--map-user={user}", f"--map-group={user}"]
    alone = ["--mount", "--net", "--pid", "--fork", "--mount-proc"]
    return [shutil.which("unshare") or "unshare", *alone, *become, f"--root={root}", "--wd=/"]


def _emulator(machine: settings.Machine) -> str:
    if machine == settings.this_machine():
        return ""
    if machine == settings.ARM64 and (program := shutil.which(_EMULATOR)):
        return program
    raise LeftOut(f"programs for {machine.name} do not run here: there is no {_EMULATOR}")


def _manifest(tar: tarfile.TarFile, machine: settings.Machine) -> Mapping[str, Any]:
    (index,) = json.loads(_read(tar, "index.json"))["manifests"]
    for entry in _json(tar, index)["manifests"]:
        if entry["platform"]["architecture"] == machine.name:
            return _json(tar, entry)
    raise Wrong(f"the archive has no image for {machine.name}")


def _unpack(layer: bytes, root: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(layer))) as tar:
        tar.extractall(root, filter="tar")


def _json(tar: tarfile.TarFile, entry: Mapping[str, Any]) -> Mapping[str, Any]:
    made: Mapping[str, Any] = json.loads(_blob(tar, entry))
    return made


def _blob(tar: tarfile.TarFile, entry: Mapping[str, Any]) -> bytes:
    return _read(tar, manifests.path(entry["digest"]))


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    if stream is None:
        raise KeyError(name)
    return stream.read()
