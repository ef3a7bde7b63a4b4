"""Layers and what describes them: equal inputs give equal bytes, whoever makes them and when."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from image import debian_lock, errors, files, layers
from image.files import File

MOMENT = debian_lock.read().moment
NAMES = st.text("abc", min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/".join(names) + "/file")
FILES = st.builds(File, PATHS, st.sampled_from([0o644, 0o755]), st.binary(max_size=9))
CONTENTS = st.lists(FILES, unique_by=lambda file: file.path)


@given(CONTENTS, st.randoms())
def test_the_order_of_packages_makes_no_difference(contents: list[File], random: object) -> None:
    """A layer is the same in whatever order its files come in."""
    shuffled = list(contents)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (layers.tar(files.merged(some), MOMENT) for some in (contents, shuffled))
    assert one == other


@given(CONTENTS)
def test_a_layer_unpacks_to_its_files(contents: list[File]) -> None:
    """Each file is root's, of the lock's day, below folders that come before it."""
    made = layers.make(files.merged(contents), MOMENT)
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(made.compressed))) as tar:
        members = tar.getmembers()
        read = {m.name: (m.mode, tar.extractfile(m).read()) for m in members if m.isreg()}  # type: ignore[union-attr]
    assert read == {file.path: (file.mode, file.content) for file in contents}
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} <= {
        (0, 0, "", "", MOMENT.timestamp())
    }
    seen: set[str] = {""}
    for member in members:
        assert member.name.rpartition("/")[0] in seen
        seen.add(member.name)


def test_a_compressed_layer_names_no_time_and_no_file() -> None:
    """The header of gzip could hold both."""
    header = layers.make([], MOMENT).compressed[:8]
    flags, moment = header[3], header[4:]
    assert (flags, moment) == (0, bytes(4))


def test_two_packages_with_different_files_of_one_name_are_refused() -> None:
    """Else it would depend on their order which one is in the image."""
    with pytest.raises(errors.CannotMake, match="etc/x"):
        files.merged([File("etc/x", content=b"1"), File("etc/x", content=b"2")])
