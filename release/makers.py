"""Makers: what makes each part of a release, all of it with the tools that the project has for it.

Equal sources give equal files: the wheels, the source archive, the image and the chart do not know
when or where they were made. So whoever doubts a release makes it again, and compares checksums.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from cluster.chart import helm, plain_manifests
from release import change_log, programs
from release.contents import Contents
from release.errors import CannotRelease

_HATCHLING = Path(".venv-release/bin/hatchling")


def wheels(root: Path, contents: Contents) -> None:
    """A wheel for each machine, checked for what it needs of old systems."""
    programs.run(["scripts/wheels", contents.folder], folder=root)


def sources(root: Path, contents: Contents) -> None:
    """The source archive."""
    build = ["build", "--target", "sdist", "--directory", str(contents.folder)]
    programs.run([str(root / _HATCHLING), *build], folder=root)


def wheel_of(root: Path, sources_folder: Path, machine: str, folder: Path) -> Path:
    """A wheel made of unpacked sources, with the release compiler of the checkout."""
    environment = programs.clean_environment(folder, PARTAGE_RELEASE_FOR=machine)
    build = ["build", "--target", "wheel", "--directory", str(folder)]
    programs.run([str(root / _HATCHLING), *build], folder=sources_folder, environment=environment)
    (made,) = folder.glob("*.whl")
    return made


def image(root: Path, contents: Contents) -> None:
    """The image's archive, and what it is made of."""
    with tempfile.TemporaryDirectory(dir=contents.folder) as scratch:
        programs.run([sys.executable, "-m", "image", "--output", scratch], folder=root)
        for path in (contents.image, *contents.bills.values()):
            (Path(scratch) / path.name).rename(path)


def chart(_root: Path, contents: Contents) -> None:
    """The chart, as Helm packs it."""
    helm.run("package", helm.CHART, "--destination", contents.folder)


def manifests(_root: Path, contents: Contents) -> None:
    """The plain manifests, which have to be what the chart renders."""
    if old := plain_manifests.outdated():
        names = ", ".join(path.name for path in old)
        raise CannotRelease(f"{names} are not what the chart renders: run `make manifests`")
    _copy(plain_manifests.FOLDER, contents.manifests)


def values(_root: Path, contents: Contents) -> None:
    """The chart's values for clusters of others."""
    _copy(helm.CHART.parent / "clusters", contents.values)


def notes(root: Path, contents: Contents) -> None:
    """What the change log says of the version, or will say."""
    said = change_log.of_version((root / change_log.LOG).read_text(), contents.version)
    if not said:
        waiting = change_log.fragments(root / change_log.FRAGMENTS)
        said = change_log.section(contents.version, "not released", waiting)
    contents.notes.write_text(said)


def sums(contents: Contents) -> None:
    """The checksums of all files, as sha256sum reads them."""
    lines = [f"{sha256(path)}  {path.relative_to(contents.folder)}\n" for path in contents.files()]
    contents.sums.write_text("".join(lines))


def sha256(path: Path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


PARTS = {
    "wheels": wheels,
    "sources": sources,
    "image": image,
    "chart": chart,
    "manifests": manifests,
    "values": values,
    "changes": notes,
}


def _copy(folder: Path, target: Path) -> None:
    target.mkdir()
    for path in sorted(folder.glob("*.yaml")):
        shutil.copyfile(path, target / path.name)
