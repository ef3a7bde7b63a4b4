"""Examinations of the cards, who is on them, and the fences around programs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from partage.core import errors
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import aliases, levels, probing
from partage.fence import library as hook_library
from partage.local import fencing, findings, machine

_LOAD_S = 10.0


def cards(around: findings.Around) -> Iterator[findings.Finding]:
    """Each card: what it is, and whether it is well."""
    if around.seen is None:
        return
    if not around.seen.devices:
        yield findings.problem("cards", "the driver has no cards", "see `nvidia-smi -L`")
    for device in around.seen.devices:
        yield _card(device)


def foreign(around: findings.Around) -> Iterator[findings.Finding]:
    """Processes on the cards that Partage did not start."""
    if around.seen is None:
        return
    if around.place is None:
        found = around.seen.present
    else:
        found = machine.understood(around.seen, around.swept.living, around.place).foreign
    if not found:
        yield findings.ok("foreign", "no process on the cards but those of `partage run`")
        return
    known = [each.used_bytes for each in found if each.used_bytes is not None]
    used = f"{sum(known) // MIB} MiB" if len(known) == len(found) else "N/A"
    count = len({each.pid for each in found})
    those = "1 process" if count == 1 else f"{count} processes"
    yield findings.note(
        "foreign",
        f"{those} that Partage did not start {'uses' if count == 1 else 'use'} {used}",
        "start them by `partage run`; until then what they use is not given away",
    )


def fences(around: findings.Around) -> Iterator[findings.Finding]:
    """What a program gets here, and what there is besides."""
    there = {probe.level: probe for probe in probing.probes(_facts(around.driver))}
    for probe in fencing.probes():
        name = f"fence {probe.level}"
        if probe.available:
            yield findings.ok(name, "for programs of `partage run`")
        elif probe.level is levels.Level.HOOK:
            yield findings.problem(
                name, f"{probe.reason}: programs are not held to their share", probe.remedy
            )
        else:
            yield findings.ok(name, _elsewhere(there[probe.level], around.driver))


def library(_around: findings.Around) -> Iterator[findings.Finding]:
    """Whether the library of the fence can be loaded into a program."""
    found = hook_library.find()
    if found.problem:
        yield findings.problem("library", found.problem, found.remedy)
        return
    said = _loaded(found.path)
    aliases.forget(found.path.parent)
    if said:
        yield findings.problem(
            "library",
            said,
            "install the wheel for this machine again, on a disk that is not mounted noexec",
        )
    else:
        yield findings.ok("library", str(found.path))


def _loaded(path: Path) -> str:
    """What goes wrong when a program is started with it; empty if nothing does."""
    try:
        named = aliases.named(path.parent) / path.name  # as a tenant's programs name it
    except errors.FenceError as error:
        return str(error)
    done = subprocess.run(
        ["true"],
        env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": str(named)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_LOAD_S,
    )
    said = " ".join(done.stderr.split())  # the loader's
    if done.returncode != 0 and not said:
        return f"{path} is damaged: a program that has it ends with {done.returncode}"
    return said


def _card(device: nvml.Device) -> findings.Finding:
    name = f"card {device.index}"
    simulated = (device.model or "").startswith(machine.SIMULATED)
    memory = "N/A" if device.memory_mib is None else f"{device.memory_mib} MiB"
    about = f"{device.model or 'N/A'}, {memory}" + (", simulated" if simulated else "")
    if device.problem:
        remedy = f"see `nvidia-smi -q -i {device.index}`, and reset the card"
        return findings.problem(name, f"{about}: {device.problem}", remedy)
    return findings.ok(name, about)


def _facts(driver: nvml.Nvml | None) -> probing.Facts:
    if driver is None:
        return probing.facts()
    return probing.facts(version=driver.driver_version(), memory_limits=driver.has_memory_limits())


def _elsewhere(probe: levels.Probe, driver: nvml.Nvml | None) -> str:
    """Of a level that programs of one machine do not get."""
    here = "it would work here" if probe.available else probe.reason
    return f"for nodes of a cluster, not for `partage run` ({here if driver else 'no driver'})"
