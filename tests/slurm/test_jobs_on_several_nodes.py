"""Jobs on several nodes of a real Slurm: each node holds its own part, and knows of it alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, taking_jobs

pytestmark = leaving_out.needs_root

GIB = 1 << 30


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """Four nodes with two cards of 16 GiB each."""
    with held_slurm.opened("2x16GiB", nodes=4) as running:
        yield running


@pytest.fixture
def takers(slurm: held_slurm.HeldSlurm) -> Iterator[taking_jobs.Takers]:
    """No job of one test runs in the next, and no node has anything left of it."""
    made = taking_jobs.Takers(slurm)
    yield made
    made.end()
    slurm.end_jobs()
    slurm.until(lambda: not any(node.jobs() for node in slurm.held_nodes))


@pytest.mark.parametrize("nodes", [2, 4])
def test_a_job_is_held_on_each_of_its_nodes(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers, nodes: int
) -> None:
    """Six shards are six GiB on each node, for all tasks there together."""
    job = slurm.submit(
        takers.step(f"--ntasks={nodes}"),
        f"--nodes={nodes}",
        "--gres=shard:6",
        "--ntasks-per-node=1",
    )
    answers = takers.wait(nodes)
    assert [answer["SLURMD_NODENAME"] for answer in answers] == slurm.private.nodes[:nodes]
    assert {answer["given"] for answer in answers} == {5}  # and the context
    assert {answer["total"] for answer in answers} == {6 * GIB}
    assert [node.jobs() for node in slurm.held_nodes[:nodes]] == [[job]] * nodes
    assert [node.jobs() for node in slurm.held_nodes[nodes:]] == [[]] * (4 - nodes)
    for node in slurm.held_nodes[:nodes]:
        assert (node.used(job).quota_bytes, node.used(job).refused) == (6 * GIB, 1)


def test_tasks_of_a_node_share_its_quota_and_not_the_other_nodes(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """Three tasks on each of two nodes have eight GiB there, less three contexts."""
    slurm.submit(
        takers.step("--ntasks=6", "--ntasks-per-node=3"),
        *("--nodes=2", "--gres=shard:8", "--ntasks-per-node=3"),
    )
    answers = takers.wait(6)
    for name in slurm.private.nodes[:2]:
        given = [answer["given"] for answer in answers if answer["SLURMD_NODENAME"] == name]
        assert (len(given), sum(given)) == (3, 7)


def test_a_job_on_one_node_does_not_disturb_another(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """Cards of two nodes have the same number, and even the same uuid here."""
    first, second = slurm.private.nodes[:2]
    program = slurm.program("--gres=shard:8", f"--nodelist={first}")
    program("context(0)")
    job = slurm.submit(takers.script(), "--gres=shard:16", f"--nodelist={second}", user="daemon")
    takers.wait(1)
    assert program.code("alloc(7 * GIB)") == 0
    assert program.code("alloc(GIB)") == fenced.OUT_OF_MEMORY
    assert slurm.held_nodes[0].jobs() != [job]
    assert slurm.held_nodes[1].jobs() == [job]
    takers.end()
    slurm.until(lambda: not slurm.held_nodes[1].jobs())
    assert program.code("alloc(MIB)") == 0
    program.end()


def test_what_a_job_used_is_known_on_each_of_its_nodes(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """And on no other."""
    job = slurm.submit(takers.step("--ntasks=2"), "--nodes=2", "--gres=shard:3")
    takers.wait(2)
    takers.end()
    slurm.until(lambda: not any(node.jobs() for node in slurm.held_nodes))
    names = slurm.private.nodes
    for name in names[:2]:
        [use] = slurm.uses(job, name)
        [card] = use["cards"]
        assert use["node"] == name
        assert (card["quota_bytes"], card["refused"]) == (3 * GIB, 1)
        assert card["peak_bytes"] == 2 * GIB + fenced.CONTEXT_BYTES
    assert slurm.uses(job, names[2]) == []


def test_all_nodes_show_their_cards(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """`partage slurm nodes` reads what this Slurm tells of its jobs, in whichever form."""
    job = slurm.submit(takers.step("--ntasks=2"), "--nodes=2", "--gres=shard:3")
    takers.wait(2)
    done = slurm.partage("nodes", "-o", "json")
    cards = json.loads(done.stdout)["cards"]
    assert [(card["used"], card["total"]) for card in cards] == [(3, 16), (0, 16)] * 2 + [
        (0, 16)
    ] * 4
    assert {shown["id"] for card in cards for shown in card["jobs"]} == {job}


def test_one_of_two_nodes_loses_its_slurmd(
    slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers
) -> None:
    """The job goes on behind its fences; what it leaves is removed when slurmd is back."""
    first, second = slurm.private.nodes[:2]
    job = slurm.submit(takers.step("--ntasks=2"), "--nodes=2", "--gres=shard:3")
    takers.wait(2)
    slurm.private.kill_node(second)
    try:
        assert [node.used(job).used_bytes for node in slurm.held_nodes[:2]] == [
            2 * GIB + fenced.CONTEXT_BYTES
        ] * 2
        takers.end()
        slurm.until(lambda: not slurm.held_nodes[0].jobs())
        assert slurm.held_nodes[1].jobs() == [job]
    finally:
        slurm.private.start_node(second)
    slurm.until(lambda: not slurm.held_nodes[1].jobs())
    assert [len(slurm.uses(job, name)) for name in (first, second)] == [1, 1]
    again = slurm.srun("--gres=shard:3", f"--nodelist={second}", "echo", "ran")
    assert again.stdout == "ran\n", again.stderr
