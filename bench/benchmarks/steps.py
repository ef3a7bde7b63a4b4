"""Steps: what the plugin of Slurm costs a task, from `srun` to the task's first instructions.

A real slurmctld, slurmd and munge with one simulated card. Within one allocation of a shard, steps
are started with and without the plugin's line in plugstack.conf, in turns; the task says when it
began. With the plugin it begins behind the fence: its files are mounted, and the loader has loaded
the library.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from bench.measurement import results
from cluster.slurm import private_slurm
from native import libraries, parts

STEPS = int(os.environ.get("PARTAGE_BENCH_STEPS", "40"))
_AIM_MS = 15.0
_CARD = "16GiB"
_COVERS = {"/etc": "etc", "/run": "run", "/var/lib": "var"}  # what the node is prepared in
_PARTAGE = pathlib.Path(sys.executable).with_name("partage")


def run() -> Iterator[results.Result]:
    """The line, after all steps."""
    try:
        private_slurm.check_machine()
    except private_slurm.CannotRun as error:
        yield results.Note(f"left out: {error}")
        return
    if not (parts.LIB / "spank" / libraries.SPANK).exists():
        yield results.Note("left out: build the plugin first, with `python -m native spank`")
        return
    with tempfile.TemporaryDirectory(prefix="partage-bench-") as folder:
        yield from _measured(pathlib.Path(folder))


def _measured(folder: pathlib.Path) -> Iterator[results.Result]:
    slurm = _made(folder)
    try:
        _start(slurm, folder)
        plugstack = slurm.folder / "plugstack.conf"
        lines = {"with": plugstack.read_text(), "without": ""}
        job = _allocation(slurm)
        took_ms: dict[str, list[float]] = {kind: [] for kind in lines}
        for kind, text in lines.items():
            plugstack.write_text(text)
            _check(slurm, job, held=kind == "with")
        for _ in range(STEPS):
            for kind, text in lines.items():
                plugstack.write_text(text)
                took_ms[kind].append(_step_ms(slurm, job))
    finally:
        slurm.stop()
    medians = {kind: statistics.median(times) for kind, times in took_ms.items()}
    yield results.Note(f"{STEPS} steps without the plugin: {medians['without']:.1f} ms (median)")
    yield results.Amount(
        what="more with the plugin, from srun to the task",
        amount=medians["with"] - medians["without"],
        unit="ms",
        aim=_AIM_MS,
    )


def _made(folder: pathlib.Path) -> private_slurm.PrivateSlurm:
    for name in _COVERS.values():
        (folder / name).mkdir()
    shutil.copytree("/etc", folder / "etc", symlinks=True, dirs_exist_ok=True)
    covers = {place: folder / name for place, name in _COVERS.items()}
    return private_slurm.PrivateSlurm(folder / "slurm", cards=1, covers=covers)


def _start(slurm: private_slurm.PrivateSlurm, folder: pathlib.Path) -> None:
    [node] = slurm.nodes
    lines = [
        "AutoDetect=off",
        f"Name=gpu Type=a File={slurm.devices}/nvidia0",
        "Name=shard Count=16",
    ]
    slurm.start({node: "gpu:a:1,shard:16"}, "gpu,shard", lines)
    conf = ["--conf", str(slurm.folder)]
    _partage(slurm, folder, "install", *conf, "--folder", str(folder / "plugin"))
    _partage(slurm, folder, "prepare", *conf)
    slurm.restart()


def _partage(slurm: private_slurm.PrivateSlurm, folder: pathlib.Path, *words: str) -> None:
    simulated = {
        "LD_LIBRARY_PATH": str(parts.LIB / "simulated"),
        "SIMCUDA_STATE": str(folder / "machine"),
        "SIMCUDA_CARDS": _CARD,
    }
    subprocess.run(
        slurm.command_inside(str(_PARTAGE), "slurm", *words),
        env={**slurm.environment, **simulated},
        stdout=subprocess.DEVNULL,
        check=True,
    )


def _allocation(slurm: private_slurm.PrivateSlurm) -> str:
    done = slurm.run("salloc", "--no-shell", "--gres=shard:4", "--job-name=steps")
    listed = slurm.run("squeue", "--noheader", "--format=%i").stdout.split()
    if len(listed) != 1:
        raise RuntimeError(f"salloc failed: {done.stderr}")
    return listed[0]


def _check(slurm: private_slurm.PrivateSlurm, job: str, *, held: bool) -> None:
    done = slurm.run("srun", f"--jobid={job}", "--overlap", "ls", "/etc/partage")
    if done.returncode or bool(done.stdout) != held:
        raise RuntimeError(f"a step is not as it should be: {done.stdout} {done.stderr}")


def _step_ms(slurm: private_slurm.PrivateSlurm, job: str) -> float:
    """From the start of `srun` to the task, by the clock that both read."""
    begin = 'date +%s%N; exec srun --jobid="$0" --overlap date +%s%N'
    done = slurm.run("sh", "-c", begin, job)
    if done.returncode:
        raise RuntimeError(f"a step failed: {done.stderr}")
    started, begun = (int(line) for line in done.stdout.split())
    return (begun - started) / 1e6
