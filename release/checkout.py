"""The checkout that a release is made of: what it lacks for that."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from release import change_log, programs

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_SHOWN = 5


def problems(root: Path, version: str) -> Iterator[str]:
    """Why no release of this version can be made of it; nothing if one can."""
    if not _VERSION.fullmatch(version):
        yield f"the version {version} is not three numbers, which Python and Helm both read"
    yield from _changes(root)
    yield from _other_release(root, version)
    yield from _log(root, version)


def commit(root: Path) -> str:
    """The commit that is checked out."""
    return _git(root, "rev-parse", "HEAD").strip()


def _changes(root: Path) -> Iterator[str]:
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        names = ", ".join(line[3:] for line in changed[:_SHOWN])
        yield f"there are changes that are in no commit: {names}{more}; commit them first"


def _other_release(root: Path, version: str) -> Iterator[str]:
    tag = f"v{version}"
    if not _git(root, "tag", "--list", tag):
        return
    tagged = _git(root, "rev-list", "-n1", tag).strip()
    if tagged != commit(root):
        yield (
            f"{version} was released of commit {tagged[:12]}, which has the tag {tag}: change "
            "__version__ in src/partage/__init__.py"
        )


def _log(root: Path, version: str) -> Iterator[str]:
    try:
        waiting = change_log.fragments(root / change_log.FRAGMENTS)
        present = change_log.of_version((root / change_log.LOG).read_text(), version)
    except change_log.Problem as problem:
        yield f"the change log: {problem}"
        return
    command = "`.venv/bin/python -m release.change_log --release DATE`"
    if not present:
        yield f"{change_log.LOG} has no section of {version}: {command} makes it, from fragments"
    elif waiting:
        names = ", ".join(path.name for path in list(waiting)[:_SHOWN])
        yield (
            f"{change_log.LOG} has a section of {version}, and {change_log.FRAGMENTS} has changes "
            f"that it lacks: {names}. Change __version__, or move them into the section"
        )


def _git(root: Path, *arguments: str) -> str:
    return programs.run(["git", *arguments], folder=root)
