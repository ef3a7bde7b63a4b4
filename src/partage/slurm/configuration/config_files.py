"""Configuration files of Slurm on a disk: found, read within bounds, and their includes followed.

Others write these files, and a mistake in them must not stop the one who looks for mistakes: what
cannot be read is a finding beside the statements that can.
"""

from __future__ import annotations

import glob
import itertools
import os
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from partage.slurm.configuration import findings, statements

_MOST_BYTES = 8 << 20  # of one file
_MOST_FILES = 200  # that one file includes, directly or not
_MOST_STATEMENTS = 50_000  # of one file and what it includes
_DEEPEST = 8  # includes within includes
GRES, CGROUP, PLUGSTACK = "gres.conf", "cgroup.conf", "plugstack.conf"
_BESIDE = (GRES, CGROUP, PLUGSTACK)


class Configuration(msgspec.Struct, frozen=True):
    """The four files that matter here; one that is missing has no statements."""

    slurm: statements.Document
    gres: statements.Document
    cgroup: statements.Document
    plugstack: statements.Document
    findings: tuple[findings.Finding, ...] = ()  # what could not be read


def read(main: Path, beside: Collection[str] = _BESIDE) -> Configuration:
    """slurm.conf and what stands beside it; nothing raises."""
    results: list[findings.Finding] = []
    documents = []
    for path in (main, *(main.with_name(name) for name in _BESIDE)):
        if path != main and path.name not in beside:
            documents.append(statements.Document(str(path)))
            continue
        reader = _Reader(main.parent)
        documents.append(reader.document(path, optional=path != main))
        results.extend(reader.findings)
    slurm, gres, cgroup, plugstack = documents
    return Configuration(slurm, gres, cgroup, plugstack, tuple(results))


class _Reader:
    """Reads one file and what it includes."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files = 0
        self.findings: list[findings.Finding] = []

    def document(self, path: Path, *, optional: bool) -> statements.Document:
        if optional and not os.path.lexists(path):
            return statements.Document(str(path))
        read = [*itertools.islice(self._statements(path, (), None), _MOST_STATEMENTS + 1)]
        if len(read) > _MOST_STATEMENTS:
            text = f"there are more than {_MOST_STATEMENTS} lines, and the rest was not read"
            self._report(statements.Place(str(path)), text, "write lists such as n[1-500]")
        return statements.Document(str(path), tuple(read[:_MOST_STATEMENTS]))

    def _statements(
        self, path: Path, above: tuple[str, ...], named: statements.Place | None
    ) -> Iterator[statements.Statement]:
        """``above`` are the files that lead here, ``named`` is where this one is included."""
        where = named or statements.Place(str(path))
        trouble = self._refusal(path, above)
        if trouble:
            self._report(where, *trouble)
            return
        for statement in statements.of_text(str(path), self._text(path, where)):
            if statement.included is None:
                yield statement
                continue
            for target in self._targets(statement.included):
                yield from self._statements(target, (*above, _real(path)), statement.place)

    def _refusal(self, path: Path, above: tuple[str, ...]) -> tuple[str, str] | None:
        self._files += 1
        if _real(path) in above:
            return f"{path} includes itself", "remove this line"
        if len(above) > _DEEPEST:
            return f"{path} is included {len(above)} files deep", "include it in slurm.conf itself"
        if self._files > _MOST_FILES:
            return f"more than {_MOST_FILES} files are included", "put them together"
        return None

    def _targets(self, pattern: str) -> list[Path]:
        """One file, or all that a pattern matches."""
        if not set("*?[") & set(pattern):
            return [self._place / pattern]
        matches = glob.iglob(str(self._place / pattern))  # noqa: PTH207 (of any place)
        return sorted(map(Path, itertools.islice(matches, _MOST_FILES + 1)))

    def _text(self, path: Path, where: statements.Place) -> str:
        try:
            return _contents(path)
        except FileNotFoundError:
            self._report(where, f"there is no file {path}", "write it, or name its folder: --conf")
        except OSError as error:
            reason = error.strerror or str(error)
            denied = isinstance(error, PermissionError)
            remedy = "run this as root" if denied else "write a file there, or name another: --conf"
            self._report(where, f"{path} cannot be read ({reason})", remedy)
        except ValueError as error:
            self._report(where, f"{path} {error}", "write it anew")
        return ""

    def _report(self, where: statements.Place, text: str, remedy: str) -> None:
        if len(self.findings) < _MOST_FILES:
            self.findings.append(findings.problem("unreadable", where, text, remedy))


def _real(path: Path) -> str:
    """Without links; a loop of links is told when the file is opened."""
    return os.path.realpath(path)


def _contents(path: Path) -> str:
    """The text of a regular file; opening does not wait, whatever else it is."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("is not a regular file")
        contents = file.read(_MOST_BYTES + 1)
    if len(contents) > _MOST_BYTES:
        raise ValueError(f"has more than {_MOST_BYTES >> 20} MiB")
    if b"\0" in contents:
        raise ValueError("is not text")
    return contents.decode(errors="replace")
