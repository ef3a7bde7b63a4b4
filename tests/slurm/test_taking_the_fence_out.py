"""`partage slurm uninstall` while a real Slurm runs: no job notices, and nothing is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm

pytestmark = leaving_out.needs_root


@pytest.fixture
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """A card of 16 GiB with 16 shards."""
    with held_slurm.opened("1x16GiB") as running:
        yield running


def test_jobs_go_on_and_nothing_is_left(slurm: held_slurm.HeldSlurm) -> None:
    """A job that runs keeps its fence to its end, and the node stays in use all the time."""
    conf, plugin = slurm.private.folder, slurm.folder / "plugin"
    words = ("uninstall", "--conf", conf, "--folder", plugin)
    program = slurm.program("--gres=shard:4")
    first = slurm.partage(*words)
    assert "restart slurmd, and slurmctld if it is here; then run this again" in first.stderr
    program("context(0)")
    assert program.code("alloc(4 * GIB)") == fenced.OUT_OF_MEMORY
    [job] = slurm.jobs()
    program.end()
    slurm.until(lambda: not slurm.jobs())
    assert len(slurm.uses(job)) == 1
    assert slurm.srun("--gres=shard:4", "echo", "ran").stdout == "ran\n"
    slurm.until(lambda: slurm.inside("sinfo", "--noheader", "--format=%T").stdout == "idle\n")

    slurm.private.restart()
    second = slurm.partage(*words)

    assert (second.returncode, second.stderr) == (0, "")
    assert list(plugin.iterdir()) == []
    assert (conf / "slurm.conf").read_text() == (conf / "slurm.conf.before-partage").read_text()
    assert not list(conf.glob("*.lua"))
    done = slurm.srun("--gres=shard:4", "cat", "/etc/ld.so.preload")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
