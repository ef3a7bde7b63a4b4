"""The release before: image and chart of an earlier commit, for tests of an upgrade.

It is the newest commit whose image or chart is not that of this checkout: with changes that are not
committed the last one, else the one before the last change. Its own code makes its image, of what
is in the cache already, so that it takes seconds, once for each commit.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import msgspec

from cluster import locks, progress
from image import cache, settings

_CHART = Path("deploy") / "chart" / "partage"
# All that an image and a chart are made of.
_INPUTS = (
    *("LICENSE", "README.md", "hatch_build.py", "image", "native", "pyproject.toml"),
    *("requirements", "src", str(_CHART)),
)
_BUILDER = "image/__main__.py"
_UNUSED_SECONDS = 7 * 24 * 3600


class NoEarlier(Exception):
    """There is no earlier release here; the text says why."""


class Release(msgspec.Struct, frozen=True):
    """An image, and the sources that it was made of."""

    commit: str
    archive: Path
    sources: Path

    @property
    def chart(self) -> Path:
        """That goes with it."""
        return self.sources / _CHART

    @property
    def repository(self) -> str:
        """What the image is called on a node; its own name is that of the present one, too."""
        return "localhost/partage-before"

    @property
    def tag(self) -> str:
        return self.commit[:12]


def ensure() -> Release:
    """The release, made if need be."""
    machine = settings.this_machine()
    if machine is None:
        raise NoEarlier("there is no image for this kind of machine")
    commit = _commit()
    releases = cache.root() / "image" / "releases"
    shown = progress.Progress("image")
    with locks.exclusive(releases / "lock", on_wait=lambda: shown.note("waiting for another")):
        shown.note(f"the release before this one is commit {commit[:12]}")
        made = cache.made(releases / commit, lambda folder: _make(commit, machine.name, folder))
        kept = (folder for folder in releases.iterdir() if folder.is_dir())
        cache.forget(kept, unused_since=time.time() - _UNUSED_SECONDS)
    (archive,) = (made / "dist").glob("*-image.tar")
    return Release(commit, archive, made)


def _commit() -> str:
    """The newest commit with another image or another chart."""
    top = Path(_git("rev-parse", "--show-toplevel").strip()).resolve()
    if top != settings.CHECKOUT.resolve():
        raise NoEarlier(f"{settings.CHECKOUT} is not the checkout of a repository")
    if _git("status", "--porcelain", "--", *_INPUTS):
        commit = "HEAD"
    else:
        commit = _git("rev-list", "-1", "HEAD", "--", *_INPUTS).strip() + "^"
    name = _git("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").strip()
    for path in (_BUILDER, str(_CHART / "Chart.yaml")):
        _git("cat-file", "-e", f"{name}:{path}")
    return name


def _make(commit: str, machine: str, folder: Path) -> None:
    """Take the sources out of the repository, and let them make their image."""
    archive = _run("git", "archive", commit, "--", *_INPUTS)
    with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
        sources.extractall(folder, filter="data")
    (folder / ".venv-release").symlink_to(settings.CHECKOUT / ".venv-release")
    words = [sys.executable, "-m", "image", "--machine", machine, "--output", "dist"]
    environment = {"PYTHONPATH": str(folder / "src"), "PARTAGE_CACHE": str(cache.root())}
    _run(*words, folder=folder, environment=environment)


def _git(*words: str) -> str:
    # Root may look at the checkout of another user.
    return _run("git", "-c", f"safe.directory={settings.CHECKOUT}", *words).decode()


def _run(
    *words: str, folder: Path = settings.CHECKOUT, environment: dict[str, str] | None = None
) -> bytes:
    """What a program prints; NoEarlier if it fails."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=os.environ | (environment or {}),
            capture_output=True,
            check=False,
        )
    except FileNotFoundError as error:
        raise NoEarlier(f"there is no {words[0]} here") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise NoEarlier(f"{' '.join(words)} fails in {folder}: {said or 'it says nothing'}")
    return done.stdout
