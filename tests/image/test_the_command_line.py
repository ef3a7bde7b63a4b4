"""`python -m image`: what it says when something is missing."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from click.testing import CliRunner

from image import __main__ as command_line
from image import cache, errors, partage_wheel, settings


def test_help_has_examples() -> None:
    """Also of pinning again."""
    answer = CliRunner().invoke(command_line.main, ["--help"])
    assert answer.exit_code == 0
    assert "make image ARGS=--lock" in answer.output


def test_another_machine_is_refused_with_those_that_there_are() -> None:
    """Before anything is fetched."""
    answer = CliRunner().invoke(command_line.main, ["--machine", "riscv64"])
    assert answer.exit_code == 2
    assert "'amd64', 'arm64'" in answer.output


def test_a_missing_compiler_is_told(tmp_path: Path) -> None:
    """With the targets that install it."""
    with pytest.raises(errors.CannotMake, match=r"\.venv-release.*make wheels"):
        partage_wheel.make(settings.AMD64, tmp_path, checkout=tmp_path)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "there is no room left"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), "/x"),
    ],
    ids=["full", "forbidden"],
)
def test_a_disk_that_refuses_is_told_in_a_line(
    error: OSError, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the places that are written to."""
    monkeypatch.setenv("PARTAGE_CACHE", str(tmp_path))
    text = command_line._told(error)
    assert words in text
    assert str(tmp_path) in text


def test_what_is_killed_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    """A folder of the cache has its name when it is complete, and is made once."""
    folder, calls = tmp_path / "base-1", []

    def fail(unfinished: Path) -> None:
        (unfinished / "half").touch()
        raise errors.CannotMake("no")

    def fill(unfinished: Path) -> None:
        calls.append(unfinished)
        (unfinished / "whole").touch()

    with pytest.raises(errors.CannotMake):
        cache.made(folder, fail)
    assert list(tmp_path.iterdir()) == []
    for _ in range(2):
        assert [path.name for path in cache.made(folder, fill).iterdir()] == ["whole"]
    assert len(calls) == 1


def test_a_wheel_is_made_anew_when_what_it_is_made_of_changes(tmp_path: Path) -> None:
    """And for nothing else: bytecode and what was built are not part of it."""
    for name in ("LICENSE", "README.md", "hatch_build.py", "pyproject.toml"):
        (tmp_path / name).touch()
    for name in ("native", "requirements", "src/partage/lib", "src/partage/__pycache__"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "requirements" / "release.txt").touch()
    before = partage_wheel.checksum(tmp_path)
    (tmp_path / "src/partage/lib/libpartage.so").touch()
    (tmp_path / "src/partage/__pycache__/x.pyc").touch()
    assert partage_wheel.checksum(tmp_path) == before
    (tmp_path / "src/partage/x.py").touch()
    assert partage_wheel.checksum(tmp_path) != before
