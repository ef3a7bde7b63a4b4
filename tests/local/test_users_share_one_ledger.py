"""Two users of one machine, for real: they see each other, share the cards, and undo nothing."""

from __future__ import annotations

import os
import pathlib
import sys

import msgspec
import pytest

from partage.core import grants
from partage.local.ledger import ledger
from partage.local.state import leases
from tests.local import foreign_programs, sites, users
from tests.local.shared_machine import ALICE, BOB, GROUP, STRANGER, Machine

GIB = 1024  # MiB


def test_one_sees_what_the_other_has_and_uses(machine: Machine) -> None:
    """Names, shares, and the use that the fence of another user's program counts."""
    machine.alice.using(1024, "--memory", "4GiB", "--name", "train")

    (seen,) = machine.bob.view()["tenants"]

    assert (seen["name"], seen["user"], seen["memory_mib"]) == ("train", str(ALICE), 4 * GIB)
    assert seen["used_bytes"] >= 1024 << 20
    assert machine.bob.view()["shared"] is True
    assert "train" in machine.root.partage("ps").stdout


def test_cards_are_shared_without_overlap(machine: Machine) -> None:
    """Six ask for 6 GiB each at once: two fit on each card, and the others wait."""
    started = [
        user.run("--memory", "6GiB", "--name", f"{name}-{i}", command=["sleep", "600"])
        for i in range(3)
        for name, user in (("a", machine.alice), ("b", machine.bob))
    ]
    sites.eventually(lambda: len(machine.root.view()["waiting"]) == 2)

    view = machine.bob.view()
    assert len(view["tenants"]) == 4
    assert [card["granted_mib"] for card in view["cards"]] == [12 * GIB, 12 * GIB]
    assert all(process.poll() is None for process in started)


def test_one_waits_until_the_other_ends(machine: Machine) -> None:
    """Even if the other was killed."""
    held = machine.alice.holding("--exclusive", "--cards", "all", "--name", "all")
    waits = machine.bob.run(
        "--memory", "8GiB", "--name", "next", command=["sh", "-c", "echo started; id -u"]
    )
    sites.eventually(lambda: machine.alice.names("waiting") == ["next"])
    assert waits.poll() is None

    held.kill()
    out, err = waits.communicate(timeout=sites.PATIENCE_S)

    assert (waits.returncode, out) == (0, f"started\n{BOB}\n"), err
    assert "held by all" in err


SHARE = "CAST(replace(CAST(grant_json AS TEXT), '16384', '{}') AS BLOB)"
CHANGES = {
    "deleted": "DELETE FROM entries",
    "taken away": "UPDATE entries SET grant_json = NULL, granted_at = NULL",
    "somebody else's": f"UPDATE entries SET uid = {BOB}, name = 'mine', pid = 1, priority = 9",
    "garbage": "UPDATE entries SET demand = x'00', grant_json = x'7b'",
    "smaller": f"UPDATE entries SET grant_json = {SHARE.format(1)}",
    "below nothing": f"UPDATE entries SET grant_json = {SHARE.format(-16384)}",
}
WRITE = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as book:
    print(book.execute(sys.argv[2]).rowcount)
"""


@pytest.mark.parametrize("change", CHANGES)
def test_nobody_releases_what_another_has(machine: Machine, change: str) -> None:
    """Members who write into the ledger by hand gain nothing: the next decision undoes it."""
    machine.alice.holding("--memory", "100%", "--cards", "2", "--name", "all")
    machine.bob.partage("run", "--memory", "1GiB", "--no-wait", "--", "true")  # a decision
    before = machine.entry("all")
    assert machine.bob.python(WRITE, machine.root.state().ledger, CHANGES[change]) == "1"

    done = machine.bob.partage("run", "--memory", "1GiB", "--no-wait", "--", "true")

    assert done.returncode == 75, done.stderr
    assert "no room" in done.stderr
    after = machine.entry("all")
    assert msgspec.structs.replace(after, seq=before.seq) == before


def test_what_others_write_about_one_who_waits_is_not_believed(machine: Machine) -> None:
    """A waiter says itself whose it is and what it wants; a share below nothing makes no room."""
    machine.alice.holding("--exclusive", "--cards", "all", "--name", "all")
    machine.alice.run("--memory", "4GiB", "--name", "next", command=["sleep", "600"])
    sites.eventually(lambda: machine.bob.names("waiting") == ["next"])
    waiting, holder = machine.entry("next"), machine.entry("all")
    assert holder.grant is not None
    share = msgspec.structs.replace(holder.grant.containers[0].shares[0], memory_mib=-16 * GIB)
    forged = grants.Grant(
        pod=grants.Pod(uid=waiting.token, namespace="", name="next"),
        node=holder.grant.node,
        containers=(grants.ContainerGrant(name="main", shares=(share,)),),
        dialect="partage",
        policy="priced",
    )
    change = "UPDATE entries SET priority = -5, granted_at = 1.0, grant_json = CAST('{}' AS BLOB) "
    text = msgspec.json.encode(forged).decode()
    script = change.replace("{}", text) + "WHERE name = 'next'"
    assert machine.bob.python(WRITE, machine.root.state().ledger, script) == "1"

    done = machine.bob.partage("run", "--memory", "1GiB", "--no-wait", "--", "true")

    assert done.returncode == 75, done.stderr
    assert machine.entry("next") == waiting


@pytest.mark.parametrize(
    "attempt",
    [
        "os.unlink(lease)",
        "os.rename(lease, lease + '0')",
        "open(lease, 'r+')",
        "open(limits, 'r+')",
        "os.unlink(limits)",
        "os.rename(os.path.dirname(limits), os.path.dirname(limits) + '0')",
        "open(os.path.join(os.path.dirname(limits), 'region'), 'r+')",
        "os.rename(os.path.join(place, 'leases'), os.path.join(place, 'old'))",
        "os.unlink(os.path.join(place, 'ledger.db'))",
        "os.unlink(os.path.join(place, 'ledger.db-wal'))",
        "open(f'/proc/{pid}/environ').read()",
        "os.kill(pid, 9)",
    ],
)
def test_nobody_touches_the_files_or_processes_of_another(machine: Machine, attempt: str) -> None:
    """The kernel says so, whatever a member tries."""
    process = machine.alice.using(64, "--memory", "4GiB", "--name", "train")
    entry, state = machine.entry("train"), machine.root.state()
    script = f"""
import os, sys
place, lease, limits, pid = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
{attempt}
"""
    lease, limits = state.leases / entry.token, state.fence / "tenants" / entry.tenant / "limits"
    said = machine.bob.python(script, state.path, lease, limits, process.pid)

    assert said.startswith("PermissionError: "), said
    assert lease.exists()
    assert limits.exists()
    assert machine.bob.names() == ["train"]


def test_nothing_of_the_environment_is_written_down(machine: Machine) -> None:
    """Not in the lease, not in the ledger, not beside the fence."""
    secret = "tell-nobody-of-this"
    machine.alice.holding("--memory", "4GiB", "--name", "train", env={"TOKEN": secret})

    state = machine.root.state()
    written = [file for file in state.path.rglob("*") if file.is_file() and file.name != "machine"]

    assert state.leases / machine.entry("train").token in written
    assert not [file for file in written if secret.encode() in file.read_bytes()]


def test_a_stranger_is_told_and_gets_no_ledger_of_their_own(
    machine: Machine, tmp_path: pathlib.Path
) -> None:
    """Two ledgers would give the same card away twice."""
    done = machine.stranger.partage("run", "--memory", "1GiB", "--", "true")
    home = machine.root.folder.parent / "home"
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    said = machine.stranger.python(
        "import pathlib, sys\n"
        "from partage.local.state import location\n"
        "location.find({'XDG_STATE_HOME': sys.argv[1]}, shared=pathlib.Path(sys.argv[2]))",
        *(home, machine.root.folder),
    )

    message = (
        f"{machine.root.folder} is for the members of group {GROUP}, and you are not one of them; "
    )
    assert done.returncode == 1
    assert done.stderr == (
        f"partage: {message}ask for `sudo usermod -aG {GROUP} {STRANGER}`, and log in again\n"
    )
    assert message in said
    assert list(home.iterdir()) == []


def test_the_ledger_stays_in_the_hands_of_root(machine: Machine) -> None:
    """With its companions, whoever is the last to close it.

    Were they a member's, kernels with fs.protected_regular=2 would keep others from opening them.
    """
    expected = {f"ledger.db{suffix}": (0, machine.gid, 0o100660) for suffix in ("", "-wal", "-shm")}
    for last in (machine.alice, machine.root, machine.bob):
        assert last.partage("run", "--memory", "1GiB", "--", "true").returncode == 0
        statuses = {file.name: file.stat() for file in machine.root.folder.glob("ledger.db*")}
        assert {
            name: (status.st_uid, status.st_gid, status.st_mode)
            for name, status in statuses.items()
        } == expected


def test_root_clears_up_after_others(machine: Machine) -> None:
    """Members remove what is theirs; `partage setup`, run again, removes all that has ended."""
    machine.alice.partage("run", "--memory", "1GiB", "--", "true")
    state = machine.root.state()
    machine.bob.partage("run", "--memory", "1GiB", "--", "true")
    assert {
        state.leases.joinpath(token).stat().st_uid for token in leases.tokens(state.leases)
    } == {*(ALICE, BOB)}
    assert "ended programs of others have left files" in machine.bob.partage("doctor").stdout

    assert "leases: repaired (2 of ended programs were removed)" in machine.set_up()
    assert leases.tokens(state.leases) == []
    assert list((state.fence / "tenants").iterdir()) == []
    with ledger.opened(state) as book:
        assert book.all() == []


def test_what_a_hidden_process_uses_is_not_given_away(machine: Machine) -> None:
    """Where users do not see the processes of others, those on the cards still count."""
    hiding = "mount -t proc -o hidepid=2 proc /proc"
    bob = users.User(machine.root.folder.parent, BOB, machine.gid, mounting=hiding)
    machine.alice.using(64, "--memory", "1GiB", "--name", "train")
    with foreign_programs.on(machine.root) as strangers:
        strangers.using(12 * GIB, card=0)
        strangers.using(12 * GIB, card=1)

        view = bob.view()
        done = bob.partage("run", "--memory", "8GiB", "--no-wait", "--", "true")

    assert all(card["foreign_mib"] >= 12 * GIB for card in view["cards"])
    assert [row["user"] for row in view["foreign"]] == [None, None]
    assert [(row["name"], row["command"]) for row in view["tenants"]] == [("train", None)]
    assert done.returncode == 75, done.stderr
    bob.end()


def test_root_in_the_place_of_a_user_does_not_lock_the_user_out(open_folder: pathlib.Path) -> None:
    """``sudo -E partage run`` in a user's place: its fence holds, and the user runs as before."""
    open_folder.chmod(0o777)
    alice, root = users.User(open_folder, ALICE), sites.Site(open_folder)
    share = ("--card", "0", "--memory", "2GiB", "--")
    try:
        assert alice.partage("ps").returncode == 0
        done = root.partage("run", *share, sys.executable, sites.PROGRAM, "try", "4096")
        assert done.stdout == "error 2\n", done.stderr
        done = alice.partage("run", *share, "echo", "ran")
        assert done.stdout == "ran\n", done.stderr
        assert len(list(alice.folder.glob("fence/tenants/*"))) == 1  # hers; root's is cleared up
    finally:
        alice.end()
        root.end()
