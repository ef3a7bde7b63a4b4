"""Real slurmctld, slurmd and munge, configured by what Partage prints for simulated cards."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from cluster import child_processes
from cluster.slurm import private_slurm
from partage.slurm import slurm_programs
from partage.slurm.checks import configuration_check, machine_facts
from partage.slurm.configuration import config_files, findings
from tests import leaving_out
from tests.local import sites
from tests.slurm import real_slurm

ROOT = pathlib.Path(__file__).parents[2]
EQUAL, UNEQUAL = "2x16GiB", "24GiB,16GiB"
# What is true of this version and of a machine without limits, and breaks nothing.
NOTES = {"several-cards", "no-preload-file", "not-held"}


@pytest.fixture
def equal(tmp_path: pathlib.Path) -> Iterator[real_slurm.RealSlurm]:
    """Two cards of 16 GiB."""
    with real_slurm.opened(tmp_path, EQUAL) as slurm:
        yield slurm


@pytest.fixture
def unequal(tmp_path: pathlib.Path) -> Iterator[real_slurm.RealSlurm]:
    """A card of 24 GiB and one of 16."""
    with real_slurm.opened(tmp_path, UNEQUAL) as slurm:
        yield slurm


def checked(slurm: real_slurm.RealSlurm, folder: pathlib.Path) -> dict[str, findings.Finding]:
    """What is found in the files of a folder, on the machine of that Slurm."""
    configuration = config_files.read(folder / "slurm.conf")
    facts = configuration_check.facts_for(
        configuration,
        hosts=machine_facts.hosts(),
        version=slurm_programs.version(slurm.private.environment),
        devices=tuple(slurm.devices),
    )
    return {result.code: result for result in configuration_check.check(configuration, facts)}


def test_a_job_gets_its_shards(equal: real_slurm.RealSlurm) -> None:
    """The lines are accepted, and a step has what it asked for in its environment."""
    equal.start(equal.lines())

    variables = equal.variables("shard:8")

    assert variables["SLURM_SHARDS_ON_NODE"] == "8"
    assert variables["CUDA_VISIBLE_DEVICES"] == "0"
    assert variables["SLURM_STEP_GPUS"] == "0"
    assert variables["SLURM_GPUS_ON_NODE"] == "1"


def test_jobs_are_shown_on_their_cards(unequal: real_slurm.RealSlurm) -> None:
    """Cards of different sizes: only the larger one has 20 shards, then only the other has 10."""
    unequal.start(unequal.lines())
    assert unequal.shown() == [(0, 0, 24, []), (1, 0, 16, [])]

    unequal.holding("shard:20")
    unequal.holding("shard:10")
    unequal.holding("shard:4")

    assert unequal.shown() == [
        (0, 24, 24, [("root", "shard", 20), ("root", "shard", 4)]),
        (1, 10, 16, [("root", "shard", 10)]),
    ]
    table = unequal.partage("nodes").stdout.splitlines()
    assert table[0].split() == ["NODE", "CARD", "TYPE", "USED", "JOBS"]
    assert table[1].split()[:5] == [unequal.node, "0", "simulated_gpu_24576m", "24/24", "shard"]
    assert table[2].endswith("10/16 shard  2 root shard:10")
    assert " mixed " in unequal.partage("nodes", "-o", "wide").stdout


def test_whole_cards_are_shown(unequal: real_slurm.RealSlurm) -> None:
    """By type: the card that is asked for is the one that is given."""
    lines = unequal.lines()
    unequal.start(lines)

    unequal.holding(f"gpu:{lines.cards[1].type}:1")

    assert unequal.shown() == [(0, 0, 24, []), (1, 16, 16, [("root", "gpu", 1)])]


def test_mps_on_all_cards(equal: real_slurm.RealSlurm) -> None:
    """What the flag is for: two cards are shared at the same time."""
    equal.start(equal.lines(sharing="mps"))

    equal.holding("mps:60")
    equal.holding("mps:70")

    assert equal.shown() == [
        (0, 60, 100, [("root", "mps", 60)]),
        (1, 70, 100, [("root", "mps", 70)]),
    ]
    assert equal.variables("mps:25")["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert checked(equal, equal.private.folder).keys() <= NOTES


@pytest.mark.parametrize("cards", [EQUAL, UNEQUAL])
def test_the_check_of_what_runs(cards: str, tmp_path: pathlib.Path) -> None:
    """The command finds no problem in the files of a Slurm that works."""
    with real_slurm.opened(tmp_path, cards) as slurm:
        slurm.start(slurm.lines())

        done = slurm.partage("check")

        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        assert "problem" not in done.stdout
        assert checked(slurm, slurm.private.folder).keys() <= NOTES


BREAKING = [
    ("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu,shard,mps", "two-sharings"),
    ("slurm.conf", "GresTypes=gpu,shard", "GresTypes=gpu", "gres-types"),
    ("slurm.conf", "SelectType=select/cons_tres", "SelectType=select/linear", "select-type"),
    ("slurm.conf", "TaskPlugin=task/cgroup", "TaskPlugin=task/none", "task-plugin"),
    ("slurm.conf", "ReturnToService=2", "AccountingStorageTRES=gres/gpu", "accounting"),
    ("slurm.conf", "shard:40", "shard:32", "gres-differs"),
    ("slurm.conf", "CR_Core", "CR_Core,MULTIPLE_SHARING_GRES_PJ", "several-cards"),
    ("slurm.conf", "KillWait=2", "Include slurm.conf", "unreadable"),
    ("gres.conf", "Type=simulated_gpu_24576m ", "", "no-type"),
    ("gres.conf", "nvidia0", "nvidia7", "no-device"),
    ("gres.conf", "nvidia1", "nvidia0", "card-twice"),
    ("gres.conf", "Count=24", "Count=16", "shard-count"),
    ("gres.conf", "Count=16 File=", "Count=0 File=", "shard-count"),
    ("gres.conf", "Name=gpu", "Name gpu", "bad-line"),
    ("cgroup.conf", "ConstrainDevices=yes", "ConstrainDevices=no", "constrain-devices"),
    ("plugstack.conf", "", "required /nowhere/fence.so\n", "no-plugin"),
]


def test_each_line_that_is_broken_is_found(
    unequal: real_slurm.RealSlurm, tmp_path: pathlib.Path
) -> None:
    """One by one, in a copy of the files that work."""
    unequal.start(unequal.lines())
    assert checked(unequal, unequal.private.folder).keys() <= NOTES

    for number, (name, right, wrong, code) in enumerate(BREAKING):
        folder = tmp_path / f"broken-{number}"
        folder.mkdir()
        for path in unequal.private.folder.glob("*.conf"):
            shutil.copy(path, folder)
        text = (folder / name).read_text()
        assert right in text
        (folder / name).write_text(text.replace(right, wrong) if right else wrong)

        result = checked(unequal, folder)

        assert result[code].severity is findings.Severity.PROBLEM, (wrong, result)
        assert pathlib.Path(result[code].file).name == name
        assert pathlib.Path(result[code].file).parent == folder


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("shard:32", "shard:48", "multiple configurations without"),
        ("KillWait=2", "AccountingStorageTRES=gres/gpu", "slurmctld ended"),
        ("CR_Core", "CR_Core,MULTIPLE_SHARING_GRES_PJ", "Bad SelectTypeParameter"),
        ("KillWait=2", "what is this", "Parse error"),
    ],
)
def test_what_is_called_a_problem_is_one(
    equal: real_slurm.RealSlurm, right: str, wrong: str, says: str
) -> None:
    """Slurm does not come up with it."""
    lines = equal.lines()
    whole = [line for line in lines.gres_conf if "Name=shard" not in line]
    equal.start(lines)
    equal.private.write("gres.conf", [*whole, f"NodeName={equal.node} Name=shard Count=32"])
    text = (equal.private.folder / "slurm.conf").read_text()
    equal.private.write("slurm.conf", [text.replace(right, wrong)])

    with pytest.raises(child_processes.ProgramFailed) as failure:
        equal.private.restart()

    assert says in str(failure.value) + equal.private.logs()


def test_files_that_are_no_devices_hide_the_cards(equal: real_slurm.RealSlurm) -> None:
    """Slurm counts them, and the job sees no card; the check says so."""
    equal.start(equal.lines())
    for device in equal.private.devices.iterdir():
        device.unlink()
        device.touch()
    equal.private.restart()

    variables = equal.variables("shard:8")

    assert variables["SLURM_SHARDS_ON_NODE"] == "8"
    assert "CUDA_VISIBLE_DEVICES" not in variables
    assert "no-device" in checked(equal, equal.private.folder)


def test_mps_and_shard_together_hide_the_cards(equal: real_slurm.RealSlurm) -> None:
    """Slurm starts and says nothing; the check does."""
    equal.start(equal.lines())
    percent = [line for line in equal.lines(sharing="mps").gres_conf if "Name=mps" in line]
    equal.private.write("gres.conf", [*equal.lines().gres_conf, *percent])
    text = (equal.private.folder / "slurm.conf").read_text()
    both = text.replace("GresTypes=gpu,shard", "GresTypes=gpu,mps,shard")
    equal.private.write("slurm.conf", [both.replace("shard:32", "mps:200,shard:32")])
    equal.private.restart()

    variables = equal.variables("mps:50")

    assert variables.get("CUDA_VISIBLE_DEVICES") is None
    assert "two-sharings" in checked(equal, equal.private.folder)


@pytest.mark.slow  # scontrol tries for ten seconds
def test_a_controller_that_is_down(equal: real_slurm.RealSlurm) -> None:
    """One line, in time."""
    equal.start(equal.lines())
    equal.private.stop_controller()

    done = equal.partage("nodes")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("partage: scontrol ")
    assert "scontrol ping" in done.stderr
    assert done.stderr.count("\n") == 1


@leaving_out.needs_root
def test_a_machine_without_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is told; the tests above are then left out, or fail where all is required."""
    monkeypatch.setattr(private_slurm, "PROGRAMS", ("slurm-of-nobody",))

    with pytest.raises(private_slurm.CannotRun, match="install Debian's slurm-wlm munge"):
        private_slurm.check_machine()


_STARTED = """
import pathlib, sys
from tests.slurm import real_slurm
slurm = real_slurm.RealSlurm(pathlib.Path(sys.argv[1]), "2x16GiB")
slurm.start(slurm.lines())
slurm.holding("shard:8")
print(slurm.node, flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_when_a_test_is_killed(tmp_path: pathlib.Path) -> None:
    """Neither a process, nor one of a job, nor a cgroup."""
    real_slurm.need()
    test = subprocess.Popen(
        [sys.executable, "-c", _STARTED, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert test.stdout is not None
    node = test.stdout.readline().strip()
    groups = [
        pathlib.Path("/sys/fs/cgroup", group, f"slurm_{node}") for group in ("devices", "freezer")
    ]
    assert node
    assert all(group.exists() for group in groups)
    assert len(real_slurm.processes_of(tmp_path)) >= 5  # those of Slurm, srun and the job

    test.send_signal(signal.SIGKILL)
    test.communicate()

    sites.eventually(lambda: not real_slurm.processes_of(tmp_path))
    sites.eventually(lambda: not any(group.exists() for group in groups))
