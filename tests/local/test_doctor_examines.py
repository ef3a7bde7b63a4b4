"""``partage doctor`` on machines where something is wrong, run as people run it."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import pty
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from partage.fence.library import aliases, libpartage, originals
from partage.local.doctor import card_checks, examination, findings, ledger_checks
from partage.local.state import location
from tests import leaving_out, simulated_machines
from tests.local import foreign_programs, installations, sites, users

SOMEBODY, OTHER, NAMED = 54_021, 54_022, 54_023
RUN = ("run", "--memory", "1GiB", "--", "true")
GROUP = f"partage-doctor-{os.getpid()}"


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, tuple[str, str]]:
    """Status and text by what was examined."""
    assert "Traceback" not in done.stderr
    lines = [line.split("  ", 1) for line in done.stdout.splitlines()]
    rows = [(status, *rest.strip().split("  ", 1)) for status, rest in lines]
    return {what: (status, text.strip()) for status, what, text in rows}


def simsmi(site: sites.Site, *arguments: str) -> None:
    """Do something to a simulated machine."""
    environment = site.environment | {
        "SIMCUDA_CARDS": site.environment["PARTAGE_SIMULATE"],
        "SIMCUDA_STATE": str(site.state().path / "machine"),
    }
    subprocess.run(
        [simulated_machines.LIBRARIES / "simsmi", *arguments], env=environment, check=True
    )


@pytest.fixture
def shared(open_folder: pathlib.Path) -> Iterator[sites.Site]:
    """A machine that root set up for a group."""
    site = sites.Site(open_folder)
    setup = ("setup", "--group", GROUP, "--state", site.folder)
    assert site.partage(*setup).returncode == 0
    yield site
    site.end()
    subprocess.run(["groupdel", GROUP], check=False, capture_output=True)


def test_a_machine_that_is_well_has_a_line_for_each(site: sites.Site) -> None:
    """Simulated cards say so; the exit code is 0."""
    site.holding("--memory", "4GiB")

    done = site.partage("doctor", env={"PATH": f"{sites.PARTAGE.parent}:{os.environ['PATH']}"})

    report = report_of(done)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(report) == [
        *("driver", "card 0", "card 1", "foreign"),
        *("fence driver", "fence mps", "fence hook", "fence advisory", "library"),
        "cuda",
        *("ledger", "disk", "permissions", "leases", "waiting", "processes", "command", "share"),
    ]
    assert {status for status, _ in report.values()} == {"ok"}
    assert report["driver"][1] == "615.71, simulated"
    assert report["card 1"][1] == "Simulated GPU, 16384 MiB, simulated"
    assert "version 1: 1 run, 0 wait; yours alone" in report["ledger"][1]
    assert "\x1b" not in done.stdout


def test_programs_read_the_same(site: sites.Site) -> None:
    """Each with object, status, text and remedy."""
    done = site.partage("doctor", "-o", "json")

    examined = json.loads(done.stdout)
    rows = examined["findings"]
    assert (examined["apiVersion"], examined["kind"]) == ("output.partage.dev/v1", "Examination")
    assert {frozenset(row) for row in rows} == {frozenset({"object", "status", "text", "remedy"})}
    assert all(row["remedy"] for row in rows if row["status"] != "ok")


def test_without_a_driver_the_rest_is_told(site: sites.Site) -> None:
    """With both ways out, and exit code 1."""
    simsmi(site, "unload")

    done = site.partage("doctor")

    report = report_of(done)
    assert done.returncode == 1
    status, text = report["driver"]
    assert status == "problem"
    assert "modprobe nvidia" in text
    assert "partage --simulate 2x16GiB" in text
    assert "card 0" not in report
    assert report["ledger"][0] == "ok"


@pytest.mark.parametrize(
    ("harm", "says"),
    [(["xid", "0", "48"], "reset the card"), (["lose", "0"], "GPU is lost")],
)
def test_an_unhealthy_card_is_a_problem(site: sites.Site, harm: list[str], says: str) -> None:
    """The other is well."""
    simsmi(site, *harm)

    done = site.partage("doctor")

    report = report_of(done)
    assert done.returncode == 1
    assert report["card 0"][0] == "problem", report
    assert says in report["card 0"][1], report
    assert report["card 1"][0] == "ok"


def test_foreign_processes_are_counted(site: sites.Site) -> None:
    """With their memory; a note, as nothing is broken."""
    with foreign_programs.on(site) as strangers:
        strangers.using(1024)
        done = site.partage("doctor")

    status, text = report_of(done)["foreign"]
    assert (done.returncode, status) == (0, "note")
    assert text.startswith("1 process that Partage did not start uses 1280 MiB; ")


def _newer(path: pathlib.Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as book:
        book.execute("PRAGMA user_version = 99")


def _no_ledger(path: pathlib.Path) -> None:
    path.write_bytes(b"a diary, and no ledger at all\n" * 200)


def _holes(path: pathlib.Path) -> None:
    content = bytearray(path.read_bytes())
    content[5000:] = b"\xff" * (len(content) - 5000)
    path.write_bytes(content)


def _folder(path: pathlib.Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (_newer, "has version 99, and this Partage supports up to 1"),
        (_no_ledger, "is not a ledger"),
        (_holes, "damaged"),
        (_folder, "cannot be read or written"),
    ],
)
def test_a_bad_ledger_is_a_problem(
    site: sites.Site, harm: Callable[[pathlib.Path], None], says: str
) -> None:
    """With a remedy, and the rest is told."""
    assert site.partage("run", "--memory", "1GiB", "--", "true").returncode == 0
    harm(site.state().ledger)

    done = site.partage("doctor")

    report = report_of(done)
    assert (done.returncode, report["ledger"][0]) == (1, "problem")
    assert says in report["ledger"][1]
    assert "; " in report["ledger"][1]
    assert report["card 0"][0] == "ok"


@pytest.mark.parametrize(
    ("mounting", "says"),
    [
        ("mount --bind {0} {0} && mount -o remount,bind,ro {0}", "Read-only file system; mount it"),
        (
            "mount -t tmpfs -o size=99k none {0} && (cat /dev/zero > {0}/x || true) 2> /dev/null",
            "No space left on device; make room",
        ),
    ],
    ids=["read-only", "full"],
)
def test_a_disk_that_takes_nothing_is_a_problem(
    site: sites.Site, tmp_path: pathlib.Path, mounting: str, says: str
) -> None:
    """Which is tried, and not guessed."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        leaving_out.leave_out("another mount namespace", "only root makes one")
    script = (
        f"{mounting.format(site.state().path)} && exec {shlex.quote(str(sites.PARTAGE))} doctor"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        env=site.environment | {"SIMCUDA_STATE": str(tmp_path / "machine")},
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )

    report = report_of(done)
    assert (done.returncode, report["disk"][0]) == (1, "problem"), done
    assert says in report["disk"][1]
    assert report["permissions"] == ("ok", f"{site.folder} is yours"), "no mode is wrong"


def test_a_network_file_system_is_a_problem(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its type; here there is none to mount."""
    monkeypatch.setattr(location, "filesystem", lambda _path: "nfs4")
    around = findings.Context({location.VARIABLE: str(tmp_path)}, None)

    (finding,) = ledger_checks.disk(around)

    assert finding.status is findings.Status.PROBLEM
    assert "network file system (nfs4)" in finding.text


def test_a_member_is_told_what_is_shared(shared: sites.Site) -> None:
    """By its group; wrong modes are a problem that root puts right."""
    member = users.User(shared.folder.parent, SOMEBODY, shared.folder.stat().st_gid)

    well = report_of(member.partage("doctor"))
    (shared.folder / "leases").chmod(0o2777)
    wrong = report_of(member.partage("doctor"))

    assert well["permissions"] == (
        "ok",
        f"you may use {shared.folder}, as a member of {GROUP}",
    )
    assert well["ledger"][1].endswith(f"0 run, 0 wait; shared by group {GROUP}")
    assert wrong["permissions"] == (
        "problem",
        f"{shared.folder}/leases: mode 2777 instead of 3770; `sudo partage setup`",
    )


@pytest.fixture
def own(open_folder: pathlib.Path) -> Iterator[users.User]:
    """A user with their own place, in which something has run."""
    open_folder.chmod(0o777)
    user = users.User(open_folder, SOMEBODY)
    assert user.partage(*RUN).returncode == 0
    yield user
    user.end()


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("leases", 0o500),
        ("fence", 0o000),
        ("fence/tenants", 0o500),
        ("fence/lock", 0o000),
        ("ledger.db", 0o400),
        (".", 0o500),
    ],
)
def test_a_user_who_is_kept_from_their_own_place_is_told(
    own: users.User, name: str, mode: int
) -> None:
    """With what puts it right, and nothing sends the user to the doctor."""
    (own.folder / name).chmod(mode)

    done = own.partage("doctor")

    status, text = report_of(done)["permissions"]
    says, remedy = text.split("; ")
    assert (done.returncode, status) == (1, "problem")
    assert says.startswith(f"you may not read and write {own.folder / name}")
    assert "partage doctor" not in done.stdout
    assert own.partage(*RUN).returncode == 1
    subprocess.run(["sh", "-c", remedy.strip("`")], check=True)
    assert own.partage(*RUN).returncode == 0


@pytest.mark.parametrize("name", ["ledger.db-wal", "ledger.db-shm"])
def test_a_companion_of_the_ledger_that_cannot_be_written_is_told(
    own: users.User, name: str
) -> None:
    """It is there while somebody has the ledger open, as one who waits has."""
    own.holding("--exclusive", "--cards", "2")
    own.run("--memory", "1GiB", command=["true"])
    sites.eventually((own.folder / name).exists)
    (own.folder / name).chmod(0o400)

    text = report_of(own.partage("doctor"))["permissions"][1]

    path = own.folder / name
    assert text == f"you may not read and write {path}; `chmod u+rwX {path}`"


def test_what_root_has_left_in_the_place_of_a_user_is_told(own: users.User) -> None:
    """The user cannot put that right."""
    (own.folder / "fence/seats/GPU-x").mkdir(mode=0o755)

    status, text = report_of(own.partage("doctor"))["permissions"]

    assert status == "problem"
    assert text.endswith(f"fence/seats/GPU-x; `sudo chown -R {SOMEBODY} {own.folder}`")


def test_a_stranger_is_told_how_to_become_a_member(shared: sites.Site) -> None:
    """Everything else is still examined."""
    stranger = users.User(shared.folder.parent, OTHER)

    done = stranger.partage("doctor", env={"PARTAGE_SIMULATE": ""})

    report = report_of(done)
    assert done.returncode == 1
    assert f"`sudo usermod -aG {GROUP} {OTHER}`, and log in again" in report["permissions"][1]
    assert (
        f"is for the members of group {GROUP}, and you are not one of them" in report["ledger"][1]
    )
    assert report["waiting"][0] == "ok"


@pytest.mark.parametrize("cards", ["", "2x16GiB"])
def test_a_folder_that_cannot_be_entered_hides_nothing_else(
    shared: sites.Site, tmp_path: pathlib.Path, cards: str
) -> None:
    """Every line is there, none asks for a report of a mistake, and none sends one to doctor."""
    shared.folder.parent.joinpath("closed").mkdir(mode=0o700)
    user = users.User(shared.folder.parent, OTHER)
    named = str(shared.folder.parent / "closed" / "state")

    done = user.partage("doctor", env={"PARTAGE_SIMULATE": cards, "PARTAGE_STATE": named})

    report = report_of(done)
    assert done.returncode == 1
    assert {"driver", "ledger", "disk", "permissions", "waiting", "share"} <= set(report)
    assert report["ledger"][0] == "problem"
    assert "please report it" not in done.stdout
    assert "partage doctor" not in done.stdout


def test_a_member_since_the_login_is_told_to_log_in_again(shared: sites.Site) -> None:
    """The user database knows it, and the user's processes do not."""
    name = f"partage-{os.getpid()}"
    add = ["useradd", "--no-create-home", "--uid", str(NAMED), "--groups", GROUP, name]
    subprocess.run(add, check=True, capture_output=True)
    try:
        user = users.User(shared.folder.parent, NAMED)
        report = report_of(user.partage("doctor", env={"PARTAGE_SIMULATE": ""}))
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)

    status, text = report["permissions"]
    assert status == "problem"
    assert text == (
        f"{name} is a member of group {GROUP}, but this login does not know it yet; "
        f"log in again, or `newgrp {GROUP}`"
    )


def test_what_ended_programs_of_others_left_is_noted(shared: sites.Site) -> None:
    """A killed one's lease stays until its owner or root comes by."""
    gid = shared.folder.stat().st_gid
    owner, other = (users.User(shared.folder.parent, uid, gid) for uid in (SOMEBODY, OTHER))
    owner.holding("--memory", "1GiB").kill()
    owner.end()

    assert report_of(owner.partage("doctor"))["leases"] == (
        "ok",
        "1 of ended programs; the next `partage run` removes them",
    )
    status, text = report_of(other.partage("doctor"))["leases"]
    assert status == "note"
    assert text == (
        f"ended programs of others have left files: 1 of {SOMEBODY}; "
        "they or root can remove them: `sudo partage setup`"
    )


def test_hidden_processes_are_noted(shared: sites.Site) -> None:
    """Their commands are not seen then."""
    hiding = "mount -t proc -o hidepid=2 proc /proc"
    gid = shared.folder.stat().st_gid
    member = users.User(shared.folder.parent, SOMEBODY, gid, mounting=hiding)

    status, text = report_of(member.partage("doctor"))["processes"]

    assert status == "note"
    assert "hidepid" in text


def test_a_kernel_that_wakes_nobody_is_noted(shared: sites.Site) -> None:
    """A user has only so many inotify instances; here they are all taken."""
    member = users.User(shared.folder.parent, SOMEBODY, shared.folder.stat().st_gid)
    taking = f"""
import ctypes, os, resource
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
libc = ctypes.CDLL(None)
while libc.inotify_init1(0) >= 0:
    pass
os.execv({str(sites.PARTAGE)!r}, ["partage", "doctor"])
"""
    process = member.program(sys.executable, "-c", taking)
    out, err = process.communicate(timeout=sites.PATIENCE_S)

    report = report_of(subprocess.CompletedProcess([], process.returncode, out, err))
    assert report["waiting"][0] == "note"
    assert "max_user_instances" in report["waiting"][1]


def test_inside_a_share_it_is_noted_and_the_machine_is_seen_whole(site: sites.Site) -> None:
    """Not through the fence, where a card is as large as the share."""
    done = site.partage(
        *("run", "--memory", "4GiB", "--name", "shell", "--"), sites.PARTAGE, "doctor"
    )

    report = report_of(done)
    assert report["share"][0] == "note"
    assert "part of shell" in report["share"][1]
    assert report["card 0"][1] == "Simulated GPU, 16384 MiB, simulated"
    assert "1 run" in report["ledger"][1]


def _cut(whole: bytes) -> bytes:
    return whole[:4096]


def _of_others(whole: bytes) -> bytes:
    """It wants a C library that is not here."""
    return whole.replace(b"libc.so.6\0", b"libc.so.9\0")


@pytest.mark.parametrize(
    ("change", "says"), [(_cut, "is damaged"), (_of_others, "libc.so.9: cannot open")]
)
def test_a_library_that_cannot_be_loaded_is_a_problem(
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[bytes], bytes],
    says: str,
) -> None:
    """The loader tries it; what looks like one need not be."""
    folder = _installed(tmp_path)
    (folder / libpartage.NAME).write_bytes(change(simulated_machines.FENCE.read_bytes()))
    monkeypatch.setattr(libpartage, "folder", lambda: folder)

    (finding,) = card_checks.library(findings.Context({}, None))

    assert finding.status is findings.Status.PROBLEM
    assert says in finding.text


def test_a_library_in_a_path_with_a_blank_is_well(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loader's list cannot name it, and programs do not load it by that name either."""
    folder = _installed(tmp_path / "a folder")
    monkeypatch.setattr(libpartage, "folder", lambda: folder)
    others = aliases.named(folder)  # a program that runs has it
    before = set(others.parent.iterdir())

    (finding,) = card_checks.library(findings.Context({}, None))

    assert finding.status is findings.Status.OK
    assert others.readlink() == folder
    assert {path for path in others.parent.iterdir() if path.exists()} <= before
    aliases.forget(folder)


def test_simulated_cards_without_their_cuda_are_a_problem(
    site: sites.Site, tmp_path: pathlib.Path
) -> None:
    """NVML alone shows cards that no program could use."""
    site.environment |= installations.without_library(tmp_path)
    lib = tmp_path / "without-library/partage/lib"
    (lib / "simulated").unlink()
    (lib / "simulated").mkdir()
    for part in simulated_machines.LIBRARIES.iterdir():
        if not part.name.startswith("libcuda"):
            (lib / "simulated" / part.name).symlink_to(part)

    done = site.partage("doctor")

    assert done.returncode == 1
    assert report_of(done)["card 0"][0] == "ok"
    status, text = report_of(done)["cuda"]
    what, remedy = text.split("; ")
    assert status == "problem"
    assert (
        what == f"{lib}/simulated/libcuda.so.1 cannot be loaded: programs find no simulated cards"
    )
    assert remedy == "run `make native` in a checkout, or install Partage from a wheel"


@pytest.mark.parametrize("has_cuda", [True, False])
def test_a_driver_without_cuda_is_a_problem(
    site: sites.Site, tmp_path: pathlib.Path, has_cuda: bool
) -> None:
    """What only has NVML has nothing for the fence to stand in the place of."""
    if not has_cuda and originals.CUDA in originals.find({}):
        leaving_out.leave_out("a machine without CUDA", "its libcuda.so.1 is found by everybody")
    driver = tmp_path / "driver"
    driver.mkdir()
    for part in simulated_machines.LIBRARIES.iterdir():
        if has_cuda or not part.name.startswith("libcuda"):
            shutil.copy(part, driver)
    cards = {"SIMCUDA_CARDS": "1x16GiB", "SIMCUDA_STATE": str(tmp_path / "machine")}
    real = {"PARTAGE_SIMULATE": "", "LD_LIBRARY_PATH": str(driver), **cards}

    status, text = report_of(site.partage("doctor", env=real))["cuda"]

    if has_cuda:
        assert (status, text) == ("ok", f"{driver}/libcuda.so.1")
    else:
        assert status == "problem"
        assert "libcuda.so.1 for this machine was not found" in text
        assert "`sudo ldconfig`, or name its folder in LD_LIBRARY_PATH" in text


def _installed(folder: pathlib.Path) -> pathlib.Path:
    """All libraries of an installation."""
    folder.mkdir(exist_ok=True)
    shutil.copy(simulated_machines.FENCE, folder)
    (folder / libpartage.SUBSTITUTES).symlink_to(
        simulated_machines.FENCE.parent / libpartage.SUBSTITUTES
    )
    return folder


def test_an_examination_that_fails_is_a_problem_of_its_own(tmp_path: pathlib.Path) -> None:
    """The others are told."""

    def broken(_around: findings.Context) -> Iterator[findings.Finding]:
        yield findings.ok("first", "this much is known")
        raise ZeroDivisionError("by zero")

    report = examination.examine(
        {location.VARIABLE: str(tmp_path / "place")},
        examinations=(("broken", broken), *examination.EXAMINATIONS),
    )

    assert [finding.object for finding in report[1:3]] == ["first", "broken"]
    assert report[2].status is findings.Status.PROBLEM
    assert "ZeroDivisionError: by zero" in report[2].text
    assert report[-1].object == "share"


def test_nothing_is_made_by_asking(tmp_path: pathlib.Path, site: sites.Site) -> None:
    """A user who has no ledger has none afterwards."""
    where = tmp_path / "nothing"
    done = site.partage("doctor", env={"PARTAGE_SIMULATE": "", "PARTAGE_STATE": str(where)})

    assert report_of(done)["ledger"] == ("ok", f"{where}: the first `partage run` makes it")
    assert not where.exists()


def test_a_partage_that_no_shell_finds_is_noted(site: sites.Site) -> None:
    """With the folder to add."""
    report = report_of(site.partage("doctor", env={"PATH": "/usr/bin:/bin"}))

    assert report["command"] == (
        "note",
        f"`partage` is not in the PATH; add {sites.PARTAGE.parent} to it",
    )


def test_colours_are_for_terminals(site: sites.Site) -> None:
    """And for those who want them."""
    assert b"\x1b[32mok\x1b[0m" in _on_a_terminal(site)
    assert b"\x1b" not in _on_a_terminal(site, NO_COLOR="1")


def _on_a_terminal(site: sites.Site, **environment: str) -> bytes:
    ours, theirs = pty.openpty()
    process = site.start("doctor", stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    said = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while True:
            said += os.read(ours, 65536)
    os.close(ours)
    process.wait(timeout=sites.PATIENCE_S)
    return said
