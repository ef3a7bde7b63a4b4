"""A release is made of a commit whose version and change log go together, and of nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from release import __main__ as command_line
from release import checkout

VERSION = "0.2.0"
RELEASED = f"# Changelog\n\n## [Unreleased]\n\n## [{VERSION}] - 2026-12-01\n\n### Added\n\n- All.\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout that is ready, as far as it is looked at."""
    (tmp_path / "changelog.d").mkdir()
    (tmp_path / "changelog.d/README.md").write_text("How to write them.")
    (tmp_path / "CHANGELOG.md").write_text(RELEASED)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    """Run git, with nobody's settings."""
    name = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *name, *arguments], cwd=root, check=True, capture_output=True)


def commit(root: Path) -> None:
    """Commit all that is there."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "--message", "All")


def told(root: Path, version: str = VERSION) -> str:
    """What it lacks, as one text."""
    return "\n".join(checkout.problems(root, version))


def test_a_commit_with_its_section_is_ready(root: Path) -> None:
    """Also if its tag is there already, as when a release is made again and compared."""
    assert told(root) == ""
    git(root, "tag", f"v{VERSION}")
    assert told(root) == ""


def test_changes_are_named(root: Path) -> None:
    """Files that git does not know would get into the sources, too."""
    (root / "new.py").touch()
    (root / "CHANGELOG.md").write_text(f"{RELEASED}\n")
    assert "in no commit: CHANGELOG.md, new.py; commit them" in told(root)


def test_a_version_that_was_released_of_another_commit_is_not_released_again(root: Path) -> None:
    """Two files of one name with other contents would be out there."""
    git(root, "tag", f"v{VERSION}")
    commit(root)
    assert f"has the tag v{VERSION}: change __version__" in told(root)


def test_a_version_needs_its_section(root: Path) -> None:
    """With the command that makes it."""
    said = told(root, "0.3.0")
    assert "no section of 0.3.0" in said
    assert "python -m release.change_log --release DATE" in said


def test_fragments_that_are_left_are_named(root: Path) -> None:
    """They are of changes that are in the release, and that its change log does not tell."""
    (root / "changelog.d/more.added.md").write_text("More.")
    commit(root)
    assert "more.added.md" in told(root)


def test_a_fragment_of_no_kind_is_told_and_no_traceback(root: Path) -> None:
    """As by the command that moves them."""
    (root / "changelog.d/more.feature.md").write_text("More.")
    commit(root)
    assert "more.feature.md: a fragment is called" in told(root)


@pytest.mark.parametrize("version", ["1.0", "1.0.0rc1", "1.0.0-rc1", "v1.0.0"])
def test_a_version_is_three_numbers(root: Path, version: str) -> None:
    """Python and Helm write what comes behind these in different ways."""
    assert f"the version {version} is not three numbers" in told(root, version)


def test_a_release_is_refused_with_all_that_is_missing(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Before anything is made, and with what can be made all the same."""
    monkeypatch.setattr(command_line, "_ROOT", root)
    (root / "new.py").touch()
    answer = CliRunner().invoke(command_line.main, ["--output", str(tmp_path / "dist")])
    assert answer.exit_code == 1
    assert "- there are changes that are in no commit: new.py" in answer.output
    assert "make release ARGS=--trial" in answer.output
    assert not (tmp_path / "dist").exists()


def test_a_check_of_nothing_says_what_makes_it(tmp_path: Path) -> None:
    """And that nothing was checked."""
    answer = CliRunner().invoke(command_line.main, ["--check", "--output", str(tmp_path)])
    assert answer.exit_code == 1
    assert "there is no release in" in answer.output
