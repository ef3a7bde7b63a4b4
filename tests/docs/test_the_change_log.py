"""The change log of a release is made of the fragments, and says all of them once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs import blocks

LOG = "# Changelog\n\nWords.\n\n## [Unreleased]\n"


def _tree(folder: Path) -> Path:
    """A checkout, as far as the script looks at it."""
    (folder / "changelog.d").mkdir()
    (folder / "src/partage").mkdir(parents=True)
    (folder / "src/partage/__init__.py").write_text('__version__ = "0.2.0"\n')
    (folder / "CHANGELOG.md").write_text(LOG)
    _fragment(folder, "README.md", "How to write them.")
    _fragment(folder, "b.fixed.md", "A pod in\ntwo lines.\n")
    _fragment(folder, "a.added.md", "`partage new`.")
    return folder


def _fragment(folder: Path, name: str, text: str) -> None:
    (folder / "changelog.d" / name).write_text(text)


def _run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "release.change_log", "--folder", str(folder), *options]
    return subprocess.run(command, cwd=blocks.ROOT, capture_output=True, text=True, check=False)


def test_a_release_moves_the_fragments_under_its_heading(tmp_path: Path) -> None:
    """By kind, one line each; the next one begins with none."""
    folder = _tree(tmp_path)
    assert _run(folder, "--release", "2026-12-01").returncode == 0
    section = "## [0.2.0] - 2026-12-01\n\n### Added\n\n- `partage new`.\n\n"
    section += "### Fixed\n\n- A pod in two lines.\n"
    log = (folder / "CHANGELOG.md").read_text()
    assert log.rstrip("\n") + "\n" == f"{LOG}\n{section}"
    assert [path.name for path in (folder / "changelog.d").iterdir()] == ["README.md"]


def test_nothing_is_changed_while_one_only_looks(tmp_path: Path) -> None:
    """What will be said is printed."""
    folder = _tree(tmp_path)
    assert "- A pod in two lines." in _run(folder).stdout
    assert (folder / "CHANGELOG.md").read_text() == LOG


def test_a_version_is_released_once(tmp_path: Path) -> None:
    """The fragments stay where they are."""
    folder = _tree(tmp_path)
    _run(folder, "--release", "2026-12-01")
    _fragment(folder, "c.added.md", "More.")
    done = _run(folder, "--release", "2026-12-02")
    assert done.returncode == 1
    assert "0.2.0 already: change __version__ first" in done.stderr
    assert (folder / "changelog.d/c.added.md").exists()


def test_a_fragment_of_no_kind_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    """Otherwise it would be forgotten."""
    folder = _tree(tmp_path)
    _fragment(folder, "c.feature.md", "More.")
    done = _run(folder, "--release", "2026-12-01")
    assert done.returncode == 1
    assert "c.feature.md: a fragment is called" in done.stderr
    assert (folder / "CHANGELOG.md").read_text() == LOG


def test_the_fragments_of_this_checkout_can_be_read() -> None:
    """Each of them is in what the next version will say."""
    done = _run(blocks.ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    count = len(list((blocks.ROOT / "changelog.d").glob("*.*.md")))
    assert done.stdout.count("\n- ") == count
