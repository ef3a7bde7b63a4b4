"""A container's fence is files that are mounted into it, and they are what the grant says."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from partage.agent.containers import cdi, container_fence
from partage.core import demands, errors, grants
from partage.fence.levels import catalog, fixed_places
from partage.fence.library import libpartage, substitutes
from partage.fence.store import layout, limits, locks, roots, tenants
from tests.agent import agent_node
from tests.native import fenced

NAME = "uid-1.main"
MIB = 1 << 20
INSIDE = "/etc/partage/fence"


def shares(*these: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What a container was granted: a share of each of two cards, unless something else is said."""
    given = these or (agent_node.share(0, 2048), agent_node.share(1, 1024))
    return grants.ContainerGrant(name="main", shares=given, **more)


def put(
    fences: container_fence.Fences,
    container: grants.ContainerGrant | None = None,
    minimum: str = "",
) -> container_fence.Put:
    """Put a fence around a container."""
    costs = {agent_node.uuid(0): 256 * MIB}
    return fences.put(NAME, container or shares(), minimum=minimum, context_bytes=costs)


def mounts(put: container_fence.Put) -> dict[str, cdi.Mount]:
    """By their place in the container."""
    return {mount.container_path: mount for mount in put.edits.mounts}


def test_a_container_gets_what_the_library_needs(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """Its limits read-only, its region and its own seats writable, and all of it bind mounts."""
    fence = put(fences)

    tenant = tenants.read(root, NAME)
    assert (fence.level, fence.tenant) == ("hook", NAME)
    placed = {
        mount.container_path: (mount.host_path, mount.options[0]) for mount in fence.edits.mounts
    }
    assert placed.keys() - {"/etc/partage", "/etc/ld.so.preload", f"{INSIDE}/libpartage.so"} == {
        f"{INSIDE}/{name}"
        for name in ("limits", "region", "seats-0", "seats-0/0", "seats-1", "seats-1/0")
    }
    assert placed[f"{INSIDE}/limits"] == (str(tenant.limits_path), "ro")
    assert placed[f"{INSIDE}/region"] == (str(tenant.region_path), "rw")
    for index in (0, 1):
        folder = root.seats / agent_node.uuid(index)
        assert placed[f"{INSIDE}/seats-{index}"] == (str(folder), "ro")
        assert placed[f"{INSIDE}/seats-{index}/0"] == (str(folder / "0"), "rw")
    for mount in fence.edits.mounts:
        assert mount.options[1:] == ("bind", "nosuid", "nodev")
        assert Path(mount.host_path).exists()
    assert fence.edits == cdi.Edits(mounts=fence.edits.mounts)


def test_nothing_around_the_files_is_the_containers(fences: container_fence.Fences) -> None:
    """The folder is mounted first and read-only, with a place for each file that comes on top."""
    mounted = put(fences).edits.mounts

    around = mounted[0]
    assert (around.container_path, around.options[0]) == ("/etc/partage", "ro")
    places = [mount.container_path for mount in mounted]
    assert places.index(f"{INSIDE}/seats-1") < places.index(f"{INSIDE}/seats-1/0")
    for mount in mounted:
        inside = Path(mount.container_path)
        if inside.is_relative_to("/etc/partage") and not inside.name.isdigit():
            place = Path(around.host_path) / inside.relative_to("/etc/partage")
            assert place.is_dir() == Path(mount.host_path).is_dir()
            assert place.exists()


def test_the_loader_is_told_of_the_library_where_it_is_in_the_container(
    fences: container_fence.Fences,
) -> None:
    """The list lies over the image's own, and is not for the tenant to change."""
    mount_at = mounts(put(fences))

    preload = mount_at["/etc/ld.so.preload"]
    assert Path(preload.host_path).read_text() == f"{INSIDE}/libpartage.so\n"
    mounted = mount_at[f"{INSIDE}/libpartage.so"]
    assert Path(mounted.host_path).read_bytes() == libpartage.find().path.read_bytes()
    assert preload.options[0] == mounted.options[0] == "ro"
    assert Path(preload.host_path).stat().st_mode & 0o777 == 0o644  # any user loads it
    assert Path(mounted.host_path).stat().st_mode & 0o777 == 0o644


def test_the_limits_are_those_of_the_grant(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """By the same reckoning as everywhere, with what contexts cost."""
    granted = shares(
        agent_node.share(0, 2048, compute_percent=30), compute_mode=demands.ComputeMode.FIXED
    )
    put(fences, granted)

    [held] = tenants.read(root, NAME).limits.cards
    assert held == limits.CardLimits(
        uuid=agent_node.uuid(0),
        memory_bytes=2048 * MIB,
        context_bytes=256 * MIB,
        mode=limits.Mode.FIXED,
        share_millionths=300_000,
    )


def test_any_user_of_a_container_may_write_its_files(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """Nobody knows as whom a container runs; on the host nobody else gets there."""
    mounted = mounts(put(fences))
    for place in (f"{INSIDE}/region", f"{INSIDE}/seats-0/0"):
        assert Path(mounted[place].host_path).stat().st_mode & 0o777 == 0o666
    assert Path(mounted[f"{INSIDE}/limits"].host_path).stat().st_mode & 0o777 == 0o644
    assert Path(mounted[f"{INSIDE}/seats-0"].host_path).stat().st_mode & 0o777 == 0o755
    for folder in (root.tenants, root.seats):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_two_containers_of_a_card_sit_apart(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """Each may write its own seat only, and reads that of the other."""
    put(fences)
    other = fences.put("uid-2.main", shares(), minimum="", context_bytes={})
    assert f"{INSIDE}/seats-0/1" in mounts(other)
    assert f"{INSIDE}/seats-0/0" not in mounts(other)
    assert fences.names() == [NAME, "uid-2.main"]


def test_a_container_with_whole_cards_needs_no_fence(fences: container_fence.Fences) -> None:
    """Nothing is made, whatever level is asked for; the container is told by a word of its own."""
    whole = shares(
        agent_node.share(0, 16384, exclusive=True), agent_node.share(1, 16384, exclusive=True)
    )
    for minimum in ("", "hook", "driver"):
        assert put(fences, whole, minimum) == container_fence.Put("none")
    assert fences.names() == []


def test_a_container_that_shares_one_of_its_cards_has_a_fence(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """The whole one is in it without a limit."""
    put(fences, shares(agent_node.share(0, 16384, exclusive=True), agent_node.share(1, 1024)))
    held = tenants.read(root, NAME).limits.cards
    assert [card.memory_bytes for card in held] == [limits.NO_QUOTA, 1024 * MIB]


def test_once_more_is_no_harm(fences: container_fence.Fences, root: roots.Root) -> None:
    """A container that starts again has the same files, with the grant as it is now."""
    first = put(fences)
    assert put(fences) == first
    smaller = shares(agent_node.share(0, 512), agent_node.share(1, 1024))
    assert put(fences, smaller) == first
    assert tenants.read(root, NAME).limits.cards[0].memory_bytes == 512 * MIB
    assert fences.names() == [NAME]


@pytest.mark.parametrize("minimum", ["driver", "mps"])
def test_a_fence_that_is_not_there_is_refused(fences: container_fence.Fences, minimum: str) -> None:
    """A container that wants a stronger one does not start, and nothing is left behind."""
    with pytest.raises(
        errors.FenceError, match=rf"{minimum} is requested, but .* hook .*; request"
    ):
        put(fences, minimum=minimum)
    assert fences.names() == []


@pytest.mark.parametrize("minimum", ["", "advisory", "hook"])
def test_the_strongest_fence_is_taken_whatever_would_do(
    fences: container_fence.Fences, minimum: str
) -> None:
    """A minimum is not a wish."""
    assert put(fences, minimum=minimum).level == "hook"
    assert fences.strongest == catalog.Probe(catalog.Level.HOOK, available=True)


@pytest.fixture
def without(
    root: roots.Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> container_fence.Fences:
    """Fences of an installation that has no library."""
    missing = libpartage.find(tmp_path / "nowhere")
    monkeypatch.setattr(libpartage, "find", lambda: missing)
    return container_fence.Fences(root, tmp_path / "lib")


def test_without_the_library_containers_are_told_their_share(
    without: container_fence.Fences,
) -> None:
    """Nobody holds them, and that is said with the reason and what to do."""
    fence = put(without)

    assert (fence.level, fence.tenant, fence.edits.mounts) == ("advisory", "", ())
    memory = f"{agent_node.uuid(0)}={2048 * MIB},{agent_node.uuid(1)}={1024 * MIB}"
    assert f"PARTAGE_MEMORY_BYTES={memory}" in fence.edits.env
    assert without.names() == []
    probe = without.strongest
    assert (probe.level, probe.available) == (catalog.Level.HOOK, False)
    assert "cannot be read" in probe.reason
    assert "make native" in probe.remedy


def test_without_the_library_who_wants_the_fence_is_refused(
    without: container_fence.Fences,
) -> None:
    """With the reason and the remedy, for the pod's events."""
    with pytest.raises(errors.FenceError) as caught:
        put(without, minimum="hook")
    assert "hook: " in caught.value.what
    assert "cannot be read" in caught.value.what
    assert "make native" in caught.value.instead


@pytest.mark.usefixtures("fences")  # it leaves the test out where no library was built
class TestInstalling:
    """The library is put where containers can load it."""

    def test_its_name_carries_a_checksum(self, tmp_path: Path) -> None:
        """Containers that run keep the one that they were started with."""
        folder = tmp_path / "other"
        first = fixed_places.installed(libpartage.find(), folder)
        assert fixed_places.installed(libpartage.find(), folder) == first

        changed = tmp_path / "newer.so"
        changed.write_bytes(first.path.read_bytes() + b"newer")
        second = fixed_places.installed(libpartage.Library(changed), folder)
        assert first.path != second.path
        assert first.path.exists()
        assert second.path.read_bytes().endswith(b"newer")
        assert sorted(path.name for path in folder.iterdir()) == sorted(
            [first.path.name, second.path.name, "ld.so.preload", "around"]
        )

    def test_what_stands_in_the_drivers_place_is_put_beside_it(self, tmp_path: Path) -> None:
        """Under names that carry their checksums, too, and for any user to load."""
        fixed_places.installed(libpartage.find(), tmp_path)
        for name, path in fixed_places.substituted(libpartage.find(), tmp_path).items():
            ours = substitutes.find(libpartage.find())[name]
            assert path.read_bytes() == ours.read_bytes()
            assert path.stat().st_mode & 0o777 == 0o644
            assert re.fullmatch(rf"{name.split('.')[0]}-[0-9a-f]{{16}}\.so\.1", path.name)
        assert fixed_places.substituted(libpartage.Library(tmp_path / "none.so"), tmp_path) == {}

    def test_a_damaged_copy_is_put_right(self, tmp_path: Path) -> None:
        """As a full disk leaves it."""
        first = fixed_places.installed(libpartage.find(), tmp_path / "lib")
        content = first.path.read_bytes()
        first.path.write_bytes(content[:100])
        assert (
            fixed_places.installed(libpartage.find(), tmp_path / "lib").path.read_bytes() == content
        )

    def test_a_folder_that_programs_cannot_load_from_is_no_place(
        self, root: roots.Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Containers would start without their fence, and nobody would know."""
        noexec = SimpleNamespace(f_flag=os.ST_NOSUID | os.ST_NOEXEC)
        monkeypatch.setattr(os, "statvfs", lambda path: noexec)
        probe = container_fence.Fences(root, tmp_path / "noexec").strongest
        assert not probe.available
        assert probe.reason.endswith("/noexec, which is mounted noexec")
        assert probe.remedy == "name another folder with --library-folder"

    def test_a_folder_that_cannot_be_made_is_explained(self, tmp_path: Path) -> None:
        """With the flag that names another."""
        (tmp_path / "file").write_text("")
        library = fixed_places.installed(libpartage.find(), tmp_path / "file" / "lib")
        assert "cannot be put into" in library.problem
        assert library.remedy.endswith("--library-folder")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[fenced.Machine]:
    """A machine with a simulated card."""
    with fenced.machine(tmp_path / "machine") as made:
        yield made


def test_a_fence_stays_while_a_process_lives_behind_it(
    fences: container_fence.Fences, root: roots.Root, machine: fenced.Machine
) -> None:
    """A pod that ended may have left a process; its memory is still taken."""
    share = grants.Share(uuid=machine.uuids[0], index=0, memory_mib=1024)
    put(fences, shares(share))
    environment = {
        "LD_PRELOAD": str(fenced.FENCE),
        "PARTAGE_LIMITS": str(tenants.read(root, NAME).limits_path),
    }
    process = machine.start(environment)
    process("context(0)")

    assert not fences.take_down(NAME)
    assert fences.names() == [NAME]
    process.kill()
    assert fences.take_down(NAME)
    assert fences.names() == []
    assert fences.take_down(NAME)  # once more is no harm


def test_every_user_can_enter_whatever_the_umask_of_the_agent(
    root: roots.Root, tmp_path: Path
) -> None:
    """A loader that cannot reach the library starts the program without it."""
    before = os.umask(0o077)
    try:
        fence = put(container_fence.Fences(root, tmp_path / "hardened"))
    finally:
        os.umask(before)
    for mount in fence.edits.mounts:
        path = Path(mount.host_path)
        for entry in (path, *path.rglob("*")):
            readable = 0o005 if entry.is_dir() else 0o004
            assert entry.stat().st_mode & readable == readable, entry


def test_a_fence_that_cannot_be_written_is_explained(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """It is what the pod's owner reads in its events."""
    root.scratch.write_text("in the way")
    with pytest.raises(errors.FenceError, match=r"fence cannot be written to .*; check whether"):
        put(fences)


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/etc", True),
        ("/etc/partage/fence", True),
        ("/etc/partage/fence/seats-0", True),
        ("/etc/partage", False),
        ("/etc/ld.so.preload", False),
        ("/etc/app", False),
        ("/data", False),
    ],
)
def test_a_volume_on_which_the_fence_would_lie(
    fences: container_fence.Fences, path: str, refused: bool
) -> None:
    """Another container with that volume could take it away; above or beside it, nobody can."""
    refusal = pytest.raises(
        errors.FenceError, match=f"mounted at {path}, where its fence has to be"
    )
    with refusal if refused else contextlib.nullcontext():
        fences.put(NAME, shares(), minimum="", context_bytes={}, mounted=["/data", path])


def _of_another_version(tenant: tenants.Tenant) -> None:
    """Its files, as the agent before or after this one would have made them."""
    for path in (tenant.limits_path, tenant.region_path):
        with path.open("r+b") as file:
            file.seek(8)
            file.write((layout.VERSION + 1).to_bytes(4, "little"))


def test_a_container_that_starts_again_after_an_update(
    fences: container_fence.Fences, root: roots.Root, caplog: pytest.LogCaptureFixture
) -> None:
    """Its library is this version's, and so are its files from then on."""
    caplog.set_level("INFO")
    put(fences)
    _of_another_version(tenants.read(root, NAME))

    put(fences)

    assert [card.memory_bytes for card in tenants.read(root, NAME).limits.cards] == [
        2048 * MIB,
        1024 * MIB,
    ]
    assert f"has layout version {layout.VERSION + 1}, but this Partage knows" in caplog.text


def test_files_of_another_version_stay_while_a_process_uses_them(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """It counts as busy, is not made anew, and not taken down: its memory is not given away."""
    put(fences)
    tenant = tenants.read(root, NAME)
    with tenant.region_path.open("r+b") as process:
        assert locks.take(process.fileno(), 0)
        _of_another_version(tenant)
        assert fences.is_busy(NAME)
        with pytest.raises(errors.FenceError, match="end the tenant and start it again"):
            put(fences)
        assert not fences.take_down(NAME)
    assert not fences.is_busy(NAME)
    assert fences.take_down(NAME)


def test_a_fence_that_others_share_is_not_made_anew(
    fences: container_fence.Fences, root: roots.Root
) -> None:
    """They have its old files mounted, and would keep an account of their own there."""
    name = container_fence.tenant_name("uid", "main", "gpu-a")
    fences.put(name, shares(), minimum="", context_bytes={})
    _of_another_version(tenants.read(root, name))
    with pytest.raises(errors.FenceError, match="has layout version"):
        fences.put(name, shares(), minimum="", context_bytes={})
