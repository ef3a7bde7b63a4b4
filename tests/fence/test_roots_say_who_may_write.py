"""Roots: who may write what, told by modes alone, whatever the umask."""

from __future__ import annotations

import functools
import os
import pathlib
import signal
import stat
from collections.abc import Iterator

import pytest

from partage.core import errors
from partage.fence.store import roots, shared_files, tenants
from tests import leaving_out
from tests.fence import child_processes, small_limits

GROUP = 4242


@pytest.fixture(params=[0o000, 0o022, 0o077], autouse=True)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Whatever the user has."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def modes(root: roots.Root) -> dict[str, int]:
    """The modes of all there is, links left out."""
    paths = [root.path, *root.path.rglob("*")]
    return {
        str(path.relative_to(root.path)): stat.S_IMODE(path.stat().st_mode)
        for path in paths
        if not path.is_symlink()
    }


def test_the_owner_writes_and_others_read_limits_only(tmp_path: pathlib.Path) -> None:
    """One user's root: nobody else writes anything."""
    root = roots.prepare(tmp_path / "root")
    tenants.create(root, "job", small_limits.share(1))

    assert modes(root) == {
        ".": 0o755,
        "lock": 0o600,
        "seats": 0o755,
        f"seats/{small_limits.uuid(1)}": 0o755,
        f"seats/{small_limits.uuid(1)}/0": 0o644,
        "tenants": 0o755,
        "tenants/job": 0o755,
        "tenants/job/limits": 0o644,
        "tenants/job/region": 0o600,
    }


@leaving_out.needs_root
def test_a_group_shares_folders_and_no_files(tmp_path: pathlib.Path) -> None:
    """Its members make tenants; each one's region is its own to write, and the others' to read."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.GROUP, gid=GROUP)
    tenants.create(root, "job", small_limits.share(1), uid=1000, gid=1000)

    assert modes(root) == {
        ".": 0o3775,
        "lock": 0o660,
        "seats": 0o3775,
        f"seats/{small_limits.uuid(1)}": 0o3775,
        f"seats/{small_limits.uuid(1)}/0": 0o644,
        "tenants": 0o3775,
        "tenants/job": 0o755,
        "tenants/job/limits": 0o644,
        "tenants/job/region": 0o640,
    }
    assert (root.seats / small_limits.uuid(1)).stat().st_gid == GROUP
    assert (root.path / "lock").stat().st_gid == GROUP
    for own in (root.tenants / "job" / "region", root.seats / small_limits.uuid(1) / "0"):
        assert (own.stat().st_uid, own.stat().st_gid) == (1000, 1000)
    assert (root.tenants / "job" / "limits").stat().st_uid == 0


@leaving_out.needs_root
def test_members_of_a_group_do_not_disturb_each_other(open_path: pathlib.Path) -> None:
    """Each makes tenants, whatever another left behind; neither can touch the other's."""
    open_path.chmod(0o755)
    root = roots.prepare(open_path / "root", reach=roots.Reach.GROUP, gid=GROUP)

    def leave() -> None:
        with root.locked():
            root.scratch.mkdir()
            (root.scratch / "limits").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def take_away() -> None:
        with pytest.raises(errors.FenceError, match="this user may not change"):
            tenants.remove(root, "of-1001", force=True)
        for path in (root.tenants / "of-1001", root.scratch.with_name("scratch-1001")):
            with pytest.raises(PermissionError):
                path.rename(root.path / "mine")

    first, second = (1001, GROUP), (1002, GROUP)
    make = functools.partial(tenants.create, root)
    assert child_processes.run(lambda: make("of-1001", small_limits.share(1)), user=first) == 0
    assert child_processes.run(leave, user=first) == -signal.SIGKILL
    assert child_processes.run(lambda: make("of-1002", small_limits.share(1)), user=second) == 0
    assert child_processes.run(take_away, user=second) == 0
    assert child_processes.run(lambda: tenants.remove(root, "of-1001"), user=first) == 0
    assert tenants.names(root) == ["of-1002"]
    assert tenants.read(root, "of-1002").seats == (1,)


def test_files_for_containers_are_behind_a_door(tmp_path: pathlib.Path) -> None:
    """What any user may write is where only its owner gets: containers have it by a mount."""
    root = roots.prepare(tmp_path / "root", reach=roots.Reach.CONTAINERS)
    tenants.create(root, "job", small_limits.share(1))

    mode_of = modes(root)
    assert mode_of["tenants"] == mode_of["seats"] == mode_of["tenants/job"] == 0o700
    assert mode_of["tenants/job/region"] == mode_of[f"seats/{small_limits.uuid(1)}/0"] == 0o666
    assert mode_of["tenants/job/limits"] == 0o644
    assert mode_of["lock"] == 0o600


@pytest.mark.parametrize("reach", list(roots.Reach))
def test_nothing_within_reach_is_writable_for_everybody(
    tmp_path: pathlib.Path, reach: roots.Reach
) -> None:
    """Every file that is has a folder above it that keeps others out."""
    root = roots.prepare(tmp_path / "root", reach=reach, gid=os.getegid())
    tenants.create(root, "job", small_limits.share(1))

    for name, mode in modes(root).items():
        if mode & stat.S_IWOTH:
            doors = [stat.S_IMODE(p.stat().st_mode) for p in (root.path / name).parents]
            assert any(not door & 0o077 for door in doors[: len(name.split("/")) - 1])


@pytest.mark.parametrize("reach", list(roots.Reach))
def test_a_root_is_found_for_what_it_was_made(tmp_path: pathlib.Path, reach: roots.Reach) -> None:
    """It is known when the root is opened later; for something else it is refused."""
    made = roots.prepare(tmp_path / "root", reach=reach, gid=os.getegid())

    assert roots.find(made.path) == roots.prepare(made.path, reach=reach, gid=os.getegid()) == made
    for other in set(roots.Reach) - {reach}:
        with pytest.raises(errors.FenceError, match=f"made with the reach {reach}, not"):
            roots.prepare(made.path, reach=other, gid=os.getegid())


@leaving_out.needs_root
def test_root_makes_tenants_for_any_user(tmp_path: pathlib.Path) -> None:
    """Each gets files of its own, and no group has to be shared for it."""
    root = roots.prepare(tmp_path / "root")
    tenants.create(root, "job", small_limits.share(1), uid=4711, gid=4711)

    for own in (root.tenants / "job" / "region", root.seats / small_limits.uuid(1) / "0"):
        assert (own.stat().st_uid, own.stat().st_gid) == (4711, 4711)


USER = (1001, GROUP)


@pytest.fixture
def users_root(open_path: pathlib.Path) -> roots.Root:
    """One that a user made."""
    open_path.chmod(0o777)
    assert child_processes.run(lambda: roots.prepare(open_path / "root"), user=USER) == 0
    return roots.find(open_path / "root")


@leaving_out.needs_root
def test_root_in_a_users_own_root_does_not_lock_the_user_out(users_root: roots.Root) -> None:
    """What root makes there is the user's, who can make tenants on that card, and remove root's."""
    tenants.create(users_root, "of-root", small_limits.share(1))

    assert (
        child_processes.run(
            lambda: tenants.create(users_root, "job", small_limits.share(1)), user=USER
        )
        == 0
    )
    assert child_processes.run(lambda: tenants.remove(users_root, "of-root"), user=USER) == 0
    assert tenants.read(users_root, "job").seats == (1,)


@leaving_out.needs_root
def test_root_gives_away_nothing_that_a_user_put_in_the_place(
    users_root: roots.Root, tmp_path: pathlib.Path
) -> None:
    """Neither the folder behind a link, nor one that root has not just made."""
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    link = users_root.path / "link"
    link.symlink_to(secret)
    with pytest.raises(OSError, match="Not a directory"):
        shared_files.settle_folder(link, 0o755, USER)
    assert (secret.stat().st_uid, stat.S_IMODE(secret.stat().st_mode)) == (0, 0o700)
    with pytest.raises(PermissionError, match="somebody else"):
        shared_files.settle_folder(users_root.seats, 0o755, (0, 0))


@leaving_out.needs_root
def test_seats_that_may_not_be_written_are_not_told_as_taken(users_root: roots.Root) -> None:
    """The folder is named, and not a number of tenants."""
    (users_root.seats / small_limits.uuid(1)).mkdir(mode=0o755)

    def attempt() -> None:
        with pytest.raises(
            errors.FenceError, match=f"this user may not write to .*{small_limits.uuid(1)}"
        ):
            tenants.create(users_root, "job", small_limits.share(1))

    (users_root.seats / small_limits.uuid(1)).chmod(0o755)
    assert child_processes.run(attempt, user=USER) == 0


@leaving_out.needs_root
def test_others_cannot_make_tenants_for_somebody_else(open_path: pathlib.Path) -> None:
    """And nothing is left of the attempt."""
    open_path.chmod(0o777)

    def attempt() -> None:
        root = roots.prepare(open_path / "root")
        with pytest.raises(errors.FenceError, match="this user may not change"):
            tenants.create(root, "job", small_limits.share(1), uid=4711)
        assert tenants.names(root) == []

    assert child_processes.run(attempt, user=(1001, GROUP)) == 0


@leaving_out.needs_root
def test_what_another_member_left_on_a_seat_is_passed_by(open_path: pathlib.Path) -> None:
    """In a sticky folder only the owner could take it away."""
    open_path.chmod(0o755)
    root = roots.prepare(open_path / "root", reach=roots.Reach.GROUP, gid=GROUP)
    make = functools.partial(tenants.create, root)

    def litter() -> None:
        make("gone", small_limits.share(1))
        (root.tenants / "gone").rename(root.scratch)

    assert child_processes.run(litter, user=(1001, GROUP)) == 0
    assert child_processes.run(lambda: make("job", small_limits.share(1)), user=(1002, GROUP)) == 0
    assert tenants.read(root, "job").seats == (1,)


def test_a_folder_that_is_no_root_is_told(tmp_path: pathlib.Path) -> None:
    """With the option that names another."""
    with pytest.raises(errors.FenceError, match=r"is not a folder of fences .* with --root"):
        roots.find(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(errors.FenceError, match=r"cannot be made \((File exists|Not a directory)"):
        roots.prepare(tmp_path / "file")
    with pytest.raises(errors.InputError, match="a root for a group needs its gid"):
        roots.prepare(tmp_path / "root", reach=roots.Reach.GROUP)
