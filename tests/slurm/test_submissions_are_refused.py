"""A real slurmctld refuses at submission what would never run, by the rule that install writes."""

from __future__ import annotations

import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from cluster import child_processes
from partage.slurm.configuration import submit_rule
from tests.slurm import real_slurm


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_slurm.RealSlurm]:
    """One card of 24 shards and one of 16, with the rule."""
    folder = tmp_path_factory.mktemp("slurm")
    with real_slurm.opened(folder, "24GiB,16GiB") as slurm:
        slurm.start(slurm.lines())
        done = install(slurm, folder)
        assert done.returncode == 0, done.stderr
        slurm.private.restart()
        yield slurm


def install(
    slurm: real_slurm.RealSlurm, folder: pathlib.Path, verb: str = "install"
) -> subprocess.CompletedProcess[str]:
    """``partage slurm install`` for this Slurm; its plugin of jobs is not what is tested here."""
    words = ("--conf", str(slurm.private.folder), "--folder", str(folder / "plugin"))
    done = slurm.partage(verb, *words)
    slurm.private.write("plugstack.conf", [])
    return done


def submitted(slurm: real_slurm.RealSlurm, *words: str) -> subprocess.CompletedProcess[str]:
    """A job that is only submitted."""
    done = slurm.private.run("sbatch", "--hold", "--output=/dev/null", *words, "--wrap=true")
    if done.returncode == 0:
        slurm.private.run("scancel", done.stdout.split()[-1])
    return done


@pytest.mark.parametrize("request_", ["shard:24", "shard:1", "shard", "gpu:2", "none"])
def test_what_can_run_is_taken(slurm: real_slurm.RealSlurm, request_: str) -> None:
    """All of a card, and what is no part of one."""
    done = submitted(slurm, f"--gres={request_}")

    assert (done.returncode, done.stderr) == (0, "")
    assert submitted(slurm).returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gres=shard:25"], "shard:25 is more than the largest card has"),
        (["--gres=shard:25"], "ask for 1 to 24 of one card, such as --gres=shard:4, or for a who"),
        (["--gres=shard:1K"], "shard:1K is more than the largest card has"),
        (["--gres=shard:0"], "shard:0 asks for no shards; leave it out, or ask for 1 to 24"),
        (["--gres=shard:-1"], "shard:-1 is not a number of shards; ask for 1 to 24 of one card"),
        (["--gres=shard:4x"], "shard:4x is not a number of shards"),
        (["--gres=shard:simulated:4"], "simulated:4 names a type, and jobs fail that ask for sha"),
        (["--gres=shard:simulated:4"], "; write --gres=shard:4, and choose nodes with"),
    ],
)
def test_what_would_never_run_is_refused(
    slurm: real_slurm.RealSlurm, words: list[str], says: str
) -> None:
    """With what to ask instead."""
    done = submitted(slurm, *words)

    assert done.returncode == 1
    assert "sbatch: error: Partage: " in done.stderr
    assert says in done.stderr


@pytest.mark.parametrize("words", [["--gres=gpu:1,shard:4"], ["--gres=shard:4", "--gpus=1"]])
def test_whole_cards_beside_shards(slurm: real_slurm.RealSlurm, words: list[str]) -> None:
    """The commands of Slurm 22.05 refuse it themselves; others get the rule's text."""
    assert submitted(slurm, *words).returncode == 1


def test_steps_are_refused_too(slurm: real_slurm.RealSlurm) -> None:
    """Those that make their own job."""
    done = slurm.private.run("srun", "--gres=shard:25", "true")

    assert done.returncode == 1
    assert "srun: error: Partage: shard:25 is more than the largest card has" in done.stderr


def test_a_job_is_not_changed_into_one(slurm: real_slurm.RealSlurm) -> None:
    """The same holds while it waits."""
    words = ("--hold", "--parsable", "--output=/dev/null", "--gres=shard:8", "--wrap=true")
    job = slurm.private.run("sbatch", *words).stdout.strip()

    refused = slurm.private.run("scontrol", "update", f"JobId={job}", "Gres=shard:25")
    taken = slurm.private.run("scontrol", "update", f"JobId={job}", "Gres=shard:20")

    assert refused.returncode == 1  # Slurm 22.05 does not print the text here
    assert taken.returncode == 0, taken.stderr


@pytest.mark.parametrize("text", ["return nil", "error('broken')", "return function() end", "("])
def test_a_broken_rule_refuses_nobody(slurm: real_slurm.RealSlurm, text: str) -> None:
    """slurmctld's log says so; the fence still holds jobs to their shares."""
    path = slurm.private.folder / submit_rule.NAME
    right = path.read_text()
    try:
        path.write_text(text)
        done = submitted(slurm, "--gres=shard:25")
        path.unlink()
        missing = submitted(slurm, "--gres=shard:8")
    finally:
        path.write_text(right)

    assert (done.returncode, missing.returncode) == (0, 0), done.stderr + missing.stderr
    assert "there is no rule for submissions, and the job passes" in slurm.private.logs()
    assert submitted(slurm, "--gres=shard:25").returncode == 1


def test_a_site_with_its_own_script(slurm: real_slurm.RealSlurm) -> None:
    """Which calls the rule as install says, and then does what it did."""
    path = slurm.private.folder / submit_rule.SCRIPT
    right = path.read_text()
    called = (
        f"function slurm_job_submit(job_desc)\n{submit_rule.call(slurm.private.folder / 'x')}\n"
    )
    rest = "job_desc.comment = 'the site was here'\nreturn slurm.SUCCESS\nend\n"
    modify = "function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
    try:
        path.write_text(called + rest + modify)
        slurm.private.restart()  # slurmctld looks at times in whole seconds
        refused = submitted(slurm, "--gres=shard:25")
        words = ("--hold", "--parsable", "--output=/dev/null", "--gres=shard:24", "--wrap=true")
        job = slurm.private.run("sbatch", *words).stdout.strip()
        shown = slurm.private.run("scontrol", "show", "job", job).stdout
    finally:
        path.write_text(right)
        slurm.private.restart()

    assert "Partage: shard:25 is more than the largest card has" in refused.stderr
    assert "Comment=the site was here" in shown


def test_slurmctld_needs_the_script(slurm: real_slurm.RealSlurm) -> None:
    """Why the setting is written only where slurmctld and its script are; the check tells it."""
    path = slurm.private.folder / submit_rule.SCRIPT
    right = path.read_text()
    try:
        path.unlink()
        checked = slurm.partage("check").stdout
        with pytest.raises(
            child_processes.ProgramFailed, match=r"Unable to stat .*job_submit\.lua"
        ):
            slurm.private.restart()
    finally:
        path.write_text(right)
        slurm.private.restart()

    assert f"there is no file {path}, and slurmctld does not start without it" in checked


def test_the_check_tells_of_an_old_rule(slurm: real_slurm.RealSlurm) -> None:
    """As after a change of gres.conf; to install again puts it right."""
    path = slurm.private.folder / submit_rule.NAME
    assert "submissions" not in slurm.partage("check").stdout
    path.write_text(path.read_text().replace("shard = 24", "shard = 16"))

    checked = slurm.partage("check")
    install(slurm, slurm.private.folder.parent)

    assert checked.returncode == 1
    assert f"problem  {path} " in checked.stdout
    assert "shard = 24" in path.read_text()
