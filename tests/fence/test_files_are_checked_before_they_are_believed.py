"""The shared files: another version, another size, another kind or none at all is told, once."""

from __future__ import annotations

import os
import pathlib

import pytest

from partage.core import errors
from partage.fence import usage
from partage.fence.store import layout, roots, seats, shared_files, tenants
from tests.fence import small_limits

TENANT = "job"
NEXT = layout.VERSION + 1


@pytest.fixture
def folder(root: roots.Root) -> pathlib.Path:
    """The folder of a tenant that is there."""
    return tenants.create(root, TENANT, small_limits.share(1)).folder


def poke(path: pathlib.Path, offset: int, content: bytes) -> None:
    """Change a few bytes of a file."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


@pytest.mark.parametrize("name", ["limits", "region"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ((0, bytes(8)), "file of Partage; the file is damaged: end its tenant and start it again"),
        (
            (8, NEXT.to_bytes(4, "little")),
            f"has layout version {NEXT}, but this Partage knows only {NEXT - 1}; use the Partage",
        ),
        ((12, b"\1\0\0\0"), "and claims 1, instead of"),
    ],
)
def test_a_header_that_is_not_ours_is_told(
    root: roots.Root, folder: pathlib.Path, name: str, change: tuple[int, bytes], says: str
) -> None:
    """What is wrong, where, and what to do; for both files that are read."""
    poke(folder / name, *change)

    with pytest.raises(errors.FenceError, match=says) as refusal:
        usage.snapshot(root, TENANT)
    assert str(folder / name) in str(refusal.value)


@pytest.mark.parametrize("name", ["limits", "region"])
@pytest.mark.parametrize("size", [0, 3, 15, 16, 800, 1 << 20])
def test_a_file_of_another_size_is_told(
    root: roots.Root, folder: pathlib.Path, name: str, size: int
) -> None:
    """Cut or grown, at any place."""
    os.truncate(folder / name, size)

    with pytest.raises(errors.FenceError, match="bytes"):
        usage.snapshot(root, TENANT)


@pytest.mark.parametrize("name", ["limits", "region"])
def test_a_file_that_is_no_file_is_told(root: roots.Root, folder: pathlib.Path, name: str) -> None:
    """A folder or a pipe in its place does not make us wait; one that is gone is named."""
    path = folder / name
    path.unlink()
    with pytest.raises(errors.FenceError, match=f"{path} does not exist"):
        usage.snapshot(root, TENANT)
    os.mkfifo(path)
    with pytest.raises(errors.FenceError, match="not a regular file"):
        usage.snapshot(root, TENANT)


def test_limits_are_checked_before_they_are_mapped(root: roots.Root, folder: pathlib.Path) -> None:
    """Storing into a mapping of a file that was cut would end this process."""
    os.truncate(folder / "limits", 100)

    with (
        pytest.raises(errors.FenceError, match="has 100 bytes"),
        shared_files.mapped(folder / "limits", layout.Limits),
    ):
        pass


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("mode", 9, r"9 is not one of \[0, 1, 2, 3\]"),
        ("share", 2_000_000, "a share is between"),
        ("memory_bytes", 0, "is not a valid quota"),
        ("uuid", 7, "it names GPU-07000000-"),
    ],
)
def test_limits_that_make_no_sense_are_told(
    root: roots.Root, folder: pathlib.Path, field: str, value: int, says: str
) -> None:
    """The header is right, and what follows is not."""
    offset = layout.Limits.card.offset + getattr(layout.LimitsCard, field).offset
    size = min(8, getattr(layout.LimitsCard, field).size)
    poke(folder / "limits", offset, value.to_bytes(size, "little"))

    with pytest.raises(errors.FenceError, match=says) as refusal:
        tenants.read(root, TENANT)
    assert "start it again" in str(refusal.value)


def test_a_tenant_that_cannot_be_read_does_not_hide_the_others(
    root: roots.Root, folder: pathlib.Path
) -> None:
    """It is listed with its problem."""
    tenants.create(root, "other", small_limits.share(1))
    poke(folder / "limits", 8, NEXT.to_bytes(4, "little"))

    unreadable, read = usage.everything(root)
    assert isinstance(unreadable, usage.Unreadable)
    assert f"layout version {NEXT}" in unreadable.problem
    assert isinstance(read, usage.Usage)
    assert read.tenant == "other"


def test_a_damaged_tenant_can_be_removed(root: roots.Root, folder: pathlib.Path) -> None:
    """As the message advises."""
    os.truncate(folder / "region", 0)
    os.truncate(folder / "limits", 0)

    tenants.remove(root, TENANT)
    assert tenants.names(root) == []


def test_what_lies_where_a_seat_should_be_is_replaced(root: roots.Root) -> None:
    """Left by another version, for example."""
    tenants.create(root, "before", small_limits.share(1))
    seat = seats.path(root, small_limits.uuid(1), 1)
    seat.write_bytes(b"old")

    tenants.create(root, TENANT, small_limits.share(1))

    assert shared_files.read(seat, layout.Seat).magic == layout.SEAT_MAGIC


def test_the_sizes_are_those_of_the_layout(root: roots.Root, folder: pathlib.Path) -> None:
    """The files on disk are as long as their headers promise, from the start."""
    limits, region = folder / "limits", folder / "region"

    assert limits.stat().st_size == shared_files.read(limits, layout.Limits).size
    assert region.stat().st_size == shared_files.read(region, layout.Region).size
