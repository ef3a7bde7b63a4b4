"""``partage fence``, run as people run it: as a process."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile

import pytest

from partage.fence.store import layout, limits, locks, roots, shared_files, tenants
from partage.local.state import location
from tests import leaving_out
from tests.local import sites, users

MIB = 1 << 20
CARD = "GPU-01234567-89ab-cdef-0123-456789abcdef"
OTHER = "GPU-00000000-0000-4000-8000-000000000002"
SOMEBODY = 54_041
COMMAND = [sys.executable, "-c", "from partage.cli.main import main; main()", "fence"]


def partage(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``partage fence`` in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **environment},
    )


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """A root with two tenants."""
    root = roots.prepare(tmp_path / "root")
    quota = limits.CardLimits(uuid=CARD, memory_bytes=2048 * MIB)
    tenants.create(root, "job-17", limits.Limits((quota, limits.CardLimits(uuid=OTHER))))
    tenants.create(root, "job-18", limits.Limits((quota,)))
    return root


def test_levels_are_shown_with_reasons() -> None:
    """One line for each, the strongest first; what is missing has a remedy."""
    result = partage("levels")

    assert result.returncode == 0, result.stderr
    header, *lines = result.stdout.splitlines()
    assert header.split("  ")[0] == "LEVEL"
    assert [line.split()[0] for line in lines] == ["driver", "mps", "hook", "advisory"]
    assert [line.split()[1] for line in lines][-1] == "yes"
    assert "\x1b" not in result.stdout


def test_levels_are_json_for_programs() -> None:
    """With what each of them holds."""
    printed = json.loads(partage("levels", "-o", "json").stdout)

    assert printed["apiVersion"] == "output.partage.dev/v1"
    assert printed["kind"] == "FenceLevels"
    levels = printed["levels"]
    assert [level["level"] for level in levels] == ["driver", "mps", "hook", "advisory"]
    assert levels[2]["holds"] == {"memory": "tenant", "compute": "tenant", "live": True}
    assert levels[3] == {
        "level": "advisory",
        "available": True,
        "reason": "",
        "remedy": "",
        "holds": {"memory": "nobody", "compute": "nobody", "live": False},
    }
    for level in levels:
        assert level["available"] or (level["reason"] and level["remedy"])
    assert not levels[0]["available"]
    assert not levels[1]["available"]


def _on_a_terminal(*arguments: str, **environment: str) -> bytes:
    """What it prints there."""
    ours, theirs = pty.openpty()
    line = [*COMMAND, *arguments]
    with subprocess.Popen(
        line, stdout=theirs, stderr=theirs, env={**os.environ, **environment}
    ) as running:
        os.close(theirs)
        said = b""
        while True:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert running.returncode == 0
    return said


def test_colours_are_for_terminals() -> None:
    """And for those who want them."""
    assert b"\x1b[1mLEVEL" in _on_a_terminal("levels")
    assert b"\x1b" not in _on_a_terminal("levels", NO_COLOR="1")


def test_show_prints_cards_and_processes(root: roots.Root) -> None:
    """Who uses what, and may; the quota and what was refused because of it."""
    region = root.tenants / "job-17" / "region"
    with shared_files.mapped(region, layout.Region) as written:
        written.slots_used = 1
        written.slot[0].pid = 4711
        written.used_bytes[0][0] = 1024 * MIB
        written.card[0].peak_bytes, written.card[0].refused = 1500 * MIB, 2
        written.card[0].throttled_ns, written.card[0].throttled = 2_500_000_000, 9
    with region.open("r+b") as living:
        assert locks.take(living.fileno(), 0)
        result = partage("show", "--root", root.path)

    assert result.returncode == 0, result.stderr
    cards, processes = result.stdout.split("\n\n")
    assert cards.splitlines()[0].split() == [
        *("TENANT", "CARD", "USED(MiB)", "PEAK(MiB)", "QUOTA(MiB)", "REFUSED"),
        *("COMPUTE", "LAUNCHES", "WAITED", "WAITED(s)", "BUSY(s)"),
    ]
    assert cards.splitlines()[1].split() == [
        *("job-17", CARD, "1024", "1500", "2048", "2", "all", "0", "9", "2.5", "0.0")
    ]
    assert cards.splitlines()[2].split()[:5] == ["job-17", OTHER, "0", "0", "all"]
    assert cards.splitlines()[3].split()[0] == "job-18"
    assert processes.splitlines()[1].split() == ["job-17", "4711", CARD, "1024"]


def test_show_can_be_for_one_tenant_and_for_programs(root: roots.Root) -> None:
    """The same numbers, in bytes."""
    result = partage("show", "job-18", "--root", root.path, "-o", "json")

    printed = json.loads(result.stdout)
    assert printed["apiVersion"] == "output.partage.dev/v1"
    assert printed["kind"] == "FenceUsage"
    assert printed["problems"] == []
    assert [tenant["tenant"] for tenant in printed["tenants"]] == ["job-18"]
    assert printed["tenants"][0]["cards"][0]["quota_bytes"] == 2048 * MIB


def test_show_goes_on_past_a_tenant_that_cannot_be_read(root: roots.Root) -> None:
    """It is listed with what is wrong."""
    os.truncate(root.tenants / "job-17" / "limits", 3)

    result = partage("show", "--root", root.path)

    assert result.returncode == 0
    assert "job-18" in result.stdout
    assert "has only 3 bytes" in result.stdout.split("\n\n")[-1]


def test_nobody_is_told_on_stderr(tmp_path: pathlib.Path) -> None:
    """An empty root is no error, and prints no table; the variable names a root too."""
    roots.prepare(tmp_path)

    result = partage("show", PARTAGE_ROOT=str(tmp_path))

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"No tenants under {tmp_path}.\n"


@pytest.mark.parametrize("arguments", [[], ["mine"]])
def test_show_finds_those_of_this_machines_programs(
    tmp_path: pathlib.Path, arguments: list[str]
) -> None:
    """`partage run` keeps its fences beside its ledger; nobody has to know where that is."""
    _need_no_tenants()
    place = location.opened(tmp_path / "state")
    mine = limits.Limits((limits.CardLimits(uuid=CARD, memory_bytes=512 * MIB),))
    tenants.create(roots.find(place.fence), "mine", mine)

    with (place.fence / "tenants" / "mine" / "region").open("r+b") as living:
        assert locks.take(living.fileno(), 0)
        result = partage("show", *arguments, PARTAGE_STATE=str(place.path))

    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[1].split()[:5] == ["mine", CARD, "0", "0", "512"]


def test_show_leaves_out_who_has_ended(tmp_path: pathlib.Path) -> None:
    """Users name a program to see what it has used, until the next run clears up."""
    site = sites.Site(tmp_path)
    try:
        site.holding("--memory", "1GiB", "--name", "runs")
        assert site.partage("run", "--memory", "2GiB", "--name", "ended", "--", "true").stdout == ""
        (ended,) = (site.folder / "fence" / "tenants").glob("ended.*")
        everybody = json.loads(site.partage("fence", "show", "-o", "json").stdout)
        named = json.loads(site.partage("fence", "show", ended.name, "-o", "json").stdout)
    finally:
        site.end()

    assert [row["tenant"].split(".")[0] for row in everybody["tenants"]] == ["runs"]
    assert [row["tenant"] for row in named["tenants"]] == [ended.name]


def test_show_is_for_users_who_may_write_nothing_there() -> None:
    """An agent's root is in a folder of the system's, and no place of `partage run`."""
    users.need_root()
    with tempfile.TemporaryDirectory(prefix="partage-fence-") as folder:
        home = pathlib.Path(folder)
        home.chmod(0o755)
        root = roots.prepare(home / "root")
        tenants.create(root, "job", limits.Limits((limits.CardLimits(uuid=CARD),)), uid=SOMEBODY)
        user = users.User(home, SOMEBODY)
        done = user.partage("fence", "show", "--root", root.path)
        user.end()

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].split()[:2] == ["job", CARD]


def test_show_makes_no_place_for_programs(tmp_path: pathlib.Path) -> None:
    """Where nothing was ever started there is nothing to show, and asking leaves no trace."""
    _need_no_tenants()

    result = partage("show", PARTAGE_STATE=str(tmp_path / "state"))

    assert result.returncode == 1
    assert f"{roots.DEFAULT} is not a folder of fences" in result.stderr
    assert not (tmp_path / "state").exists()


def test_set_finds_whom_show_shows(tmp_path: pathlib.Path) -> None:
    """On simulated cards, too; where the ledger would disagree, that is said."""
    site = sites.Site(tmp_path)
    try:
        site.holding("--memory", "2GiB", "--name", "train")
        shown = json.loads(site.partage("fence", "show", "-o", "json").stdout)["tenants"]
        (tenant,) = [row["tenant"] for row in shown]
        paused = site.partage("fence", "set", tenant, "--pause")
        smaller = site.partage("fence", "set", tenant, "--memory", "1GiB")
    finally:
        site.end()

    assert (paused.returncode, paused.stderr) == (0, "")
    assert paused.stdout.splitlines()[-1].endswith("2048        all, paused")
    assert smaller.stdout.splitlines()[-1].endswith("1024        all, paused")
    assert "`partage resize train` changes that together with its limits" in smaller.stderr


def test_set_changes_what_holds(root: roots.Root) -> None:
    """Memory on all cards, compute on one; and it says what is in force."""
    first = partage("set", "job-17", "--memory", "1GiB", "--pause", "--root", root.path)
    second = partage(
        *("set", "job-17", "--compute", 30, "--ceiling", 80, "--resume"),
        *("--card", OTHER, "--root", root.path),
    )

    assert [line.split()[1:] for line in first.stdout.splitlines()[1:]] == [
        [CARD, "1024", "all,", "paused"],
        [OTHER, "1024", "all,", "paused"],
    ]
    assert second.stdout.splitlines()[2].split() == ["job-17", OTHER, "1024", "30%-80%"]
    one, other = tenants.read(root, "job-17").limits.cards
    assert (one.memory_bytes, one.mode, one.paused) == (1024 * MIB, limits.Mode.NONE, True)
    assert (other.mode, other.share_millionths, other.ceiling_millionths, other.paused) == (
        *(limits.Mode.BURST, 300_000, 800_000, False),
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["job-17"], "nothing to change; add --memory, --compute or --pause"),
        (["job-17", "--memory", "lots"], "--memory: 'lots' is not an amount of memory"),
        (["job-17", "--memory", "2GB"], "write 2GiB, or 2G (decimal)"),
        (["job-17", "--memory", "0GiB"], "'0GiB' is not an amount of memory"),
        (["job-17", "--memory", "4"], "4 has no unit; write 4GiB or 4MiB"),
        (["job-17", "--mode", "none", "--compute", "10"], "mode none has no share"),
        (
            ["job-17", "--compute", "130"],
            "compute: 130 is not a percentage of a card; write 0 to 100",
        ),
        (["job-17", "--compute", "-1"], "compute: -1 is not a percentage of a card"),
        (["job-17", "--compute", "x"], "'x' is not a valid integer"),
        (["job-17", "--ceiling", "50"], "mode burst needs a share; add compute"),
        (["job-17", "--compute", "60", "--ceiling", "50"], "is below the share of 60 %"),
        (["job-17", "--compute", "0", "--ceiling", "50"], "mode none has no ceiling"),
        (["job-17", "--mode", "fast"], "'fast' is not one of"),
        (["job-17", "--pause", "--card", "GPU-1"], "tenant job-17 has no card GPU-1; name one of"),
        (["job-71", "--pause"], "no tenant job-71 under"),
        (["../job-17", "--pause"], "is not a valid name of a tenant"),
        ([], "Missing argument 'TENANT'"),
    ],
)
def test_a_wrong_change_is_one_line_and_changes_nothing(
    root: roots.Root, arguments: list[str], says: str
) -> None:
    """What, where, what to do; exit code 2."""
    before = tenants.read(root, "job-17")

    result = partage("set", *arguments, "--root", root.path)

    assert result.returncode == 2
    assert result.stdout == ""
    assert says in result.stderr
    assert result.stderr.startswith("partage: ")
    assert result.stderr.count("\n") == 1
    assert tenants.read(root, "job-17") == before


@pytest.mark.parametrize("arguments", [["show"], ["show", "job"], ["set", "job", "--pause"]])
def test_a_folder_without_fences_is_one_line(tmp_path: pathlib.Path, arguments: list[str]) -> None:
    """Nothing is made by asking."""
    result = partage(*arguments, "--root", tmp_path / "nothing")

    assert result.returncode == 1
    assert "is not a folder of fences (No such file or directory); give the folder" in result.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("command", ["levels", "show", "set"])
def test_help_has_examples(command: str) -> None:
    """As every command's has."""
    result = partage(command, "--help")

    assert f"partage fence {command}" in result.stdout.split("Examples:")[1]


def _need_no_tenants() -> None:
    """An empty folder does not matter: nodes of other tests may have their own in its place."""
    if roots.DEFAULT.exists() and any(roots.DEFAULT.iterdir()):
        leaving_out.leave_out("a machine without tenants", f"{roots.DEFAULT} has some")
