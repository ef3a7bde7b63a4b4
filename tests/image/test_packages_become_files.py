"""Packages become files of the image: Debian's without what nobody reads, wheels as by pip."""

from __future__ import annotations

from pathlib import Path

import pytest

from image import debian_packages, errors, files
from tests.image import small_packages

SITE = "usr/local/lib/python3.13/dist-packages"


def test_of_a_debian_package_licences_stay_and_manuals_go(tmp_path: Path) -> None:
    """Also modes and links, which the data of a package has."""
    kept = {"usr/bin/small": "x", "usr/share/doc/small/copyright": "MIT"}
    left_out = {
        "usr/share/doc/small/changelog": "1",
        "usr/share/man/man1/small.1": "s",
        "usr/lib/python3.13/lib-dynload/readline.cpython-313-x86_64-linux-gnu.so": "s",
    }
    content = small_packages.deb(tmp_path, kept | left_out)
    package = small_packages.package(content)
    (tmp_path / debian_packages.file_name(package)).write_bytes(content)
    made = files.of_debian(debian_packages.data(package, tmp_path))
    assert {f.path: f.content.decode() for f in made if not f.is_folder} == kept
    record = files.of_debian_record(debian_packages.control(package, tmp_path), package.name)
    assert record.path == "var/lib/dpkg/status.d/small"
    assert b"Version: 1\n" in record.content


def test_a_wheel_is_put_where_pythons_of_debian_look() -> None:
    """With its executables, as pip makes them."""
    wheel = small_packages.wheel({"small/tool": "x"}, executable="small/tool")
    modes = {file.path: file.mode for file in files.of_wheel(wheel)}
    assert modes[f"{SITE}/small/__init__.py"] == 0o644
    assert modes[f"{SITE}/small/tool"] == 0o755


def test_a_wheel_with_files_for_other_places_is_refused() -> None:
    """Nobody has had to decide where they go; to drop them would break it in silence."""
    wheel = small_packages.wheel({"small-1.2.data/scripts/tool": "x"})
    with pytest.raises(errors.CannotMake, match=r"small-1.2\.data/scripts/tool"):
        files.of_wheel(wheel)


def test_commands_of_a_wheel_become_scripts() -> None:
    """By the image's Python, and by no other that might be there."""
    points = "[console_scripts]\nsmall = small.cli:main\n"
    (script,) = files.of_scripts(
        small_packages.wheel({"small-1.2.dist-info/entry_points.txt": points})
    )
    assert (script.path, script.mode) == ("usr/local/bin/small", 0o755)
    assert script.content.startswith(b"#!/usr/bin/python3.13\n")
    assert b"from small.cli import main\n" in script.content
