"""A tenant that appends to its files does not fill the host's memory for long."""

from __future__ import annotations

import subprocess
from pathlib import Path

from partage.fence import usage
from partage.fence.store import layout, limits, oversized_files, roots, tenants

UUID = "GPU-00000000-0000-0000-0000-000000000001"


def test_what_was_appended_is_cut_off_and_nothing_else(tmp_path: Path) -> None:
    """Region and seat are as they were; those that did not grow are left alone."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.CONTAINERS)
    requested = limits.Limits((limits.CardLimits(uuid=UUID, memory_bytes=1 << 30),))
    for name in ("greedy", "modest"):
        tenants.create(root, name, requested)
    greedy = tenants.read(root, "greedy")
    seat = root.seats / UUID / str(greedy.seats[0])
    before = {path: path.read_bytes() for path in (greedy.region_path, seat)}
    for path in before:
        with path.open("ab") as file:
            file.write(b"\0" * (1 << 20))
    assert sorted(oversized_files.trim(root)) == sorted(before)
    assert {path: path.read_bytes() for path in before} == before
    assert oversized_files.trim(root) == []
    assert isinstance(usage.everything(root)[0], usage.Usage)


def test_a_file_that_was_cut_short_stays_as_it_is(tmp_path: Path) -> None:
    """That is the tenant's own loss: its fence gives it nothing any more."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.CONTAINERS)
    made = tenants.create(root, "odd", limits.Limits((limits.CardLimits(uuid=UUID),)))
    made.region_path.write_bytes(b"")
    assert oversized_files.trim(root) == []
    assert made.region_path.stat().st_size == 0


def test_space_that_was_taken_without_a_size_is_given_back(tmp_path: Path) -> None:
    """`fallocate` can do that; the file looks as it did."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.CONTAINERS)
    made = tenants.create(root, "odd", limits.Limits((limits.CardLimits(uuid=UUID),)))
    before = made.region_path.read_bytes()
    keeping = ("fallocate", "--keep-size", "--length", str(64 << 20), str(made.region_path))
    subprocess.run(keeping, check=True)
    assert made.region_path.stat().st_blocks * 512 >= 64 << 20
    assert oversized_files.trim(root) == [made.region_path]
    assert made.region_path.stat().st_blocks * 512 < 1 << 20
    assert made.region_path.read_bytes() == before


def test_files_of_another_version_are_left_alone(tmp_path: Path) -> None:
    """They may be larger by right, and a process that has them mapped would die of a cut."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.CONTAINERS)
    other = "GPU-00000000-0000-0000-0000-000000000002"
    newer = tenants.create(root, "newer", limits.Limits((limits.CardLimits(uuid=other),)))
    greedy = tenants.create(root, "greedy", limits.Limits((limits.CardLimits(uuid=UUID),)))
    with newer.limits_path.open("r+b") as file:
        file.seek(8)
        file.write((layout.VERSION + 1).to_bytes(4, "little"))
    seat = root.seats / other / str(newer.seats[0])
    for path in (newer.region_path, seat, greedy.region_path):
        with path.open("ab") as file:
            file.write(b"\0" * (1 << 20))
    assert oversized_files.trim(root) == [greedy.region_path]
