"""Contents: the files of a release, by the names that they have in its folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from image import settings

SUMS = "SHA256SUMS"


class Contents(msgspec.Struct, frozen=True):
    """The folder of one version."""

    folder: Path
    version: str

    @property
    def wheels(self) -> dict[str, Path]:
        """The wheel for each machine, by Python's names of machines."""
        names = [machine.python for machine in settings.MACHINES]
        return {name: self._path(f"-py3-none-manylinux_2_17_{name}.whl") for name in names}

    @property
    def sources(self) -> Path:
        """The source archive."""
        return self._path(".tar.gz")

    @property
    def image(self) -> Path:
        """The archive of the image for all machines."""
        return self._path("-image.tar")

    @property
    def bills(self) -> dict[str, Path]:
        """What the image is made of, by Debian's names of machines."""
        return {
            machine.name: self._path(f"-{machine.name}.spdx.json") for machine in settings.MACHINES
        }

    @property
    def chart(self) -> Path:
        """The chart, as Helm packs it."""
        return self._path(".tgz")

    @property
    def manifests(self) -> Path:
        """The folder of plain manifests."""
        return self.folder / "manifests"

    @property
    def values(self) -> Path:
        """The folder of values of the chart, for clusters of others."""
        return self.folder / "values"

    @property
    def notes(self) -> Path:
        """What the change log says of this version."""
        return self.folder / "CHANGES.md"

    @property
    def sums(self) -> Path:
        """The checksums of all the others."""
        return self.folder / SUMS

    def files(self) -> Iterator[Path]:
        """All that is there, but for the checksums."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path != self.sums:
                yield path

    def _path(self, rest: str) -> Path:
        return self.folder / f"partage-{self.version}{rest}"
