"""Driver files: what NVIDIA's own CDI specification on the node says a container needs.

A container that uses a card needs the driver's libraries, which must be the host's. Where NVIDIA's
container runtime is in use it brings them, by NVIDIA_VISIBLE_DEVICES. Where it is not, the
administrator has run ``nvidia-ctk cdi generate``, and its edits for a card are taken over: the
device nodes, the mounts and the hooks, as they are there, for that card alone.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from partage.agent.containers import cdi
from partage.core import cards, errors

log = logging.getLogger(__name__)

KIND = "nvidia.com/gpu"
_LARGEST = 8 << 20  # bytes; nvidia-ctk writes some 20 kB
_VISIBLE = "NVIDIA_VISIBLE_DEVICES="
_SUFFIXES = (".yaml", ".yml", ".json")
_FILE = re.compile(r"/dev/nvidia[0-9]+")


class Device(msgspec.Struct, frozen=True, rename="camel"):
    """One device of a specification."""

    name: str = ""
    container_edits: cdi.Edits = cdi.Edits()


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    """A specification, as far as it matters here."""

    kind: str = ""
    devices: tuple[Device, ...] = ()
    container_edits: cdi.Edits = cdi.Edits()


class DriverFiles:
    """The specifications in some folders; they are read again when they change.

    Where they are ``optional`` and there is none, NVIDIA's runtime brings the files. Which of the
    two it is may change while the agent runs: a driver can come later, and its specification then.
    """

    def __init__(self, folders: Sequence[Path], *, optional: bool = False) -> None:
        self._folders = folders
        self._optional = optional
        self._read: dict[Path, tuple[tuple[int, int], Spec]] = {}

    def present(self) -> bool:
        """Whether NVIDIA's specification is on this node at all."""
        return any(True for _ in self._specs())

    def edits(self, granted: Iterable[cards.Card]) -> cdi.Edits:
        """What the cards' containers need, each card named by its uuid or its index."""
        if self._optional and not self.present():
            return cdi.Edits()
        common: list[cdi.Edits] = []  # of each specification, once
        own = cdi.Edits()
        for card in granted:
            spec, device = self._device(card)
            own += device.container_edits
            if spec.container_edits not in common:
                common.append(spec.container_edits)
        total = sum(common, cdi.Edits()) + own
        # Theirs says "void", to keep NVIDIA's runtime out; the grant says which cards there are.
        env = tuple(variable for variable in total.env if not variable.startswith(_VISIBLE))
        return msgspec.structs.replace(total, env=env)

    def _device(self, card: cards.Card) -> tuple[Spec, Device]:
        for name in (card.uuid, str(card.index)):
            for spec in self._specs():
                for device in spec.devices:
                    if device.name == name and _has_file(device, card):
                        return spec, device
        folders = ", ".join(map(str, self._folders))
        raise errors.FenceError(
            f"NVIDIA's CDI specification ({folders}) does not have card {card.uuid}",
            instead="run `nvidia-ctk cdi generate` again on the node, or use NVIDIA's runtime",
        )

    def _specs(self) -> Iterator[Spec]:
        for folder in self._folders:
            for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                if path.suffix in _SUFFIXES and not cdi.is_ours(path):
                    with contextlib.suppress(OSError):
                        spec = self._spec(path)
                        if spec.kind == KIND:
                            yield spec

    def _spec(self, path: Path) -> Spec:
        status = path.stat()
        stamp = (status.st_mtime_ns, status.st_ino)
        parsed = self._read.get(path)
        if parsed is None or parsed[0] != stamp:
            parsed = self._read[path] = (stamp, _parsed(path))
        return parsed[1]


def _has_file(device: Device, card: cards.Card) -> bool:
    """False for the device file of another card: indexes may have moved since it was written."""
    files = [
        node.path for node in device.container_edits.device_nodes if _FILE.fullmatch(node.path)
    ]
    return card.minor is None or not files or f"/dev/nvidia{card.minor}" in files


def _parsed(path: Path) -> Spec:
    """A file of others that cannot be read counts as one about something else."""
    with path.open("rb") as file:
        content = file.read(_LARGEST)
    try:
        if path.suffix == ".json":
            return msgspec.json.decode(content, type=Spec)
        return msgspec.yaml.decode(content, type=Spec)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        log.warning("%s cannot be read as a CDI specification: %s", path, str(error)[:200])
        return Spec()
