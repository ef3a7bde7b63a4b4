"""``partage setup``: what root makes for a group, and what is refused.

Each test has a ``/var/lib`` of its own, in a mount namespace: that is where all users find it.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.local import sites, users

GROUP = f"partage-setup-{os.getpid()}"
PERSON = f"partage-{os.getpid()}"
SOMEBODY = 54_011
VAR_LIB = pathlib.Path("/var/lib")  # what is seen there; each test has its own
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
def folder(open_folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[pathlib.Path]:
    """A folder that everybody can enter; the group is gone afterwards."""
    with users.open_folder() as var_lib:
        monkeypatch.setattr(sys.modules[__name__], "VAR_LIB", var_lib)
        yield open_folder
    subprocess.run(["groupdel", GROUP], check=False, capture_output=True)


@pytest.fixture
def person() -> Iterator[str]:
    """A user of this machine."""
    users.need_root()
    subprocess.run(["useradd", "--no-create-home", PERSON], check=True, capture_output=True)
    yield PERSON
    subprocess.run(["userdel", PERSON], check=True, capture_output=True)


def mounted() -> str:
    """The command that puts a test's own ``/var/lib`` there."""
    return f"mount --bind {VAR_LIB} /var/lib"


def setup(
    path: object, *more: object, cards: str = "", **how: Any
) -> subprocess.CompletedProcess[str]:
    """``partage setup`` as root; on the machine's own cards, or on simulated ones."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("PARTAGE_", "SIMCUDA_"))}
    command = [sites.PARTAGE, "setup", "--group", GROUP, "--state", path, *more]
    return subprocess.run(
        ["unshare", "--mount", "sh", "-c", f'{mounted()} && exec "$@"', "sh", *map(str, command)],
        env=plain | ({"PARTAGE_SIMULATE": cards} if cards else {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
        **how,
    )


def modes(path: pathlib.Path) -> dict[str, int]:
    """What is there."""
    return {name: stat.S_IMODE((path / name).lstat().st_mode) for name in MODES}


def has_group() -> bool:
    """Whether the group was made."""
    return subprocess.run(["getent", "group", GROUP], check=False).returncode == 0


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_all_is_made_with_its_mode(folder: pathlib.Path, umask: int) -> None:
    """Root's and the group's, whatever root's umask is; the way there is open to members."""
    path = folder / "above" / "local"
    done = setup(path, umask=umask)

    assert (done.returncode, done.stderr) == (0, "")
    assert modes(path) == MODES
    gid = path.stat().st_gid
    assert {(p.lstat().st_uid, p.lstat().st_gid) for p in path.rglob("*")} == {(0, gid)}
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o755
    first, *lines, link, last = done.stdout.splitlines()
    assert first == f"group {GROUP}: made"
    assert lines == [f"{path / name}: made" for name in MODES]
    assert link == f"/var/lib/partage/local: made (a link to {path})"
    assert stat.S_IMODE((VAR_LIB / "partage").stat().st_mode) == 0o755
    assert last == (
        f"Next: `sudo usermod -aG {GROUP} USER` makes a user a member; members log in again; then "
        "`partage doctor` shows what they have."
    )


def test_once_more_is_no_harm(folder: pathlib.Path) -> None:
    """It says what is there already, and the files are the same."""
    path = folder / "local"
    setup(path)
    before = {file: file.lstat().st_ino for file in path.rglob("*")}

    done = setup(path, "-o", "json")

    said = json.loads(done.stdout)
    assert (said["apiVersion"], said["kind"]) == ("output.partage.dev/v1", "Setup")
    assert (said["state"], said["group"]) == (str(path), GROUP)
    assert {step["result"] for step in said["steps"]} == {"already there"}
    assert len(said["steps"]) == 1 + len(MODES) + 1
    assert {file: file.lstat().st_ino for file in path.rglob("*")} == before


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
    path = folder / "local"
    setup(path)
    (path / "leases").chmod(0o777)
    (path / "ledger.db").chmod(0o600)
    os.chown(path / "fence" / "lock", 0, 0)
    os.chown(path / "ledger.db-shm", SOMEBODY, -1)
    (path / "ledger.db-wal").unlink()

    done = setup(path)

    assert done.returncode == 0, done.stderr
    assert modes(path) == MODES
    changed = [line for line in done.stdout.splitlines()[:-1] if "already there" not in line]
    assert changed == [
        f"{path}/leases: repaired (mode 0777 instead of 3770)",
        f"{path}/fence/lock: repaired (group root instead of {GROUP})",
        f"{path}/ledger.db: repaired (mode 0600 instead of 0660)",
        f"{path}/ledger.db-wal: made",
        f"{path}/ledger.db-shm: repaired (owner {SOMEBODY} instead of root)",
    ]
    assert {file.lstat().st_uid for file in path.rglob("*")} == {0}


def test_a_ledger_that_a_member_made_anew_is_taken_over(folder: pathlib.Path) -> None:
    """The old one was damaged and moved away, and the next program made another."""
    path = folder / "state"
    setup(path, cards="16GiB")
    for file in path.glob("ledger.db*"):
        file.unlink()
    alice = users.User(folder, SOMEBODY, path.stat().st_gid, cards="16GiB")
    assert alice.partage("run", "--memory", "1GiB", "--", "true").returncode == 0
    assert (path / "ledger.db").stat().st_uid == SOMEBODY

    done = setup(path, cards="16GiB")

    assert done.returncode == 0, done.stderr
    assert f"{path}/ledger.db: repaired (owner {SOMEBODY} instead of root)" in done.stdout
    assert {file.stat().st_uid for file in path.glob("ledger.db*")} == {0}


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
    path = prepare(folder)
    before = {path: path.lstat() for path in sorted(folder.rglob("*"))}

    done = setup(path)

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
    assert "'--gid=0' is not a valid name of a group" in option.stderr
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
    assert done.stderr == "partage: only root can set a machine up; run `sudo partage setup`\n"
    assert list(folder.iterdir()) == []


def test_nobody_is_disturbed(folder: pathlib.Path) -> None:
    """A program runs and another waits while it is set up again; both stay what they are."""
    setup(folder / "state", cards="16GiB")
    gid = (folder / "state").stat().st_gid
    alice = users.User(folder, SOMEBODY, gid, cards="16GiB")
    alice.holding("--memory", "12GiB", "--name", "first")
    waits = alice.run("--memory", "12GiB", "--name", "second", command=["echo", "ran"])
    try:
        sites.eventually(lambda: alice.names("waiting") == ["second"])

        assert setup(folder / "state", cards="16GiB").returncode == 0

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
        f"{shlex.quote(str(sites.PARTAGE))} setup --group daemon && stat -c %a /var/lib/partage && "
        f"{shlex.quote(str(sites.PARTAGE))} doctor"
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
    assert done.stdout.split("shows what they have.\n")[1].startswith("755\n")
    assert "/var/lib/partage/local/ledger.db, version 1: 0 run, 0 wait; shared by" in done.stdout


def doctor_of_member(gid: int, folder: pathlib.Path) -> str:
    """What a member of the group is told who has no settings of Partage's."""
    member = users.User(folder, SOMEBODY, gid, mounting=mounted())
    done = member.partage("doctor", env={"PARTAGE_SIMULATE": "", "PARTAGE_STATE": ""})
    return done.stdout


def test_a_folder_elsewhere_is_found_by_all_without_a_setting(folder: pathlib.Path) -> None:
    """Else a member who forgets the setting gives away from a private ledger what others have."""
    path = folder / "srv"
    setup(path)
    gid = path.stat().st_gid

    assert f"{path}/ledger.db, version 1: 0 run, 0 wait; shared by" in doctor_of_member(gid, folder)
    usual = setup("/var/lib/partage/local", "-o", "json")
    assert {step["result"] for step in json.loads(usual.stdout)["steps"]} == {"already there"}


def test_a_folder_elsewhere_that_is_gone_is_no_reason_for_a_private_ledger(
    folder: pathlib.Path,
) -> None:
    """Its disk may not be mounted; and the next setup makes it anew."""
    path = folder / "srv"
    setup(path)
    gid = path.stat().st_gid
    shutil.rmtree(path)

    said = doctor_of_member(gid, folder)

    assert f"the ledger of this machine is in {path} (/var/lib/partage/local leads there)" in said
    assert setup("/var/lib/partage/local").returncode == 0
    assert modes(path) == MODES


def test_only_roots_link_is_followed(folder: pathlib.Path) -> None:
    """Whoever else could make one there would choose the ledger of all."""
    setup(folder / "srv")
    os.chown(VAR_LIB / "partage/local", SOMEBODY, -1, follow_symlinks=False)

    said = doctor_of_member((folder / "srv").stat().st_gid, folder)

    assert f"/var/lib/partage/local is a link of {SOMEBODY}, and only root's is followed" in said


@pytest.mark.parametrize("first", ["srv", "usual"])
def test_a_machine_has_one_ledger(folder: pathlib.Path, first: str) -> None:
    """A second folder is refused, and nothing of it is made."""
    named = folder / "srv" if first == "srv" else pathlib.Path("/var/lib/partage/local")
    setup(named)

    done = setup(folder / "second")

    assert done.returncode == 2
    assert f"the ledger of this machine is in {named}, not in {folder}/second" in done.stderr
    assert "`sudo rm -r /var/lib/partage/local`" in done.stderr
    assert not (folder / "second").exists()


def test_a_folder_of_simulated_cards_is_not_the_machines(folder: pathlib.Path) -> None:
    """No link leads to it, and it stays with its cards."""
    path = folder / "local"
    made = setup(path, cards="2x16GiB")
    others = [setup(path, cards="8GiB"), setup(path)]

    assert made.returncode == 0, made.stderr
    assert f"`partage doctor` with PARTAGE_STATE={path} shows" in made.stdout
    assert list(VAR_LIB.iterdir()) == []
    assert [done.returncode for done in others] == [1, 1]
    assert "is of simulated cards (2x16GiB), not of simulated cards (8GiB)" in others[0].stderr
    assert "is of simulated cards (2x16GiB), not of real cards" in others[1].stderr
    assert all("or name another folder by --state" in done.stderr for done in others)


def test_a_ledger_of_real_cards_does_not_become_one_of_simulated_cards(
    folder: pathlib.Path,
) -> None:
    """Its members would be refused from then on."""
    setup(folder / "local")

    done = setup(folder / "local", cards="8GiB")

    assert done.returncode == 1
    assert "is of real cards, not of simulated cards (8GiB)" in done.stderr


def test_the_group_of_the_system_is_refused(folder: pathlib.Path) -> None:
    """Nobody could become a member without getting at the files of the system."""
    done = setup(folder / "local", "--group", "root")

    assert done.returncode == 2
    assert "--group: root is the group of the system itself" in done.stderr
    assert list(folder.iterdir()) == []
