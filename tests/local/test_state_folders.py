"""Where a ledger is kept: of one user, of all, of a simulation; and where it cannot be."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import stat
import threading

import pytest

from partage.core import errors
from partage.fence.store import roots
from partage.local.ledger import liveness
from partage.local.run import launch
from partage.local.state import location
from tests.local import sites, users

NOWHERE = pathlib.Path("/nonexistent/partage")


def _mode(path: pathlib.Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def _mounts(folder: pathlib.Path, *mounts: tuple[bytes, bytes]) -> pathlib.Path:
    """A table as the kernel writes it, of mount points and types."""
    lines = [
        b"%d 1 0:%d / %s rw,relatime shared:%d - %s none rw\n" % (30 + i, i, point, i, kind)
        for i, (point, kind) in enumerate(mounts)
    ]
    table = folder / "mountinfo"
    table.write_bytes(b"".join(lines))
    return table


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """The home of this user."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_users_have_their_own_where_nothing_is_said(home: pathlib.Path) -> None:
    """In the user's home, by the rules of the desktop."""
    assert location.where({}, shared=NOWHERE) == home / ".local/state/partage"
    assert location.where({"XDG_STATE_HOME": "/x"}, shared=NOWHERE) == pathlib.Path("/x/partage")


def test_an_empty_home_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user database tells then; the root of the file system is nobody's home but by chance."""
    monkeypatch.setenv("HOME", "")
    home_of_user = pathlib.Path(pwd.getpwuid(os.getuid()).pw_dir)
    assert location.where({}, shared=NOWHERE) == home_of_user / ".local/state/partage"


@pytest.mark.parametrize("text", ["", "relative/folder"])
def test_a_relative_state_home_is_ignored(home: pathlib.Path, text: str) -> None:
    """As its specification demands; else each folder would have a ledger."""
    path = location.where({"XDG_STATE_HOME": text}, shared=NOWHERE)
    assert path == home / ".local/state/partage"


def test_the_place_for_all_comes_before_ones_own(tmp_path: pathlib.Path) -> None:
    """Once it is there users do not get folders of their own; a user who names another has that."""
    shared = tmp_path / "shared"
    own = {"XDG_STATE_HOME": str(tmp_path)}
    assert location.where(own, shared=shared) == tmp_path / "partage"
    shared.mkdir()
    assert location.where(own, shared=shared) == shared
    named = own | {"PARTAGE_STATE": "/named"}
    assert location.where(named, shared=shared) == pathlib.Path("/named")


def test_a_named_place_can_be_relative(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the folder of the command, and is told in full; an empty name is none."""
    monkeypatch.chdir(tmp_path)
    assert location.where({"PARTAGE_STATE": "here"}) == tmp_path / "here"
    empty = {"PARTAGE_STATE": "", "XDG_STATE_HOME": "/x"}
    assert location.where(empty, shared=NOWHERE) == pathlib.Path("/x/partage")


@pytest.mark.parametrize(
    ("cards", "name"),
    [
        ("2x16GiB", "simulated-2x16GiB"),
        ("16GiB,24GiB:Tesla T4", "simulated-16GiB,24GiB_Tesla_T4"),
        ("../../etc", "simulated-.._.._etc"),
        ("x" * 300, f"simulated-{'x' * 100}"),
    ],
)
def test_a_simulation_has_a_folder_of_its_own(
    tmp_path: pathlib.Path, cards: str, name: str
) -> None:
    """Named by its cards, below the user's own, whatever the place for all is."""
    environ = {"XDG_STATE_HOME": str(tmp_path), "PARTAGE_SIMULATE": cards}
    assert location.where(environ, shared=tmp_path) == tmp_path / "partage" / name
    named = environ | {"PARTAGE_STATE": "/named"}
    assert location.where(named) == pathlib.Path("/named")


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_ones_own_is_for_oneself(tmp_path: pathlib.Path, umask: int) -> None:
    """With modes that no umask changes; opened again it is the same."""
    path = tmp_path / "partage"
    before = os.umask(umask)
    try:
        state = location.opened(path)
    finally:
        os.umask(before)
    assert (state.path, state.shared, state.file_mode) == (path, False, 0o600)
    assert [_mode(folder) for folder in (path, state.leases)] == [0o700, 0o700]
    assert roots.find(state.fence).reach is roots.Reach.OWNER
    assert location.opened(path) == state
    assert location.existing(path) == state


def test_looking_makes_nothing(tmp_path: pathlib.Path) -> None:
    """A command that only asks leaves no folder behind."""
    assert location.existing(tmp_path / "partage") is None
    assert list(tmp_path.iterdir()) == []


def test_what_was_cut_off_is_finished(tmp_path: pathlib.Path) -> None:
    """A folder without its leases is made complete by the next who comes."""
    roots.prepare(tmp_path / "partage/fence")
    assert location.existing(tmp_path / "partage") is None
    assert location.opened(tmp_path / "partage").leases.is_dir()
    assert _mode(tmp_path / "partage") == 0o700


def test_many_may_make_it_at_once(tmp_path: pathlib.Path) -> None:
    """All of them find the same."""
    states: list[location.StateFolder] = []
    start = threading.Barrier(16)

    def make() -> None:
        start.wait()
        states.append(location.opened(tmp_path / "deep/partage"))

    threads = [threading.Thread(target=make) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(states) == 16
    assert set(states) == {location.opened(tmp_path / "deep/partage")}


def test_a_place_for_a_group_is_known_by_its_mode(tmp_path: pathlib.Path) -> None:
    """A process that opens it later need not be told."""
    filled: list[location.StateFolder] = []
    made = location.set_up(tmp_path / "local", os.getgid(), filled.append)
    assert (made.shared, made.gid, made.file_mode) == (True, os.getgid(), 0o660)
    assert filled == [made]
    assert location.find({}, shared=tmp_path / "local") == made
    assert roots.find(made.fence).reach is roots.Reach.GROUP


def test_a_folder_of_somebody_else_is_refused(open_folder: pathlib.Path) -> None:
    """With whose it is, and nothing is taken instead."""
    location.opened(open_folder / "state")
    (open_folder / "state").chmod(0o755)  # who may look but not write is refused as well
    stranger = users.User(open_folder, 64017)
    try:
        done = stranger.partage("ps")
        assert done.returncode == 1
        assert done.stdout == ""
        assert f"{open_folder / 'state'} belongs to root" in done.stderr
        assert "name a folder of yours in PARTAGE_STATE" in done.stderr
    finally:
        stranger.end()


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/proc/no-such-folder", "/proc/no-such-folder"),
        ("/proc/1", "/proc/1"),
        ("/dev/null", "/dev/null"),
        ("/dev/null/deeper", "/dev/null"),
    ],
)
def test_what_cannot_be_a_state_folder_is_told(path: str, named: str) -> None:
    """Which folder, why, and that another one can be named."""
    with pytest.raises(errors.PartageError) as caught:
        location.opened(pathlib.Path(path))
    assert named in caught.value.what
    assert "PARTAGE_STATE" in caught.value.instead


@pytest.mark.parametrize(
    "command",
    ["ps", "run --memory 1GiB -- true", "fit --memory 1GiB", "resize x --memory 1GiB", "top"],
)
@pytest.mark.parametrize("cards", ["", "2x16GiB"])
def test_a_folder_behind_a_closed_one_is_told(
    tmp_path: pathlib.Path, command: str, cards: str
) -> None:
    """By its path, and with what to do, whichever command meets it."""
    users.need_root()
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    (tmp_path / "closed").mkdir(mode=0o700)
    path = tmp_path / "closed" / "state"
    user = users.User(tmp_path, 64019)
    try:
        done = user.partage(
            *command.split(), env={"PARTAGE_SIMULATE": cards, "PARTAGE_STATE": str(path)}
        )
    finally:
        user.end()
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{path} cannot be used (Permission denied); name a folder of yours" in done.stderr


def test_a_folder_that_vanishes_is_told(tmp_path: pathlib.Path) -> None:
    """To those who look at it again and again, as `partage top` does."""
    state = location.opened(tmp_path / "state")
    shutil.rmtree(state.path)
    with pytest.raises(errors.LedgerError, match="the state folder was moved or removed") as caught:
        liveness.look(state, ())
    assert str(state.leases) in caught.value.what
    assert "start `partage` again" in caught.value.instead


def test_a_folder_that_ones_own_mode_closes_is_told_with_its_remedy(
    open_folder: pathlib.Path,
) -> None:
    """It is the user's own, so nobody else has to be asked."""
    user = users.User(open_folder, 64018)
    user.folder.mkdir()
    os.chown(user.folder, 64018, 64018)
    user.folder.chmod(0o500)
    try:
        done = user.partage("run", "--memory", "1GiB", "--", "true")
        assert done.returncode == 1
        assert f"`chmod u+rwx {user.folder}`, or name another folder in PARTAGE" in done.stderr
    finally:
        user.end()


def test_fences_that_are_missing_are_made_anew(site: sites.Site) -> None:
    """By whom the place belongs to; the doctor knows."""
    assert site.partage("ps").returncode == 0
    shutil.rmtree(site.folder / "fence")
    assert (
        f"{site.folder}/fence is missing; the next `partage run`" in site.partage("doctor").stdout
    )
    done = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")
    assert done.stdout == "ran\n", done.stderr


def test_fences_of_others_that_are_missing_are_told(tmp_path: pathlib.Path) -> None:
    """A member who made them would own them."""
    made = location.set_up(tmp_path / "local", os.getgid(), lambda _state: None)
    shutil.rmtree(made.fence)
    with pytest.raises(errors.LedgerError, match="fence is missing; `sudo partage setup` makes it"):
        location.opened(made.path)


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: pathlib.Path) -> None:
    """The deepest mount point above the path, and of two at the same point the later one."""
    above = os.fsencode(tmp_path)
    table = _mounts(
        tmp_path,
        (b"/", b"ext4"),
        (above + b"/data", b"nfs4"),
        (above, b"xfs"),
        (above + b"/data/disk", b"tmpfs"),
        (above + b"/data/disk", b"btrfs"),
    )
    (tmp_path / "data/disk").mkdir(parents=True)
    (tmp_path / "database").mkdir()
    expected = {
        "": "xfs",
        "new/folders": "xfs",  # is not there yet
        "database": "xfs",  # begins like a mount point, and is none
        "data": "nfs4",
        "data/new": "nfs4",
        "data/disk/new": "btrfs",
    }
    kinds = {path: location.filesystem(tmp_path / path, table) for path in expected}
    assert kinds == expected
    assert location.filesystem(pathlib.Path("/"), table) == "ext4"


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("with blank", rb"with\040blank"),
        ("tab\tand\\", rb"tab\011and\134"),
        ("größe", "größe".encode()),
        (os.fsdecode(b"\xff\xfe"), b"\xff\xfe"),
    ],
)
def test_names_of_mount_points_are_read_as_the_kernel_writes_them(
    tmp_path: pathlib.Path, name: str, written: bytes
) -> None:
    """Blanks in octal, and bytes that are no text as they are."""
    (tmp_path / name).mkdir()
    above = os.fsencode(tmp_path)
    table = _mounts(tmp_path, (b"/", b"ext4"), (above + b"/" + written, b"nfs"))
    assert location.filesystem(tmp_path / name, table) == "nfs"
    assert location.filesystem(tmp_path, table) == "ext4"


def test_a_link_leads_to_the_file_system_behind_it(tmp_path: pathlib.Path) -> None:
    """It is there that the files will be."""
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far")
    table = _mounts(tmp_path, (b"/", b"ext4"), (os.fsencode(tmp_path / "far"), b"cifs"))
    assert location.filesystem(tmp_path / "link/new", table) == "cifs"


def test_a_place_behind_a_link_serves_programs(site: sites.Site) -> None:
    """From the first on, who measures what a context costs under a lock of the place."""
    (site.folder.parent / "far").mkdir()
    site.folder.symlink_to(site.folder.parent / "far")
    done = site.partage("run", "--memory", "1GiB", "--", "echo", "ran")
    assert done.stdout == "ran\n", done.stderr
    assert site.state().ledger.exists()


def test_where_nobody_tells_it_is_unknown(tmp_path: pathlib.Path) -> None:
    """And no reason to refuse."""
    assert location.filesystem(tmp_path, tmp_path / "no-such-table") == ""
    assert not location.is_network("")


@pytest.mark.parametrize(
    "kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "lustre", "gpfs", "ceph", "beegfs"]
)
def test_a_network_file_system_is_refused(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With what to do, and nothing is made there."""
    monkeypatch.setattr(location, "filesystem", lambda _path: kind)
    path = tmp_path / "partage"
    with pytest.raises(errors.LedgerError, match=rf"network file system \({kind}\)") as caught:
        location.opened(path)
    assert "a local disk in PARTAGE_STATE" in caught.value.instead
    assert not path.exists()
    with pytest.raises(errors.LedgerError, match="network file system"):
        location.set_up(path, os.getgid(), lambda _state: None)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs"])
def test_a_local_file_system_will_do(kind: str) -> None:
    """Those that people have."""
    assert not location.is_network(kind)


def test_users_and_groups_without_a_name_are_numbers() -> None:
    """Users who were deleted still have what they have."""
    assert location.user_name(0) == "root"
    assert location.user_name(3_999_999_999) == "3999999999"
    assert location.group_name(3_999_999_999) == "3999999999"


def test_who_is_alone_is_told_what_works_from_a_virtual_environment(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`sudo` has a PATH of its own, on which that `partage` is not."""
    monkeypatch.delenv("PARTAGE_SIMULATE", raising=False)
    note = launch.not_shared(location.opened(tmp_path / "state"))
    assert note.endswith('`sudo "$(command -v partage)" setup` makes one for all')
