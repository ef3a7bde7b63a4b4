"""Jobs of a real Slurm on simulated cards: each is held to what Slurm gave it, and nobody else."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
from collections.abc import Iterator

import pytest

from partage.core import errors
from partage.fence.store import limits
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm

pytestmark = leaving_out.needs_root

GIB = 1 << 30
CONTEXT = fenced.CONTEXT_BYTES
SEES = "[total_memory(0), memory_info()[1]]"
# A child that is not told anything: no variable, and a loader of its own.
CHILD = """
import os, subprocess, sys
code = "import ctypes as c; l=c.CDLL('libcuda.so.1'); l.cuInit(0); x=c.c_uint64(); "
code += "l.cuDevicePrimaryCtxRetain(c.byref(x),0); l.cuCtxSetCurrent(x); "
code += "f=c.c_size_t(); t=c.c_size_t(); l.cuMemGetInfo_v2(c.byref(f),c.byref(t)); "
code += "p=c.c_uint64(); a=l.cuMemAlloc_v2(c.byref(p), c.c_uint64(9<<30)); "
code += "print(t.value>>30, a, flush=True)"
kept = {n: v for n, v in os.environ.items() if n.startswith('SIMCUDA')}
folder = {'LD_LIBRARY_PATH': os.environ['LD_LIBRARY_PATH']}
loader = '/lib64/ld-linux-x86-64.so.2'
def run(*words, **more):
    done = subprocess.run([*words, sys.executable, '-I', '-S', '-c', code],
                          env={**kept, **folder, **more}, capture_output=True, text=True)
    print(done.stdout.strip() or done.stderr.strip()[-300:], flush=True)
run()
run(LD_PRELOAD='', PARTAGE_LIMITS='/dev/null', CUDA_VISIBLE_DEVICES='0')
run(SLURM_SHARDS_ON_NODE='16', PARTAGE_QUIET='1', PARTAGE_FENCE='none')
run('setsid')
if os.path.exists(loader):
    run(loader)
"""
# What there is for who chooses cards.
CHOICES = """
import os, subprocess, sys
code = "import ctypes as c; l=c.CDLL('libcuda.so.1'); n=c.c_int(); t=c.c_size_t(); l.cuInit(0); "
code += "l.cuDeviceGetCount(c.byref(n)); "
code += "[print(t.value>>30) for d in range(n.value) if not l.cuDeviceTotalMem_v2(c.byref(t), d)]"
for choice in sys.argv[1:]:
    variables = {**os.environ, 'CUDA_VISIBLE_DEVICES': choice}
    subprocess.run([sys.executable, '-I', '-S', '-c', code], env=variables, check=True)
"""
ESCAPES = """
unshare --user --map-root-user --mount true && echo escaped
unshare --user true && echo escaped
umount /etc/ld.so.preload && echo escaped
umount -l /etc/partage && echo escaped
mount --bind /dev/null /etc/ld.so.preload && echo escaped
rm -f /etc/ld.so.preload && echo escaped
echo >/etc/ld.so.preload && echo escaped
echo >/etc/partage/fence/limits && echo escaped
mv /etc/partage /etc/elsewhere && echo escaped
nsenter --target 1 --mount true && echo escaped
chroot / true && echo escaped
echo tried
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """Two cards of 16 GiB with 16 shards each."""
    with held_slurm.opened("2x16GiB") as running:
        yield running


@pytest.fixture(autouse=True)
def calm(slurm: held_slurm.HeldSlurm) -> Iterator[None]:
    """No job of one test runs in the next; and each test leaves nothing behind."""
    yield
    slurm.end_jobs()
    slurm.until(lambda: not slurm.jobs())


def test_a_job_is_held_to_its_shards_to_the_byte(slurm: held_slurm.HeldSlurm) -> None:
    """The last byte that fits is given, and not one more; the program sees half a card."""
    program = slurm.program("--gres=shard:8")
    program("context(0)")
    assert program(SEES) == [8 * GIB, 8 * GIB]
    assert program("card_memory()['total']") == 8 * GIB  # of NVML, as nvidia-smi shows it
    assert program.code("alloc(8 * GIB)") == fenced.OUT_OF_MEMORY
    assert program.code(f"alloc({8 * GIB - CONTEXT})") == 0
    assert program.code("alloc(1)") == fenced.OUT_OF_MEMORY

    [job] = slurm.jobs()
    used = slurm.used(job)
    assert (used.quota_bytes, used.used_bytes, used.refused) == (8 * GIB, 8 * GIB, 2)
    assert (used.mode, used.share_millionths) == (limits.Mode.BURST, 500_000)
    program.end()


def test_neighbours_of_two_users_do_not_notice_each_other(slurm: held_slurm.HeldSlurm) -> None:
    """One has all of its half, and tries for more; the other still gets all of its own."""
    first = slurm.program("--gres=shard:8", user="nobody")
    second = slurm.program("--gres=shard:8", user="daemon")
    first("context(0)")
    second("context(0)")
    assert first.code(f"alloc({8 * GIB - CONTEXT})") == 0
    assert first.code("alloc(GIB)") == fenced.OUT_OF_MEMORY
    assert second.code(f"alloc({8 * GIB - CONTEXT})") == 0
    one, other = (slurm.used(job) for job in slurm.jobs())
    assert one.uuid == other.uuid
    regions = [slurm.root.tenants / f"job-{job}" / "region" for job in slurm.jobs()]
    assert len({region.stat().st_uid for region in regions}) == 2
    readable = f"[os.access(path, os.R_OK) for path in {[str(path) for path in regions]}]"
    assert first(readable) == [True, False]
    assert second(readable) == [False, True]


@pytest.mark.parametrize(
    "variables",
    [
        {"SLURM_SHARDS_ON_NODE": "16", "SLURM_STEP_GPUS": "1", "SLURM_JOB_GPUS": "1"},
        {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100", "PARTAGE_LIMITS": "/tmp/none"},
        {"LD_PRELOAD": "", "PARTAGE_ROOT": "/tmp", "PARTAGE_STATE": "/tmp"},
    ],
)
def test_a_users_variables_change_nothing(
    slurm: held_slurm.HeldSlurm, variables: dict[str, str]
) -> None:
    """Set before the job is submitted, so that they travel with it."""
    program = slurm.program("--gres=shard:4", **variables)
    program("context(0)")
    assert program(SEES) == [4 * GIB, 4 * GIB]
    assert program.code("alloc(4 * GIB)") == fenced.OUT_OF_MEMORY
    program.end()


def test_a_script_has_the_card_that_slurm_gave_it(slurm: held_slurm.HeldSlurm) -> None:
    """What a user had where the job was submitted, as in a step of another job, is not believed."""
    script = slurm.folder / "waits.sh"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    variables = {"SLURM_SHARDS_ON_NODE": "16", "SLURM_STEP_GPUS": "1", "SLURM_JOB_GPUS": "1"}
    job = slurm.submit(script, "--gres=shard:4", **variables)
    slurm.until(slurm.jobs)
    used = slurm.used(job)
    assert (used.uuid, used.quota_bytes) == (slurm.devices[0].uuid, 4 * GIB)


def test_a_job_that_is_submitted_in_a_job_has_nothing_of_it(slurm: held_slurm.HeldSlurm) -> None:
    """The one has shards of a card; the other has a whole card, and no fence."""
    script = slurm.folder / "whole.sh"
    script.write_text(
        "#!/bin/sh\necho of $SLURM_JOB_GPUS\nls -d /etc/partage/*\n"
        "env | grep -E ^PARTAGE_'(NAME|FENCE|MEMORY_BYTES|COMPUTE_PERCENT)='\n"
    )
    output = _shared_folder(slurm) / "output"
    words = ("--wait", "--chdir=/", f"--output={output}", "--gres=gpu:1", str(script))
    done = slurm.srun("--gres=shard:4", "sbatch", *words)
    assert done.stdout.startswith("Submitted"), done.stderr
    first, second, *variables = output.read_text().splitlines()
    assert (first, second[:18], variables) == ("of 1", "ls: cannot access ", [])


def test_a_choice_of_cards_leads_to_no_other(slurm: held_slurm.HeldSlurm) -> None:
    """By number or by name: there is the job's share of its card, or nothing."""
    python = (held_slurm.PYTHON, "-I", "-S", "-c", CHOICES)
    uuids = [str(device.uuid) for device in slurm.devices]
    own = slurm.srun("--gres=shard:8", *python, "0", *uuids, ",".join(uuids), "0,1")
    other = slurm.srun("--gres=shard:8", *python, "1", "-1", "", "all", "none")
    assert own.stdout.split() == ["8"] * 4, own.stderr
    assert (other.returncode, other.stdout) == (0, ""), other.stderr


def test_nothing_is_kept_where_the_user_may_write(slurm: held_slurm.HeldSlurm) -> None:
    """Neither below TMPDIR nor in the home."""
    folder = _shared_folder(slurm)
    program = slurm.program("--gres=shard:2", TMPDIR=str(folder), HOME=str(folder))
    program("context(0); alloc(GIB)")
    assert list(folder.iterdir()) == []
    program.end()


@pytest.mark.parametrize(
    "option",
    [
        "--gpu-bind=map_gpu:1",
        "--gpu-bind=mask_gpu:0x2",
        "--accel-bind=g",
        "--export=NONE",
        "--export=SLURM_SHARDS_ON_NODE=,SLURM_STEP_GPUS=",
    ],
)
def test_no_option_of_a_step_leads_out(slurm: held_slurm.HeldSlurm, option: str) -> None:
    """Those with which Slurm itself changes the variables of cards."""
    script = "ls /etc/partage/fence/limits; echo $PARTAGE_MEMORY_BYTES"
    done = slurm.srun("--gres=shard:4", option, "/bin/sh", "-c", script)
    share = f"{slurm.devices[0].uuid}={4 * GIB}"
    assert done.stdout.split() == ["/etc/partage/fence/limits", share], done.stderr


def test_children_stay_inside(slurm: held_slurm.HeldSlurm) -> None:
    """However they are started, and whatever they are told."""
    done = slurm.srun("--gres=shard:8", held_slurm.PYTHON, "-I", "-S", "-c", CHILD)
    answers = done.stdout.splitlines()
    assert len(answers) >= 4, done.stderr
    assert answers == [f"8 {fenced.OUT_OF_MEMORY}"] * len(answers)


def test_the_view_cannot_be_changed(slurm: held_slurm.HeldSlurm) -> None:
    """No mount, no namespace, no file."""
    done = slurm.srun("--gres=shard:8", "sh", "-c", ESCAPES)
    assert done.stdout.split() == ["tried"], done.stderr


def test_the_node_itself_sees_nothing_of_it(slurm: held_slurm.HeldSlurm) -> None:
    """While a job runs, others' loaders read an empty list."""
    program = slurm.program("--gres=shard:8")
    assert program("open('/etc/ld.so.preload').read()").strip().endswith("libpartage.so")
    assert slurm.inside("cat", "/etc/ld.so.preload").stdout == ""
    assert slurm.inside("ls", "/etc/partage").stdout == ""
    assert slurm.srun("cat", "/etc/ld.so.preload").stdout == ""


def test_whole_cards_have_no_fence(slurm: held_slurm.HeldSlurm) -> None:
    """A user may run MPS of their own there."""
    program = slurm.program("--gres=gpu:1", CUDA_MPS_ACTIVE_THREAD_PERCENTAGE="20")
    program("context(0)")
    assert program(SEES) == [16 * GIB, 16 * GIB]
    assert slurm.jobs() == []
    program.end()


def test_all_steps_and_tasks_share_one_quota(slurm: held_slurm.HeldSlurm) -> None:
    """A script with two steps at once, of two tasks each: together they have 8 GiB."""
    answers = _shared_folder(slurm)
    client = slurm.folder / "allocate.py"
    client.write_text(_ALLOCATE)
    script = slurm.folder / "steps.sh"
    python = " ".join(held_slurm.ENTRY)
    script.write_text(
        "#!/bin/sh\n"
        f"srun --overlap -n2 {python} {client} {answers} first &\n"
        f"srun --overlap -n2 --gres=shard:2 {python} {client} {answers} second &\nwait\n"
    )
    done = slurm.submit(script, "--gres=shard:8", "--ntasks=4", "--overcommit")
    slurm.until(lambda: len(list(answers.glob("*.done"))) == 4 or _is_over(slurm, done))
    [job] = slurm.jobs()
    given = sum(int(path.read_text()) for path in answers.glob("*.done"))
    assert given == 7  # four contexts take the eighth
    assert slurm.used(job).used_bytes == 8 * GIB
    (answers / "end").touch()
    slurm.until(lambda: not slurm.jobs())


_ALLOCATE = """
import ctypes, os, pathlib, sys, time
driver = ctypes.CDLL('libcuda.so.1')
context, pointer, given = ctypes.c_uint64(), ctypes.c_uint64(), 0
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
folder = pathlib.Path(sys.argv[1])
own = sys.argv[2] + os.environ['SLURM_PROCID']
(folder / (own + '.ready')).touch()
while len(list(folder.glob('*.ready'))) < 4:
    time.sleep(0.02)
while driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_uint64(1 << 30)) == 0:
    given += 1
(folder / (own + '.new')).write_text(str(given))
(folder / (own + '.new')).rename(folder / (own + '.done'))
while not (folder / 'end').exists():
    time.sleep(0.02)
"""


def test_without_the_table_nothing_starts(slurm: held_slurm.HeldSlurm) -> None:
    """A step says why on the terminal, a script in its output; other jobs run."""
    table = slurm.fences / "cards"
    table.rename(slurm.fences / "away")
    try:
        with slurm.without_prolog():
            _check_nothing_starts(slurm)
    finally:
        (slurm.fences / "away").rename(table)


def _check_nothing_starts(slurm: held_slurm.HeldSlurm) -> None:
    done = slurm.srun("--gres=shard:8", "echo", "ran")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Partage: the task is not started" in done.stderr
    assert "run `partage slurm prepare` on the node as root" in done.stderr
    assert slurm.srun("echo", "ran").stdout == "ran\n"
    script = slurm.folder / "script.sh"
    script.write_text("#!/bin/sh\necho ran\n")
    job = slurm.submit(script, "--gres=shard:8")
    slurm.until(lambda: _is_over(slurm, job))
    output = slurm.until(lambda: slurm.output(job))
    assert "Partage: the task is not started" in output
    assert "ran\n" not in output


def test_a_root_that_is_full_starts_nothing(slurm: held_slurm.HeldSlurm) -> None:
    """The text says what to do."""
    fences = "/run/partage/slurm"
    slurm.inside("mount", "-t", "tmpfs", "-o", "size=80k", "tmpfs", fences)
    try:
        done = slurm.prepare()
        assert done.returncode == 0, done.stderr
        done = slurm.srun("--gres=shard:8", "echo", "ran")
        assert (done.returncode, done.stdout) == (1, "")
        assert "No space left on device); make room in that file system" in done.stderr
    finally:
        slurm.until(lambda: slurm.inside("umount", fences).returncode == 0)


def test_what_a_job_used_is_known_after_it(slurm: held_slurm.HeldSlurm) -> None:
    """Its most memory, and how often it was refused more."""
    program = slurm.program("--gres=shard:2")
    program("context(0)")
    program("alloc(GIB)")
    assert program.code("alloc(GIB)") == fenced.OUT_OF_MEMORY
    [job] = slurm.jobs()
    program.end()
    slurm.until(lambda: not slurm.jobs())
    [use] = slurm.uses(job)
    [card] = use["cards"]
    assert card["quota_bytes"] == 2 * GIB
    assert card["peak_bytes"] == GIB + CONTEXT
    assert card["refused"] == 1
    table = slurm.partage("usage", str(job)).stdout
    assert re.search(r"GPU-\S+ +2 GiB +1.25 GiB +1 ", table)


def test_a_task_and_its_stepd_that_are_killed_leave_nothing(
    slurm: held_slurm.HeldSlurm,
) -> None:
    """The Epilog comes all the same, and writes down what was used."""
    program = slurm.program("--gres=shard:2")
    program("context(0)")
    pid = program("os.getpid()")
    [job] = slurm.jobs()
    assert slurm.inside("pkill", "-9", "-f", f"slurmstepd.*\\[{job}\\.").returncode == 0
    assert slurm.jobs() == [job]
    slurm.inside("scancel", "--full", str(job))
    slurm.until(lambda: not slurm.jobs())
    assert slurm.inside("kill", "-0", str(pid)).returncode != 0
    assert len(slurm.uses(job)) == 1


def test_a_job_outlives_slurmd_with_its_fence(slurm: held_slurm.HeldSlurm) -> None:
    """Killed and started again, while the job runs; the tenant goes with the job, not before."""
    program = slurm.program("--gres=shard:2")
    program("context(0)")
    [job] = slurm.jobs()
    slurm.private.restart_nodes()
    assert slurm.jobs() == [job]
    assert program.code("alloc(2 * GIB)") == fenced.OUT_OF_MEMORY
    program.end()
    slurm.until(lambda: not slurm.jobs())
    assert len(slurm.uses(job)) == 1


def test_a_job_that_is_requeued_begins_anew(slurm: held_slurm.HeldSlurm) -> None:
    """It has a fence of its own each time, and a record for each time."""
    folder = _shared_folder(slurm)
    script = slurm.folder / "again.sh"
    script.write_text(f"#!/bin/sh\ndate +%s%N >{folder}/$SLURM_RESTART_COUNT.run\nsleep 60\n")
    job = slurm.submit(script, "--gres=shard:2", "--requeue")
    slurm.until(lambda: len(list(folder.glob("*.run"))) == 1)
    before = (slurm.root.tenants / f"job-{job}").stat().st_ino
    slurm.inside("scontrol", "requeue", str(job))
    slurm.until(lambda: len(slurm.uses(job)) == 1)
    slurm.inside("scontrol", "update", f"JobId={job}", "StartTime=now")
    slurm.until(lambda: len(list(folder.glob("*.run"))) == 2)
    assert (slurm.root.tenants / f"job-{job}").stat().st_ino != before


def test_an_array_of_jobs_never_takes_more_than_the_cards_have(
    slurm: held_slurm.HeldSlurm,
) -> None:
    """Each takes all it can get; at every look, each card has what was given out and no more."""
    folder = _shared_folder(slurm)
    (slurm.folder / "greedy.py").write_text(_GREEDY)
    python = " ".join(held_slurm.ENTRY)
    script = slurm.folder / "greedy.sh"
    script.write_text(f"#!/bin/sh\nexec {python} {slurm.folder}/greedy.py {folder}\n")
    sizes = {3: 10, 5: 8, 9: 6}
    for shards, count in sizes.items():
        slurm.submit(script, f"--gres=shard:{shards}", f"--array=1-{count}")
    most: dict[str, int] = {}
    deadline = time.monotonic() + 5 * held_slurm.PATIENCE_S
    while len(list(folder.glob("*.done"))) < sum(sizes.values()):
        assert time.monotonic() < deadline, slurm.private.logs()
        taken: dict[str, int] = {}
        for job in slurm.jobs():
            with contextlib.suppress(errors.PartageError):  # it has ended
                used = slurm.used(job)
                # What is counted may have in it, for a moment, what is about to be refused.
                assert used.peak_bytes <= (used.quota_bytes or 0)
                taken[used.uuid] = taken.get(used.uuid, 0) + (used.quota_bytes or 0)
        for uuid, quota_bytes in taken.items():
            most[uuid] = max(most.get(uuid, 0), quota_bytes)
    assert len(most) == 2
    assert all(8 * GIB < quota_bytes <= 16 * GIB for quota_bytes in most.values())
    answers = [path.read_text().split() for path in folder.glob("*.done")]
    assert all(int(given) == int(shards) - 1 for shards, given in answers)


# A GiB less than it has, as the context is in there, too.
_GREEDY = """
import ctypes, os, pathlib, sys, time
driver = ctypes.CDLL('libcuda.so.1')
context, pointer, given = ctypes.c_uint64(), ctypes.c_uint64(), 0
driver.cuInit(0)
driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
driver.cuCtxSetCurrent(context)
while driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_uint64(1 << 30)) == 0:
    given += 1
time.sleep(0.3)
path = pathlib.Path(sys.argv[1]) / os.environ['SLURM_JOB_ID']
path.write_text(os.environ['SLURM_SHARDS_ON_NODE'] + ' ' + str(given))
path.rename(path.with_suffix('.done'))
"""


def test_a_job_that_is_suspended_keeps_its_fence(slurm: held_slurm.HeldSlurm) -> None:
    """Its processes stop, and go on with what they had."""
    program = slurm.program("--gres=shard:2")
    program("context(0)")
    program("alloc(GIB)")
    [job] = slurm.jobs()
    assert slurm.inside("scontrol", "suspend", str(job)).returncode == 0
    assert slurm.used(job).used_bytes == GIB + CONTEXT
    assert slurm.inside("scontrol", "resume", str(job)).returncode == 0
    assert program.code("alloc(GIB)") == fenced.OUT_OF_MEMORY
    program.end()


def test_a_step_without_a_card_is_inside_as_well(slurm: held_slurm.HeldSlurm) -> None:
    """In a job that has a fence, there is no step without one."""
    script = slurm.folder / "none.sh"
    script.write_text("#!/bin/sh\nsrun --overlap --gres=none ls /etc/partage/fence/limits\n")
    job = slurm.submit(script, "--gres=shard:2")
    assert slurm.until(lambda: slurm.output(job)).strip() == "/etc/partage/fence/limits"


def test_the_prolog_makes_a_node_ready_that_is_not(slurm: held_slurm.HeldSlurm) -> None:
    """And only then: a job does not wait for it otherwise."""
    table, prolog = slurm.fences / "cards", str(slurm.folder / "plugin/slurm-prolog")

    def written() -> int:
        assert slurm.inside(prolog).returncode == 0
        return table.stat().st_mtime_ns

    before = written()
    assert written() == before
    (slurm.private.folder / "gres.conf").touch()
    newer = written()
    assert newer > before
    text = table.read_text()
    table.write_text(text.replace("boot ", "boot 0"))
    assert written() > newer
    assert table.read_text() == text
    table.unlink()
    assert written()
    assert slurm.srun("--gres=shard:1", "echo", "ran").stdout == "ran\n"


@contextlib.contextmanager
def _argument(slurm: held_slurm.HeldSlurm, word: str) -> Iterator[None]:
    """The plugin's line with one more argument."""
    path = slurm.private.folder / "plugstack.conf"
    text = path.read_text()
    path.write_text(f"{text.rstrip()} {word}\n")
    try:
        yield
    finally:
        path.write_text(text)


def test_namespaces_of_users_can_be_allowed(slurm: held_slurm.HeldSlurm) -> None:
    """It is the administrator's choice; what is mounted there covers the fence."""
    script = "unshare --user --map-root-user --mount true && echo made"
    forbidden = slurm.srun("--gres=shard:1", "sh", "-c", script)
    assert (forbidden.stdout, "Operation not permitted" in forbidden.stderr) == ("", True)
    with _argument(slurm, "userns=allow"):
        assert slurm.srun("--gres=shard:1", "sh", "-c", script).stdout == "made\n"


def test_memory_alone_can_be_limited(slurm: held_slurm.HeldSlurm) -> None:
    """Its time is then its own affair."""
    with _argument(slurm, "compute=none"):
        program = slurm.program("--gres=shard:4")
    program("context(0)")
    assert program.code("alloc(4 * GIB)") == fenced.OUT_OF_MEMORY
    assert "PARTAGE_COMPUTE_PERCENT" not in program("list(os.environ)")
    assert slurm.used(slurm.jobs()[0]).mode == limits.Mode.NONE
    program.end()


def test_an_argument_that_is_not_known_starts_nothing(slurm: held_slurm.HeldSlurm) -> None:
    """A slip in plugstack.conf must not mean another limit."""
    with _argument(slurm, "compute=most"):
        done = slurm.srun("--gres=shard:1", "echo", "ran")
        assert slurm.srun("echo", "ran").stdout == "ran\n"
    assert (done.returncode, done.stdout) == (1, "")
    assert "compute=most in plugstack.conf is none of root=DIR" in done.stderr


def _shared_folder(slurm: held_slurm.HeldSlurm) -> pathlib.Path:
    """One that jobs may write to."""
    folder = slurm.folder / f"shared-{os.urandom(4).hex()}"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


def _is_over(slurm: held_slurm.HeldSlurm, job: int) -> bool:
    state = slurm.inside("scontrol", "show", "job", str(job)).stdout
    return not re.search(r"JobState=(PENDING|RUNNING|COMPLETING|CONFIGURING)", state)
