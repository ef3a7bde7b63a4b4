"""A folder whose path the loader's lists cannot name has another, which nobody else can change."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest

from partage.core import errors
from partage.fence.library import aliases
from tests import leaving_out

YEARS_S = 5 * 365 * 86400


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that no list can name."""
    made = tmp_path / "a b:c" / "lib"
    made.mkdir(parents=True)
    return made


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, ...]:
    """Two places for aliases, as /var/tmp and /tmp are."""
    made = tmp_path / "one", tmp_path / "two"
    for place in made:
        place.mkdir()
        place.chmod(0o1777)
        if os.geteuid() != 0:
            leaving_out.leave_out("root", "only root makes a place that is root's")
    return made


def test_a_path_that_can_be_named_is_its_own(tmp_path: Path, places: tuple[Path, ...]) -> None:
    """Nothing is made."""
    assert aliases.named(tmp_path, places) == tmp_path
    assert not list(places[0].iterdir())


def test_any_other_has_one_that_can(folder: Path, places: tuple[Path, ...]) -> None:
    """The same each time, in a folder that others cannot enter, whatever the umask."""
    before = os.umask(0)
    try:
        alias = aliases.named(folder, places)
    finally:
        os.umask(before)
    assert alias == aliases.named(folder, places)
    assert alias.samefile(folder)
    assert alias in aliases.everything(folder, places)
    assert alias.is_relative_to(places[0])
    assert stat.S_IMODE(alias.parent.stat().st_mode) == 0o700


def test_an_alias_goes_with_its_folder(folder: Path, places: tuple[Path, ...]) -> None:
    """Once more is no harm; and one whose folder is gone goes when the next is made."""
    first = aliases.named(folder, places)
    aliases.forget(folder, places)
    aliases.forget(folder, places)
    assert not os.path.lexists(first)

    first = aliases.named(folder, places)
    folder.rmdir()
    other = folder.with_name("other")
    other.mkdir()
    second = aliases.named(other, places)
    assert list(first.parent.iterdir()) == [second]


def test_an_alias_does_not_grow_old(folder: Path, places: tuple[Path, ...]) -> None:
    """For years, used or not; also one that was made by a version that let it."""
    alias = aliases.named(folder, places)
    os.utime(alias, (0, 0), follow_symlinks=False)
    aliases.named(folder, places)
    list(alias.iterdir())
    status = alias.lstat()
    assert min(status.st_atime, status.st_mtime) - time.time() > YEARS_S


@pytest.mark.parametrize("what", ["somebody's", "open", "link", "file"])
def test_a_folder_that_is_not_ours_alone_is_not_used(
    folder: Path, tmp_path: Path, places: tuple[Path, ...], what: str
) -> None:
    """Anybody can make one of that name first; then there is the next place, and then an error."""
    for index, place in enumerate(places):
        own = place / f"partage-{os.geteuid()}"
        if what == "link":
            (tmp_path / f"elsewhere-{index}").mkdir(mode=0o700)
            own.symlink_to(tmp_path / f"elsewhere-{index}")
        elif what == "file":
            own.touch(mode=0o600)
        else:
            own.mkdir(mode=0o700)
            own.chmod(0o777 if what == "open" else 0o700)
            os.chown(own, 65_100 if what == "somebody's" else -1, -1)
        if index == 0:
            assert aliases.named(folder, places).is_relative_to(places[1])
            aliases.forget(folder, places)
            (places[1] / own.name).rmdir()
    with pytest.raises(errors.FenceError, match="nor through a link in") as refused:
        aliases.named(folder, places)
    assert "PARTAGE_STATE" in refused.value.instead


def test_a_place_in_which_anybody_can_replace_things_is_none(
    folder: Path, places: tuple[Path, ...]
) -> None:
    """Without the sticky bit."""
    places[0].chmod(0o777)
    assert aliases.named(folder, places).is_relative_to(places[1])
