"""``partage setup``: what root makes for a group, and what he refuses to build on."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest

from partage.local import places, simulating
from tests.local import sites, users

GROUP = f"partage-setup-{os.getpid()}"
PERSON = f"partage-{os.getpid()}"
SOMEBODY = 54_011
MODES = {
    "": 0o3770,
    "leases": 0o3770,
    "fence": 0o3775,
    "fence/lock": 0o660,
    "fence/tenants": 0o3775,
    "fence/seats": 0o3775,
    "ledger.db": 0o660,
    "ledger.db-wal": 0o660,
    "ledger.db-shm": 0o660,
}


@pytest.fixture
def folder() -> Iterator[pathlib.Path]:
    """A folder that everybody can enter; the group is gone afterwards."""
    users.need_root()
    made = pathlib.Path(tempfile.mkdtemp(prefix="partage-setup-"))
    made.chmod(0o755)
    yield made
    subprocess.run(["groupdel", GROUP], check=False, capture_output=True)
    shutil.rmtree(made)


@pytest.fixture
def person() -> Iterator[str]:
    """A user of this machine."""
    users.need_root()
    subprocess.run(["useradd", "--no-create-home", PERSON], check=True, capture_output=True)
    yield PERSON
    subprocess.run(["userdel", PERSON], check=True, capture_output=True)


def setup(place: object, *more: object, **how: Any) -> subprocess.CompletedProcess[str]:
    """``partage setup`` as root."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith("PARTAGE_")}
    return subprocess.run(
        [str(sites.PARTAGE), "setup", "--group", GROUP, "--state", str(place), *map(str, more)],
        env=plain,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
        **how,
    )


def modes(place: pathlib.Path) -> dict[str, int]:
    """What is there."""
    return {name: stat.S_IMODE((place / name).lstat().st_mode) for name in MODES}


def has_group() -> bool:
    """Whether the group was made."""
    return subprocess.run(["getent", "group", GROUP], check=False).returncode == 0


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_all_is_made_with_its_mode(folder: pathlib.Path, umask: int) -> None:
    """Root's and the group's, whatever root's umask is; the way there is open to members."""
    place = folder / "above" / "local"
    done = setup(place, umask=umask)

    assert (done.returncode, done.stderr) == (0, "")
    assert modes(place) == MODES
    gid = place.stat().st_gid
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in place.rglob("*")} == {(0, gid)}
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o755
    first, *lines, last = done.stdout.splitlines()
    assert first == f"group {GROUP}: made"
    assert lines == [f"{place / name}: made" for name in MODES]
    assert last == (
        f"Next: `sudo usermod -aG {GROUP} USER` makes a user a member; members log in again; then "
        f"`partage doctor` with PARTAGE_STATE={place} tells what they have."
    )


def test_once_more_is_no_harm(folder: pathlib.Path) -> None:
    """It says what is there already, and the files are the same."""
    place = folder / "local"
    setup(place)
    before = {path: path.lstat().st_ino for path in place.rglob("*")}

    done = setup(place, "-o", "json")

    said = json.loads(done.stdout)
    assert (said["apiVersion"], said["kind"]) == ("output.partage.dev/v1", "Setup")
    assert (said["state"], said["group"]) == (str(place), GROUP)
    assert {step["result"] for step in said["steps"]} == {"already there"}
    assert len(said["steps"]) == 1 + len(MODES)
    assert {path: path.lstat().st_ino for path in place.rglob("*")} == before


def test_users_become_members(folder: pathlib.Path, person: str) -> None:
    """Once."""
    first = setup(folder / "local", "--user", person)
    second = setup(folder / "local", "--user", person)

    assert f"member {person}: made (after the next login)\n" in first.stdout
    assert f"member {person}: already there\n" in second.stdout
    groups = subprocess.run(["id", "-Gn", person], capture_output=True, text=True, check=True)
    assert GROUP in groups.stdout.split()


def test_wrong_modes_are_repaired(folder: pathlib.Path) -> None:
    """Those of root's own; and what SQLite made for a member becomes root's."""
    place = folder / "local"
    setup(place)
    (place / "leases").chmod(0o777)
    (place / "ledger.db").chmod(0o600)
    os.chown(place / "fence" / "lock", 0, 0)
    os.chown(place / "ledger.db-shm", SOMEBODY, -1)
    (place / "ledger.db-wal").unlink()

    done = setup(place)

    assert done.returncode == 0, done.stderr
    assert modes(place) == MODES
    changed = [line for line in done.stdout.splitlines()[:-1] if "already there" not in line]
    assert changed == [
        f"{place}/leases: repaired (mode 0777 instead of 3770)",
        f"{place}/fence/lock: repaired (group root instead of {GROUP})",
        f"{place}/ledger.db: repaired (mode 0600 instead of 0660)",
        f"{place}/ledger.db-wal: made",
        f"{place}/ledger.db-shm: repaired (owner {SOMEBODY} instead of root)",
    ]
    assert {path.lstat().st_uid for path in place.rglob("*")} == {0}


def test_a_ledger_that_a_member_made_anew_is_taken_over(folder: pathlib.Path) -> None:
    """The old one was damaged and moved away, and the next program made another."""
    place = folder / "state"
    setup(place)
    simulating.mark(places.opened(place), "16GiB")
    for file in place.glob("ledger.db*"):
        file.unlink()
    alice = users.User(folder, SOMEBODY, place.stat().st_gid, cards="16GiB")
    assert alice.partage("run", "--memory", "1GiB", "--", "true").returncode == 0
    assert (place / "ledger.db").stat().st_uid == SOMEBODY

    done = setup(place)

    assert done.returncode == 0, done.stderr
    assert f"{place}/ledger.db: repaired (owner {SOMEBODY} instead of root)" in done.stdout
    assert {file.stat().st_uid for file in place.glob("ledger.db*")} == {0}


def _link_in_the_way(folder: pathlib.Path) -> pathlib.Path:
    (folder / "elsewhere").mkdir()
    (folder / "link").symlink_to(folder / "elsewhere")
    return folder / "link" / "local"


def _link_itself(folder: pathlib.Path) -> pathlib.Path:
    (folder / "elsewhere").mkdir()
    (folder / "local").symlink_to(folder / "elsewhere")
    return folder / "local"


def _of_somebody(folder: pathlib.Path) -> pathlib.Path:
    (folder / "local").mkdir()
    os.chown(folder / "local", SOMEBODY, SOMEBODY)
    return folder / "local"


def _under_somebody(folder: pathlib.Path) -> pathlib.Path:
    return _of_somebody(folder) / "deeper"


def _open_to_all(folder: pathlib.Path) -> pathlib.Path:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    return folder / "open" / "local"


def _behind_a_door(folder: pathlib.Path) -> pathlib.Path:
    (folder / "closed").mkdir(mode=0o700)
    return folder / "closed" / "local"


def _leases_are_a_link(folder: pathlib.Path) -> pathlib.Path:
    (folder / "elsewhere").mkdir()
    (folder / "local").mkdir()
    (folder / "local" / "leases").symlink_to(folder / "elsewhere")
    return folder / "local"


def _fence_of_somebody(folder: pathlib.Path) -> pathlib.Path:
    (folder / "local" / "fence").mkdir(parents=True)
    os.chown(folder / "local" / "fence", SOMEBODY, SOMEBODY)
    return folder / "local"


def _ledger_has_two_names(folder: pathlib.Path) -> pathlib.Path:
    (folder / "precious").write_text("a diary")
    (folder / "local").mkdir()
    (folder / "local" / "ledger.db-wal").hardlink_to(folder / "precious")
    return folder / "local"


def _a_file(folder: pathlib.Path) -> pathlib.Path:
    (folder / "local").write_text("a diary")
    return folder / "local"


REFUSED = {
    "a link in the way": (_link_in_the_way, "write where it is, without links"),
    "a link": (_link_itself, "write where it is, without links"),
    "somebody's folder": (_of_somebody, f"it belongs to {SOMEBODY}"),
    "under somebody's folder": (_under_somebody, f"it belongs to {SOMEBODY}"),
    "under a folder that is open to all": (_open_to_all, "others may write there"),
    "behind a closed door": (_behind_a_door, "members of the group cannot pass"),
    "leases are elsewhere": (_leases_are_a_link, "it is a link, or something else"),
    "somebody's fence": (_fence_of_somebody, f"it belongs to {SOMEBODY}"),
    "a file with two names": (_ledger_has_two_names, "it is a link, or something else"),
    "a file": (_a_file, "it is a link, or something else"),
}


@pytest.mark.parametrize("ground", REFUSED)
def test_prepared_ground_is_refused(folder: pathlib.Path, ground: str) -> None:
    """In one line, and nothing is made or changed, there or elsewhere."""
    prepare, says = REFUSED[ground]
    place = prepare(folder)
    before = {path: path.lstat() for path in sorted(folder.rglob("*"))}

    done = setup(place)

    assert done.returncode in (1, 2), done.stdout
    assert says in done.stderr
    assert done.stderr.startswith("partage: ")
    assert done.stderr.count("\n") == 1
    after = {path: path.lstat() for path in sorted(folder.rglob("*"))}
    assert {path: (s.st_mode, s.st_uid, s.st_gid) for path, s in after.items()} == {
        path: (s.st_mode, s.st_uid, s.st_gid) for path, s in before.items()
    }
    assert not has_group()


def test_a_sticky_folder_like_tmp_will_do(folder: pathlib.Path) -> None:
    """What root makes there nobody can replace."""
    (folder / "open").mkdir()
    (folder / "open").chmod(0o1777)

    assert setup(folder / "open" / "local").returncode == 0
    assert modes(folder / "open" / "local") == MODES


def test_a_mistake_changes_nothing(folder: pathlib.Path) -> None:
    """No group is made for a user who is not there, or with a name that is none."""
    unknown = setup(folder / "local", "--user", "nobody-of-this-name")
    option = setup(folder / "local", "--group", "--gid=0")

    assert (unknown.returncode, option.returncode) == (2, 2)
    assert unknown.stderr == (
        "partage: --user: there is no user 'nobody-of-this-name'; nothing was changed\n"
    )
    assert "'--gid=0' is no name of a group" in option.stderr
    assert list(folder.iterdir()) == []
    assert not has_group()


def test_a_place_stays_with_its_group(folder: pathlib.Path) -> None:
    """What members made there belongs to it."""
    setup(folder / "local")

    done = setup(folder / "local", "--group", "daemon")

    assert done.returncode == 2
    assert f"is for group {GROUP}, not daemon; write --group {GROUP}, or remove" in done.stderr


def test_only_root_can(folder: pathlib.Path) -> None:
    """Others are told how."""
    done = users.User(folder, SOMEBODY).partage(
        *("setup", "--state", folder / "local"), env={"PARTAGE_SIMULATE": "", "PARTAGE_STATE": ""}
    )

    assert done.returncode == 1
    assert done.stderr == "partage: only root can set a machine up; `sudo partage setup`\n"
    assert list(folder.iterdir()) == []


def test_nobody_is_disturbed(folder: pathlib.Path) -> None:
    """A program runs and another waits while it is set up again; both stay what they are."""
    setup(folder / "state")
    simulating.mark(places.opened(folder / "state"), "16GiB")
    gid = (folder / "state").stat().st_gid
    alice = users.User(folder, SOMEBODY, gid, cards="16GiB")
    alice.holding("--memory", "12GiB", "--name", "first")
    waits = alice.run("--memory", "12GiB", "--name", "second", command=["echo", "ran"])
    try:
        sites.eventually(lambda: alice.names("waiting") == ["second"])

        assert setup(folder / "state").returncode == 0

        assert (alice.names(), alice.names("waiting")) == (["first"], ["second"])
        alice._started[0].kill()
        assert waits.communicate(timeout=sites.PATIENCE_S)[0] == "ran\n"
    finally:
        alice.end()


def test_what_was_cut_off_is_nobodys_ledger(folder: pathlib.Path) -> None:
    """A place that is not finished lets nobody in, and the next setup finishes it."""
    (folder / "state").mkdir(mode=0o700)  # as a setup that was killed leaves it
    alice = users.User(folder, SOMEBODY)

    done = alice.partage("ps", env={"PARTAGE_SIMULATE": ""})

    assert done.returncode == 1
    assert setup(folder / "state").returncode == 0
    assert modes(folder / "state") == MODES


def test_where_nothing_is_said_all_users_find_it(folder: pathlib.Path) -> None:
    """In /var/lib, here one that nobody else sees; the agent of a cluster may have been there."""
    script = (
        "mount -t tmpfs -o mode=755 none /var/lib && mkdir -m 700 /var/lib/partage && "
        f"{sites.PARTAGE} setup --group daemon && stat -c %a /var/lib/partage && "
        f"{sites.PARTAGE} doctor"
    )
    plain = {k: v for k, v in os.environ.items() if not k.startswith("PARTAGE_")}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=plain,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )

    assert "/var/lib/partage: repaired (mode 0700 instead of 0755)\n" in done.stdout
    assert "/var/lib/partage/local/leases: made\n" in done.stdout
    assert done.stdout.split("tells what they have.\n")[1].startswith("755\n")
    assert "/var/lib/partage/local/ledger.db, version 1: 0 run, 0 wait; shared by" in done.stdout
