"""Configurations of Slurm as texts, and the machine that they are about."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.devices import nvml
from partage.slurm.checks import configuration_check, machine_facts
from partage.slurm.configuration import config_files, findings, statements
from partage.slurm.slurm_programs import Version

HOST = "gpu7"
OLD, NEW = Version(22, 5), Version(24, 11)
SLURM = """\
SelectType=select/cons_tres
SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ
TaskPlugin=task/affinity,task/cgroup
"""
NODE = """\
GresTypes=gpu,shard
NodeName=gpu7 Gres=gpu:t4:2,shard:32
"""
GRES = """\
NodeName=gpu7 Name=gpu Type=t4 File=/dev/nvidia0
NodeName=gpu7 Name=gpu Type=t4 File=/dev/nvidia1
NodeName=gpu7 Name=shard Count=32
"""
CGROUP = "ConstrainDevices=yes\n"
HELD = "required /usr/local/lib/partage/partage_spank.so\n"
SCRIPTS = """\
Prolog=/usr/local/lib/partage/slurm-prolog
Epilog=/usr/local/lib/partage/slurm-epilog
"""


def device(minor: int, memory_mib: int = 16384, model: str = "Tesla T4") -> nvml.Device:
    """A card whose index is not its minor number, as on many machines."""
    return nvml.Device(
        index=7 - minor,
        uuid=f"GPU-{minor}",
        minor=minor,
        model=model,
        memory_mib=memory_mib,
        mig=False,
    )


def facts(
    *devices: nvml.Device,
    version: Version | None = NEW,
    files: Mapping[str, machine_facts.File] | None = None,
    preload: bool = True,
) -> machine_facts.Facts:
    """A machine with these cards, or two of 16 GiB, and a device file for each."""
    cards = devices or (device(0), device(1))
    character = machine_facts.Kind.CHARACTER
    own = {f"/dev/nvidia{card.minor}": machine_facts.File(character, card.minor) for card in cards}
    return machine_facts.Facts(
        hosts=(HOST, f"{HOST}.example.org"),
        version=version,
        files=own | dict(files or {}),
        devices=cards,
        preload=preload,
    )


def document(name: str, text: str) -> statements.Document:
    """A file, as if it had been read."""
    path = f"/etc/slurm/{name}.conf"
    return statements.Document(path, tuple(statements.of_text(path, text)))


def checked(
    *,
    slurm: str = SLURM + NODE,
    gres: str = GRES,
    cgroup: str = CGROUP,
    plugstack: str | None = None,
    machine: machine_facts.Facts | None = None,
) -> list[findings.Finding]:
    """What is found; everything is right but for what is given.

    Without a ``plugstack`` jobs are held, and slurm.conf ends with the scripts for that.
    """
    if plugstack is None:
        slurm, plugstack = f"{slurm}\n{SCRIPTS}", HELD
    configuration = config_files.Configuration(
        document("slurm", slurm),
        document("gres", gres),
        document("cgroup", cgroup),
        document("plugstack", plugstack),
    )
    return [*configuration_check.check(configuration, machine or facts())]


def without_devices(machine: machine_facts.Facts) -> machine_facts.Facts:
    """The same machine, where the driver cannot be asked."""
    return msgspec.structs.replace(machine, devices=None, no_devices="no driver")
