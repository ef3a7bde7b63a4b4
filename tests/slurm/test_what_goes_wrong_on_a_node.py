"""A node of a real Slurm where something is wrong: jobs are held, or told why they do not start."""

from __future__ import annotations

import contextlib
import pathlib
import re
import shutil
from collections.abc import Iterator

import pytest

from native import compilers, libraries
from partage.slurm.configuration import submit_rule
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, real_slurm

pytestmark = leaving_out.needs_root

GIB = 1 << 30
FENCES = "/run/partage/slurm"
LOG = "/var/lib/partage/slurm"
ROOM = "512k"  # for the table of cards and the files of one job
OTHER_SLURM = "0x130500"  # 19.05


@pytest.fixture(scope="module")
def running() -> Iterator[held_slurm.HeldSlurm]:
    """Two cards of 16 GiB with 16 shards each."""
    with held_slurm.opened("2x16GiB") as slurm:
        yield slurm


@pytest.fixture
def slurm(running: held_slurm.HeldSlurm) -> Iterator[held_slurm.HeldSlurm]:
    """No job of one test runs in the next, and no fence is left."""
    yield running
    running.end_jobs()
    running.until(lambda: not running.jobs())


@contextlib.contextmanager
def small_disk(slurm: held_slurm.HeldSlurm, place: str) -> Iterator[None]:
    """A file system of its own, with little room."""
    assert slurm.inside("mkdir", "-p", place).returncode == 0
    slurm.inside("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", place)
    try:
        yield
    finally:
        slurm.until(lambda: slurm.inside("umount", place).returncode == 0)


def fill(slurm: held_slurm.HeldSlurm, place: str) -> None:
    """To the last byte."""
    done = slurm.inside("sh", "-c", f"cat /dev/zero >{place}/filler")
    assert "No space left on device" in done.stderr


def test_a_log_that_is_full_keeps_no_fence(slurm: held_slurm.HeldSlurm) -> None:
    """Only what the jobs used is lost, and it is said why; their seats are free for the next."""
    with small_disk(slurm, LOG):
        fill(slurm, LOG)
        program = slurm.program("--gres=shard:16")
        [job] = slurm.jobs()
        done = slurm.partage("epilog", "--job", str(job), "--conf", slurm.private.folder)
        assert slurm.jobs() == []
        program.end()
        assert slurm.srun("--gres=shard:16", "echo", "ran").stdout == "ran\n"
        slurm.until(lambda: not slurm.jobs())  # by Slurm's own Epilog
    assert done.returncode == 1
    assert f"the use of job {job} is not in the log: {LOG}" in done.stderr
    assert "(No space left on device); run this as root, and make room in" in done.stderr


def test_fences_on_a_disk_that_becomes_full(slurm: held_slurm.HeldSlurm) -> None:
    """A job that has its fence is held by it until its end, and is written down."""
    with small_disk(slurm, FENCES):
        assert slurm.prepare().returncode == 0
        program = slurm.program("--gres=shard:2")
        fill(slurm, FENCES)
        program("context(0)")
        assert program.code("alloc(2 * GIB)") == fenced.OUT_OF_MEMORY
        refused = slurm.srun("--gres=shard:8", "echo", "ran", user="daemon")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "No space left on device); make room in that file system" in refused.stderr
        job = program("int(os.environ['SLURM_JOB_ID'])")
        assert program.code("alloc(GIB)") == 0
        program.end()
        slurm.until(lambda: slurm.inside("ls", f"{FENCES}/tenants").stdout == "")
    [use] = slurm.uses(job)
    assert (use["problem"], use["cards"][0]["refused"]) == ("", 1)


def test_gres_conf_that_slurmd_has_not_read(slurm: held_slurm.HeldSlurm) -> None:
    """Half of the shards: each is twice as much for the fence, and half a card for Slurm."""
    path = slurm.private.folder / "gres.conf"
    right = path.read_text()
    path.write_text(right.replace("Count=16", "Count=8"))
    try:
        program = slurm.program("--gres=shard:8")
        [job] = slurm.jobs()
        assert slurm.used(job).quota_bytes == 16 * GIB
        second = slurm.srun("--gres=shard:8", "echo", "ran", user="daemon")
        larger = slurm.srun("--gres=shard:16", "echo", "ran", user="daemon")
        program.end()
        slurm.until(lambda: not slurm.jobs())
    finally:
        path.write_text(right)
    assert [(done.returncode, done.stdout) for done in (second, larger)] == [(1, "")] * 2
    assert "card 0 has 16384 MiB, other jobs have 16384 of them, and this one" in second.stderr
    assert "restart slurmd if gres.conf has changed" in second.stderr
    assert "the job has 16 shards of card 1, and the card has 8" in larger.stderr
    assert slurm.srun("--gres=shard:16", "echo", "ran").stdout == "ran\n"


def test_no_shards(slurm: held_slurm.HeldSlurm) -> None:
    """Where no rule refuses it, Slurm starts such a job: without a card, whatever its user sets."""
    rule = slurm.private.folder / submit_rule.NAME
    right = rule.read_text()
    rule.write_text("return nil")
    try:
        words = ("--gres=shard:0", "sh", "-c", "echo ${SLURM_SHARDS_ON_NODE-} $SLURM_STEP_GPUS")
        done = slurm.srun(*words, SLURM_SHARDS_ON_NODE="16", SLURM_STEP_GPUS="0")
    finally:
        rule.write_text(right)
    assert (done.returncode, done.stdout) == (0, "\n"), done.stderr
    assert slurm.jobs() == []


@pytest.fixture(scope="module")
def other_plugin(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Ours, built with the headers of a Slurm that says it is another."""
    folder = tmp_path_factory.mktemp("headers")
    headers = (real_slurm.TREE or pathlib.Path("/")) / "usr/include/slurm"
    shutil.copytree(headers, folder / "slurm")
    version = folder / "slurm/slurm_version.h"
    text, count = re.subn(
        r"(#define SLURM_VERSION_NUMBER) .*", rf"\1 {OTHER_SLURM}", version.read_text()
    )
    assert count == 1
    version.write_text(text)
    own = compilers.system(f"-I{folder}")
    return libraries.spank(folder, own).read_bytes()


def test_a_plugin_for_another_slurm_is_not_loaded(
    slurm: held_slurm.HeldSlurm, other_plugin: bytes
) -> None:
    """Slurm names both in a line and starts nothing; the check says what to do."""
    plugin = slurm.folder / "plugin" / libraries.SPANK
    right = plugin.read_bytes()
    plugin.write_bytes(other_plugin)
    try:
        step = slurm.srun("--gres=shard:8", "echo", "ran")
        checked = slurm.partage("check", "--conf", slurm.private.folder)
    finally:
        plugin.write_bytes(right)
    assert (step.returncode, step.stdout) == (1, "")
    assert f"{plugin} version (19.05.0)" in step.stderr
    assert f"{plugin}: Incompatible plugin version" in step.stderr
    assert checked.returncode == 1
    assert f"{plugin} is built for Slurm 19.05, and Slurm " in checked.stdout
    assert "build it with the headers of this Slurm, and install it again" in checked.stdout
    assert slurm.srun("--gres=shard:8", "echo", "ran").stdout == "ran\n"
