"""Checks of the cards, of who uses them, and of the fences around programs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from partage.core import errors
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence.levels import catalog
from partage.fence.library import aliases, originals
from partage.fence.library import libpartage as hook_library
from partage.local.doctor import findings
from partage.local.machine import machine, simulated_driver
from partage.local.run import program_fence
from partage.local.state import location

_LOAD_S = 10.0


def cards(context: findings.Context) -> Iterator[findings.Finding]:
    """Each card: what it is, and whether it is healthy."""
    if context.seen is None:
        return
    if not context.seen.devices:
        yield findings.problem("cards", "the driver reports no cards", "see `nvidia-smi -L`")
    for device in context.seen.devices:
        yield _card(device)


def foreign(context: findings.Context) -> Iterator[findings.Finding]:
    """Processes on the cards that Partage did not start."""
    if context.seen is None:
        return
    others, pids = context.beside.tenants(), {process.pid for process in context.seen.present}
    of_jobs = others.owners(pids).keys() | others.unfenced(pids).keys()
    if context.state is None:
        foreigners = tuple(p for p in context.seen.present if p.pid not in of_jobs)
    else:
        living = context.swept.living
        foreigners = machine.understood(
            context.seen, living, context.state, claimed=of_jobs
        ).foreign
    if not foreigners:
        jobs = f", and jobs of {context.beside.manager.capitalize()}," if of_jobs else ""
        yield findings.ok("foreign", f"only programs of `partage run`{jobs} use the cards")
        return
    sizes = [process.used_bytes for process in foreigners if process.used_bytes is not None]
    used = f"{sum(sizes) // MIB} MiB" if len(sizes) == len(foreigners) else "N/A"
    count = len({process.pid for process in foreigners})
    subject = "1 process" if count == 1 else f"{count} processes"
    yield findings.note(
        "foreign",
        f"{subject} that Partage did not start {'uses' if count == 1 else 'use'} {used}",
        "start them with `partage run`; until then, what they use is not granted to anybody",
    )


def managed(context: findings.Context) -> Iterator[findings.Finding]:
    """Cards that others give away, where there are any."""
    if context.seen is None:
        return
    access = context.beside.gate(context.seen.devices)
    present = [card for device in context.seen.devices if (card := device.card) is not None]
    if note := access.note(present):
        yield findings.ok("managed", f"{note}, and not given away by `partage run`")


def fences(_context: findings.Context) -> Iterator[findings.Finding]:
    """Which fences a program can have here, and why not the others."""
    for probe in program_fence.probes():
        name = f"fence {probe.level}"
        if probe.available:
            yield findings.ok(name, "for programs of `partage run`")
        elif probe.level is catalog.Level.HOOK:
            yield findings.problem(
                name, f"{probe.reason}: programs are not held to their share", probe.remedy
            )
        else:
            yield findings.ok(name, f"not available: {probe.reason}")


def library(_context: findings.Context) -> Iterator[findings.Finding]:
    """Whether the library of the fence can be loaded into a program."""
    library_file = hook_library.find()
    if library_file.problem:
        yield findings.problem("library", library_file.problem, library_file.remedy)
        return
    failure = _loaded(library_file.path)
    if failure:
        yield findings.problem(
            "library",
            failure,
            "install the wheel for this machine again, on a disk that is not mounted noexec",
        )
    else:
        yield findings.ok("library", str(library_file.path))


def cuda(context: findings.Context) -> Iterator[findings.Finding]:
    """Whether programs find a CUDA library, behind what the fence puts in front of it."""
    if context.driver is None:
        return  # which is reported already
    if context.environ.get(location.SIMULATION):
        yield _simulated_cuda(simulated_driver.driver_folder() / originals.CUDA)
        return
    path = originals.find(context.environ).get(originals.CUDA)
    if path is None:
        yield findings.problem(
            "cuda",
            f"{originals.CUDA} for this machine was not found: programs have no CUDA, "
            "and the fence has nothing to lead to",
            "install the driver's library for CUDA (package libcuda1, or NVIDIA's installer), run "
            "`sudo ldconfig`, or name its folder in LD_LIBRARY_PATH",
        )
    else:
        yield findings.ok("cuda", str(path))


def _simulated_cuda(path: Path) -> findings.Finding:
    if hook_library.fits(path):
        return findings.ok("cuda", f"{path}, simulated")
    return findings.problem(
        "cuda",
        f"{path} cannot be loaded: programs find no simulated cards",
        "run `make native` in a checkout, or install Partage from a wheel",
    )


def _loaded(path: Path) -> str:
    """What goes wrong when a program is started with it; empty if nothing does."""
    try:
        with aliases.named_for_a_while(path.parent) as folder:  # as a tenant's programs name it
            done = _started_with(folder / path.name)
    except errors.FenceError as error:
        return str(error)
    complaint = " ".join(done.stderr.split())  # the loader's
    if done.returncode != 0 and not complaint:
        return f"{path} is damaged: a program that loads it ends with {done.returncode}"
    return complaint


def _started_with(library_path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["true"],
        env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(library_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LOAD_S,
    )


def _card(device: nvml.Device) -> findings.Finding:
    name = f"card {device.index}"
    simulated = (device.model or "").startswith(machine.SIMULATED)
    memory = "N/A" if device.memory_mib is None else f"{device.memory_mib} MiB"
    about = f"{device.model or 'N/A'}, {memory}" + (", simulated" if simulated else "")
    if device.problem:
        remedy = f"see `nvidia-smi -q -i {device.index}`, and reset the card"
        return findings.problem(name, f"{about}: {device.problem}", remedy)
    return findings.ok(name, about)
