"""Builds: an image out of packages, in two layers, of which the lower one seldom changes.

The lower layer has Debian's packages and the wheels that Partage needs, the upper one Partage. Both
are kept in the cache, by a checksum of what they are made of and of the code that makes them.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from image import (
    bytecode,
    cache,
    debian_lock,
    debian_packages,
    errors,
    files,
    layers,
    manifests,
    partage_wheel,
    python_packages,
    sbom,
    settings,
)
from image.files import File
from image.settings import Machine

_LAYER, _FACTS = "layer.tar.gz", "facts.json"


class Facts(msgspec.Struct, frozen=True):
    """What is known of a layer besides its bytes."""

    diff_id: str
    components: tuple[sbom.Component, ...]


class Build:
    """What builds have in common: the lock, the cache, and somebody who is told how far it is."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._lock = debian_lock.read()
        self._code = _code_checksum()

    def bundle(self, machines: Sequence[Machine]) -> manifests.Bundle:
        """The image for these machines."""
        images = [self._image(machine) for machine in machines]
        return manifests.bundle(images, self._lock.moment)

    def bill(self, machine: Machine) -> bytes:
        """What the image for a machine is made of, as SPDX."""
        components = [
            component
            for folder in (self._base(machine), self._partage(machine))
            for component in _facts(folder).components
        ]
        document = sbom.document(components, machine, self._lock.moment)
        return json.dumps(document, indent=1).encode() + b"\n"

    def sizes(self, machines: Iterable[Machine]) -> dict[str, int]:
        """How much a node pulls, by machine."""
        return {
            machine.name: sum(
                (folder / _LAYER).stat().st_size
                for folder in (self._base(machine), self._partage(machine))
            )
            for machine in machines
        }

    def _image(self, machine: Machine) -> manifests.Image:
        folders = (self._base(machine), self._partage(machine))
        stored = tuple(
            layers.Layer((folder / _LAYER).read_bytes(), _facts(folder).diff_id)
            for folder in folders
        )
        return manifests.Image(machine, stored, self.bill(machine))

    def _base(self, machine: Machine) -> Path:
        pins = self._pins(machine)
        packages = self._lock.packages_for(machine)
        name = f"base-{machine.name}-{cache.key(self._code, self._lock.day, packages, pins)}"
        return cache.made(self._folder / name, lambda folder: self._make_base(machine, folder))

    def _partage(self, machine: Machine) -> Path:
        packages = self._interpreter_packages(_builder())
        facts = (self._code, self._lock.day, packages, partage_wheel.checksum())
        name = f"partage-{machine.name}-{cache.key(*facts)}"
        return cache.made(self._folder / name, lambda folder: self._make_partage(machine, folder))

    def _make_base(self, machine: Machine, folder: Path) -> None:
        packages = self._lock.packages_for(machine)
        self._say(f"{machine.name}: fetching {len(packages)} Debian packages")
        debian_packages.fetch(packages, self._debs)
        wheels = self._wheels(machine)
        self._say(f"{machine.name}: making the layer of Debian and Python packages")
        contents = [*files.of_image(), *(f for wheel in wheels for f in files.of_wheel(wheel))]
        for package in packages:
            contents += files.of_debian(debian_packages.data(package, self._debs))
            control = debian_packages.control(package, self._debs)
            contents.append(files.of_debian_record(control, package.name))
        components = (*map(sbom.of_debian, packages), *map(_component, wheels))
        self._write(contents, components, folder)

    def _make_partage(self, machine: Machine, folder: Path) -> None:
        self._say(f"{machine.name}: making the wheel of Partage, and its layer")
        with tempfile.TemporaryDirectory() as scratch:
            partage_wheel.make(machine, Path(scratch))
            wheel = next(Path(scratch).glob("*.whl")).read_bytes()
        self._write([*files.of_wheel(wheel), *files.of_scripts(wheel)], [_component(wheel)], folder)

    def _write(
        self, contents: Iterable[File], components: Iterable[sbom.Component], folder: Path
    ) -> None:
        contents = files.merged(contents)
        contents = files.merged([*contents, *self._compiled(contents)])
        layer = layers.make(contents, self._lock.moment)
        (folder / _LAYER).write_bytes(layer.compressed)
        facts = Facts(layer.diff_id, tuple(components))
        (folder / _FACTS).write_bytes(msgspec.json.encode(facts))

    def _compiled(self, sources: Iterable[File]) -> list[File]:
        machine = _builder()
        packages = self._interpreter_packages(machine)
        debian_packages.fetch(packages, self._debs)
        unpacked = [
            file
            for package in packages
            for file in files.of_debian(debian_packages.data(package, self._debs))
        ]
        with tempfile.TemporaryDirectory() as scratch:
            return bytecode.Interpreter(Path(scratch), unpacked, machine).compiled(sources)

    def _interpreter_packages(self, machine: Machine) -> list[debian_lock.Package]:
        packages = self._lock.packages_for(machine)
        return [package for package in packages if package.name in debian_lock.INTERPRETER]

    def _wheels(self, machine: Machine) -> list[bytes]:
        pins = self._pins(machine)

        def fetch(folder: Path) -> None:
            self._say(f"{machine.name}: fetching {len(pins)} wheels")
            python_packages.fetch(pins, machine, folder)

        folder = cache.made(self._folder / f"wheels-{machine.name}-{cache.key(pins)}", fetch)
        return [path.read_bytes() for path in sorted(folder.iterdir())]

    def _pins(self, machine: Machine) -> tuple[python_packages.Pin, ...]:
        texts = [(settings.CHECKOUT / name).read_text() for name in settings.REQUIREMENTS]
        return python_packages.pins(texts, machine)

    @property
    def _debs(self) -> Path:
        return self._folder / "debian"


def _builder() -> Machine:
    machine = settings.this_machine()
    if machine is None:
        names = " and ".join(machine.python for machine in settings.MACHINES)
        raise errors.CannotMake(f"images are made on {names} alone: Python of the image runs")
    return machine


def _facts(folder: Path) -> Facts:
    return msgspec.json.decode((folder / _FACTS).read_bytes(), type=Facts)


def _component(wheel: bytes) -> sbom.Component:
    return sbom.of_python(files.metadata(wheel), hashlib.sha256(wheel).hexdigest())


def _code_checksum() -> str:
    modules = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"\0".join(module.read_bytes() for module in modules)).hexdigest()
