"""Debian packages are fetched by this machine's apt, checked, and missed with words that help."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from image import debian_lock, debian_packages, errors, settings
from tests.image import small_packages
from tests.leaving_out import leave_out

CONTENT = b"a package"
PACKAGE = small_packages.package(CONTENT)


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a mirror that has the package, the only one that apt knows."""
    if shutil.which("apt-get") is None:
        leave_out("Debian's packages", "there is no apt-get")
    environment = small_packages.mirror(tmp_path / "mirror", {PACKAGE.path: CONTENT})
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    return tmp_path / "mirror" / "Debian"


def test_what_is_locked_is_fetched_once(mirror: Path, tmp_path: Path) -> None:
    """Then it is used without the mirror: Debian may have removed it meanwhile."""
    folder = tmp_path / "fetched"
    debian_packages.fetch([PACKAGE], folder)
    assert debian_packages.content(PACKAGE, folder) == CONTENT
    (mirror / PACKAGE.path).unlink()
    debian_packages.fetch([PACKAGE], folder)
    assert [path.name for path in folder.iterdir()] == [debian_packages.file_name(PACKAGE)]


def test_a_version_that_debian_removed_is_told_with_the_way_to_pin_again(
    mirror: Path, tmp_path: Path
) -> None:
    """By name and version, and nothing half fetched stays."""
    (mirror / PACKAGE.path).unlink()
    with pytest.raises(errors.CannotMake, match=r"small 1 .*make image ARGS=--lock"):
        debian_packages.fetch([PACKAGE], tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_other_bytes_under_the_same_name_are_not_taken(mirror: Path, tmp_path: Path) -> None:
    """A mirror may lie, or be damaged."""
    (mirror / PACKAGE.path).write_bytes(b"another one")
    with pytest.raises(errors.CannotMake, match="Hash Sum mismatch"):
        debian_packages.fetch([PACKAGE], tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_a_damaged_file_is_fetched_again(mirror: Path, tmp_path: Path) -> None:
    """What is in the cache is checked each time that it is used."""
    folder = tmp_path / "fetched"
    debian_packages.fetch([PACKAGE], folder)
    (folder / debian_packages.file_name(PACKAGE)).write_bytes(b"half")
    debian_packages.fetch([PACKAGE], folder)
    assert debian_packages.content(PACKAGE, folder) == CONTENT


def test_a_machine_without_a_mirror_of_debian_is_told(mirror: Path, tmp_path: Path) -> None:
    """Such as an Ubuntu: its packages are others."""
    (mirror.parent / "sources.list").write_text("")
    with pytest.raises(errors.CannotMake, match="knows no mirror of Debian"):
        debian_packages.fetch([PACKAGE], tmp_path / "fetched")


def test_the_lock_has_every_package_for_every_machine() -> None:
    """By checksum and by a place on any mirror."""
    lock = debian_lock.read()
    assert lock.release == debian_lock.RELEASE
    for machine in settings.MACHINES:
        packages = lock.packages_for(machine)
        assert sorted(package.name for package in packages) == sorted(debian_lock.NAMES)
        for package in packages:
            assert re.fullmatch(r"pool/[^:]+\.deb", package.path)
            assert re.fullmatch("[0-9a-f]{64}", package.sha256)
            assert package.repository in debian_packages.REPOSITORIES


def test_a_lock_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """With what to do."""
    (tmp_path / "lock").write_text("{")
    with pytest.raises(errors.CannotMake, match="make image ARGS=--lock"):
        debian_lock.read(tmp_path / "lock")


def test_the_lock_is_written_as_it_is_read() -> None:
    """So that pinning again changes only what is new."""
    assert debian_lock.written(debian_lock.read()) == debian_lock.PATH.read_bytes()
