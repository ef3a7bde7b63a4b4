"""Jobs of a real Slurm as people see them on its node, and ``partage run`` inside a job."""

from __future__ import annotations

import contextlib
import pathlib
import re
from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.local import users
from tests.native import fenced
from tests.slurm import held_slurm, node_users

pytestmark = leaving_out.needs_root

GIB, MIB = 1 << 30, 1 << 20
CONTEXT = fenced.CONTEXT_BYTES


@pytest.fixture(scope="module")
def node() -> Iterator[node_users.Node]:
    """Two cards of 16 GiB with 16 shards each."""
    users.need_root()
    with held_slurm.opened("2x16GiB") as slurm, node_users.on(slurm) as made:
        yield made


@pytest.fixture(autouse=True)
def calm(node: node_users.Node) -> Iterator[None]:
    """No job of one test runs in the next."""
    yield
    for user in (*held_slurm.USERS, "root"):
        node.slurm.inside("scancel", "--full", f"--user={user}")
    node.slurm.until_no_job()
    node.slurm.until(lambda: not node.slurm.jobs())


def _holding(node: node_users.Node, shards: int, mib: int, user: str) -> fenced.Process:
    program = node.slurm.program(f"--gres=shard:{shards}", user=user)
    program("context(0)")
    assert program.code(f"alloc({mib} << 20)") == 0
    return program


def test_ps_shows_the_jobs_of_all_users(node: node_users.Node) -> None:
    """Each with its number, its share, what it uses and what it used at most."""
    _holding(node, 8, 1000, "nobody"), _holding(node, 4, 500, "daemon")
    rows = node.rows()
    jobs = node.slurm.jobs()
    assert sorted(rows[user]["job"] for user in ("nobody", "daemon")) == jobs
    assert {user: row["memory_mib"] for user, row in rows.items()} == {
        "nobody": 8192,
        "daemon": 4096,
    }
    for user, mib in (("nobody", 1000), ("daemon", 500)):
        assert rows[user]["used_bytes"] == rows[user]["peak_bytes"] == mib * MIB + CONTEXT
        assert (rows[user]["fence"], rows[user]["step"]) == ("hook", None)
        assert len(rows[user]["processes"]) == 1
    view = node.view()
    assert view["foreign"] == []
    card = view["cards"][rows["nobody"]["index"]]
    assert (card["granted_mib"], card["granted_percent"], card["foreign_mib"]) == (12288, 75, 0)
    assert [shown["managed_by"] for shown in view["cards"]] == ["slurm", "slurm"]
    table = node.typed("ps").stdout
    assert f"job-{jobs[0]}" in table
    assert "STEP" in table
    assert "FOREIGN" not in table


def test_a_user_sees_of_others_what_they_may_see(node: node_users.Node) -> None:
    """The share, and the driver's word on the memory; the rest is not known, and no error."""
    _holding(node, 8, 1000, "nobody"), _holding(node, 4, 500, "daemon")
    rows = node.rows("daemon")
    assert rows["daemon"]["peak_bytes"] == 500 * MIB + CONTEXT
    assert rows["nobody"]["memory_mib"] == 8192
    assert rows["nobody"]["used_bytes"] == 1000 * MIB + CONTEXT
    unknown = ("peak_bytes", "refused", "busy_ns", "launches")
    assert [rows["nobody"][name] for name in unknown] == [None] * 4
    view = node.view("daemon")
    assert (view["foreign"], view["problems"]) == ([], [])


def test_a_job_that_uses_nothing_is_shown(node: node_users.Node) -> None:
    """It has its share all the same."""
    program = node.slurm.program("--gres=shard:8")
    row = node.rows()["nobody"]
    assert (row["memory_mib"], row["used_bytes"], row["processes"]) == (8192, 0, [])
    program.end()


def test_each_step_of_a_job_is_shown_behind_it(node: node_users.Node) -> None:
    """With what it asked for and what it uses itself; a job with one step is one line."""
    job = _allocation(node, "--gres=shard:8")
    small, large = (_step(node, job, f"--gres=shard:{shards}") for shards in (3, 5))
    assert small.code("alloc(GIB)") == 0
    whole, first, second = node.view()["tenants"]
    assert (whole["step"], whole["memory_mib"]) == (None, 8192)
    assert whole["used_bytes"] == GIB + 2 * CONTEXT
    assert [(row["step"], row["memory_mib"]) for row in (first, second)] == [
        ("0", 3072),
        ("1", 5120),
    ]
    assert (first["used_bytes"], second["used_bytes"]) == (GIB + CONTEXT, CONTEXT)
    assert first["processes"] == [small("os.getpid()")]
    assert {row["job"] for row in (whole, first, second)} == {job}
    lines = _lines(node, job)
    assert [line.split()[-1] for line in lines] == ["-", "0", "1"]
    small.end()
    large.end()
    program = _holding(node, 4, 500, "daemon")
    [line] = _lines(node, max(node.slurm.jobs()))
    assert line.split()[-1] == "0"
    program.end()


def _allocation(node: node_users.Node, *options: str) -> int:
    """A job of nobody's without a script, whose steps are started from elsewhere."""
    command = ("salloc", "--no-shell", "--chdir=/", "--ntasks=4", *options)
    done = node.slurm.inside(*held_slurm.as_user("nobody"), *command)
    number = re.search(r"job allocation (\d+)", done.stderr)
    assert number, done.stderr
    return int(number[1])


def _step(node: node_users.Node, job: int, *options: str) -> fenced.Process:
    """A program in a step of a job, with a context."""
    program = node.slurm.program(f"--jobid={job}", "--ntasks=1", "--exact", *options)
    program("context(0)")
    return program


def _lines(node: node_users.Node, job: int) -> list[str]:
    """What ``partage ps`` prints of a job."""
    lines = node.typed("ps").stdout.splitlines()
    return [line for line in lines if line.startswith(f"job-{job} ")]


def test_a_job_with_whole_cards_is_shown_without_a_fence(node: node_users.Node) -> None:
    """With what the driver says of its processes; it is not foreign, and nothing is wrong."""
    program = node.slurm.program("--gres=gpu:1", user="daemon")
    program("context(0)")
    assert program.code("alloc(GIB)") == 0
    view = node.view()
    [row] = view["tenants"]
    assert (row["user"], row["fence"], row["exclusive"]) == ("daemon", "none", True)
    assert row["processes"] == [program("os.getpid()")]
    assert (row["used_bytes"], row["peak_bytes"]) == (GIB + CONTEXT, None)
    assert 0 <= view["taken_ns"] / 1e9 - row["granted_at"] < held_slurm.PATIENCE_S
    assert view["foreign"] == []
    card = view["cards"][row["index"]]
    assert card["free_mib"] == 16384 - (GIB + CONTEXT) // MIB
    assert "only programs of `partage run`, and jobs of Slurm," in node.typed("doctor").stdout


def test_what_is_in_no_job_is_foreign(node: node_users.Node) -> None:
    """Even if it is of the same user; and so is another user's process that got into the job."""
    _holding(node, 8, 1000, "nobody")
    [job] = node.slurm.jobs()
    strangers = [node.stranger("nobody"), node.stowaway(job, "daemon")]
    for stranger in strangers:
        stranger("context(0)")
    foreign = {row["pid"] for row in node.view()["foreign"]}
    assert foreign == {stranger("os.getpid()") for stranger in strangers}
    assert "2 processes that Partage did not start" in node.typed("doctor").stdout
    for stranger in strangers:
        stranger.end()


def test_top_signals_the_processes_of_a_job(node: node_users.Node) -> None:
    """After the question; those of others may not be signalled."""
    program = _holding(node, 8, 1000, "nobody")
    pid, [job] = program("os.getpid()"), node.slurm.jobs()
    with contextlib.closing(node.top("daemon")) as terminal:
        terminal.frame_with(f"job-{job}")
        terminal.press(b"j")
        terminal.selected_until(f"job-{job}")
        terminal.press(b"T")
        terminal.frame_with(f"Send SIGTERM to job-{job} (pid {pid}, nobody)? [y/N]")
        terminal.press(b"y")
        terminal.frame_with("it belongs to another user")
        terminal.press(b"q")
        assert terminal.end() == 0, terminal.said
    assert program("os.getpid()") == pid
    with contextlib.closing(node.top()) as terminal:
        terminal.frame_with(f"job-{job}")
        terminal.press(b"j")
        terminal.selected_until(f"job-{job}")
        terminal.press(b"T")
        terminal.frame_with("Send SIGTERM")
        terminal.press(b"y")
        node.slurm.until(lambda: not node.slurm.jobs())
        terminal.press(b"q")
        assert terminal.end() == 0, terminal.said


def test_what_is_outside_its_fence_is_told_and_ended(node: node_users.Node) -> None:
    """A process of the job that no fence holds, and not the one that is inside."""
    honest = _holding(node, 4, 1000, "nobody")
    [job] = node.slurm.jobs()
    stowaway = node.stowaway(job, "nobody")
    stowaway("__import__('ctypes').CDLL(None).prctl(4, 0)")  # it hides its owner
    stowaway("context(0)")
    assert stowaway.code("alloc(5 * GIB)") == 0
    pid = stowaway("os.getpid()")
    view = node.view()
    row, [problem] = view["tenants"][0], view["problems"]
    assert (row["fence"], row["outside_pid"]) == ("outside", pid)
    assert row["used_bytes"] == 1000 * MIB + 5 * GIB + 2 * CONTEXT
    assert problem["object"] == f"job {job}"
    telling = node.watch()
    assert telling.stdout is not None
    line = telling.stdout.readline()
    assert f"job {job}: process {pid} is outside its fence" in line
    assert line.endswith("nothing was done about it\n")
    ending = node.watch("--then", "end")
    assert ending.stdout is not None
    assert ending.stdout.readline().endswith("it was ended\n")
    assert stowaway.running.wait(held_slurm.PATIENCE_S)
    assert honest.code("alloc(1)") == 0


def test_programs_share_the_whole_card_of_a_job(node: node_users.Node) -> None:
    """With --under-slurm: the card that Slurm gave to the job, whatever number it has there."""
    neighbour = _holding(node, 8, 1000, "nobody")
    taken = node.rows()["nobody"]["uuid"]
    own = next(card["uuid"] for card in node.view()["cards"] if card["uuid"] != taken)
    script = """
    echo $CUDA_VISIBLE_DEVICES
    run() { partage run --under-slurm "$@"; }
    run --memory 10GiB -- sh -c 'echo $CUDA_VISIBLE_DEVICES; touch $0; exec sleep 60' {0} &
    while ! [ -e {0} ]; do sleep 0.05; done
    run --memory 10GiB --no-wait -- true; echo $?
    run --memory 4GiB -- sh -c 'echo $CUDA_VISIBLE_DEVICES'
    partage fit --under-slurm --memory 4GiB; partage fit --under-slurm --memory 8GiB
    run --memory 1GiB --card {1} -- true; echo $?
    partage run --memory 1GiB -- true; echo $?
    kill %1
    """
    flag = node.slurm.folder / "output" / "begun"
    text = script.replace("{0}", str(flag)).replace("{1}", taken)
    done = node.in_a_job(text, "--gres=gpu:1")
    lines = done.stdout.splitlines()
    assert lines[:4] == ["0", own, "75", own], done.stderr
    assert lines[4].endswith(f"fits now, on card {_index(node, own)}")
    assert "does not fit now" in lines[5]
    assert lines[-2:] == ["2", "2"]
    assert "not given to job" in done.stderr
    assert "managed by Slurm (gres.conf)" in done.stderr
    neighbour.end()


def _index(node: node_users.Node, uuid: str) -> int:
    index: int = next(card["index"] for card in node.view()["cards"] if card["uuid"] == uuid)
    return index


def test_a_step_divides_only_the_cards_that_it_can_open(node: node_users.Node) -> None:
    """Its job may have more."""
    script = (
        "partage run --under-slurm --cards all --exclusive -- sh -c 'echo $CUDA_VISIBLE_DEVICES'"
    )
    done = node.in_a_job(script, "--gres=gpu:2")
    assert len(done.stdout.strip().split(",")) == 2, done.stderr
    batch = node.slurm.folder / "batch.sh"
    inner = node.slurm.folder / "inner.sh"
    inner.write_text(node_users.with_command(script))
    batch.write_text(f"#!/bin/sh\nsrun --gres=gpu:1 sh {inner}\n")
    submitted = node.slurm.inside(
        *("sbatch", "--parsable", "--wait", "--chdir=/", "--gres=gpu:2"),
        *(f"--output={node.slurm.folder}/output/batch.txt", str(batch)),
        environment=node.state("root"),
    )
    assert submitted.returncode == 0, submitted.stderr
    answer = (node.slurm.folder / "output/batch.txt").read_text()
    assert len(answer.strip().splitlines()[-1].split(",")) == 1, answer


def test_a_part_of_a_card_cannot_be_divided(node: node_users.Node) -> None:
    """The fence of the job holds it already."""
    command = "partage run --under-slurm --memory 1GiB -- echo ran"
    done = node.in_a_job(command, "--gres=shard:8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is already a program with a share (job-" in done.stderr
    done = node.in_a_job(f"unset PARTAGE_FENCE; {command}", "--gres=shard:8")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no whole card on this machine; ask Slurm for whole cards" in done.stderr


def test_without_an_answer_of_the_controller_nothing_is_given_away(node: node_users.Node) -> None:
    """What the job was given is then not known."""
    done = node.in_a_job(
        "SLURM_CONF=/nonexistent/slurm.conf partage run --under-slurm --memory 1GiB -- echo ran",
        "--gres=gpu:1",
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "it is not known which cards Slurm gives away" in done.stderr
    silent = node.slurm.folder / "silent"
    silent.mkdir()
    for name in ("scontrol", "squeue"):
        _script(silent / name, "echo 'Unable to contact slurm controller' >&2; exit 1")
    done = node.in_a_job(
        f"PATH={silent}:$PATH; partage run --under-slurm --memory 1GiB -- echo ran", "--gres=gpu:1"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "scontrol failed: Unable to contact slurm controller" in done.stderr


def _script(path: pathlib.Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
