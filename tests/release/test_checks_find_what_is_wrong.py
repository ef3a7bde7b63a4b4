"""Checks of a release: each finds what it is there for. What is right is seen where it is made."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from release import checks, makers
from release.contents import Contents
from release.errors import CannotRelease, Wrong


@pytest.fixture
def contents(tmp_path: Path) -> Contents:
    """A folder with a file, and its checksum."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests/a.yaml").write_text("spec: {image: 'partage:0.1.0'}\n")
    made = Contents(tmp_path, "0.1.0")
    makers.sums(made)
    return made


def test_checksums_are_of_all_files(contents: Contents) -> None:
    """And sha256sum itself reads them."""
    assert checks.sums(contents) == "1 files"


def test_a_file_that_was_changed_is_found(contents: Contents) -> None:
    """With its name."""
    (contents.manifests / "a.yaml").write_text("changed\n")
    with pytest.raises(CannotRelease, match=r"manifests/a\.yaml: FAILED"):
        checks.sums(contents)


def test_a_file_without_a_checksum_is_found(contents: Contents) -> None:
    """Nobody could know where it comes from."""
    contents.notes.touch()
    with pytest.raises(Wrong, match=r"CHANGES\.md"):
        checks.sums(contents)


@pytest.mark.parametrize(
    "image", ["partage:0.0.9", "registry.example/partage:0.1.0", "partage@sha256:0"]
)
def test_an_image_of_another_version_is_found(contents: Contents, image: str) -> None:
    """Or of another name, wherever it stands in an object."""
    assert checks.manifests(contents) == "1 files with this version's image"
    text = f"spec: {{template: {{containers: [{{image: '{image}'}}]}}}}\n"
    (contents.manifests / "b.yaml").write_text(text)
    with pytest.raises(Wrong, match="images"):
        checks.manifests(contents)


def test_two_wheels_are_compared_by_what_is_in_them(tmp_path: Path) -> None:
    """What differs is named: a file that only one has, and one that is another."""
    one, other = _wheel(tmp_path / "1", a="1", b="1"), _wheel(tmp_path / "2", a="1", b="2", c="1")
    with pytest.raises(Wrong, match=r"differs in b, c$"):
        checks.same_wheel(one, other)
    checks.same_wheel(one, _wheel(tmp_path / "3", a="1", b="1"))


def _wheel(folder: Path, **files: str) -> Path:
    folder.mkdir()
    path = folder / "partage-0.1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(zipfile.ZipInfo(name), text)
    return path
