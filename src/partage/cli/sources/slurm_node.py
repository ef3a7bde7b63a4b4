"""This machine as a node of Slurm: its jobs' tenants, and the cards that Slurm gives away.

``local`` and ``slurm`` do not know each other; here they meet. Most machines have no Slurm, and
``partage run`` stands between a person and a program: nothing of Slurm is loaded before a look at
the disk has shown that there is some. Simulated cards are no cards of the machine's Slurm.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from partage.core import errors
from partage.devices import nvml
from partage.fence import processes
from partage.local.machine import other_tenants, simulated_driver
from partage.local.requests import card_access
from partage.local.state import location
from partage.slurm.configuration import node_paths

MANAGER = "slurm"
_OPTION = "--under-slurm"
_ASK = "ask Slurm (`srun --gres=gpu:1 ...`), or divide the cards of a job with --under-slurm"
_WHOLE = "ask Slurm for whole cards (--gres=gpu:1); a part of one (shard, mps) cannot be divided"


def gate(environ: Mapping[str, str], *, under_slurm: bool = False) -> card_access.Gate:
    """Which cards ``partage run`` gives away: not Slurm's, or only those of the job around it."""
    if under_slurm:
        return functools.partial(_of_job, environ)
    if simulated_driver.on(environ) or not node_paths.configured(environ):
        return card_access.open_gate
    return functools.partial(_not_slurms, environ)


def tenants(environ: Mapping[str, str], root: Path = node_paths.ROOT) -> other_tenants.Source:
    """The jobs on this machine that have a fence."""
    if simulated_driver.on(environ):
        return other_tenants.none
    return functools.partial(_jobs, root)


def _not_slurms(environ: Mapping[str, str], devices: Sequence[nvml.Device]) -> card_access.Access:
    from partage.slurm.checks import machine_facts
    from partage.slurm.node import managed_cards

    nodes = managed_cards.own_nodes(node_paths.main_file(None, environ), machine_facts.hosts())
    managed = managed_cards.managed(nodes, devices)
    if not managed:
        return card_access.EVERY
    return card_access.Access(
        uuids=_uuids(devices) - managed, why="managed by Slurm (gres.conf)", instead=_ASK
    )


def _of_job(environ: Mapping[str, str], devices: Sequence[nvml.Device]) -> card_access.Access:
    from partage.slurm.checks import machine_facts
    from partage.slurm.jobs import job_cards, job_processes
    from partage.slurm.node import managed_cards

    own = processes.facts(os.getpid())
    step = job_processes.step_of(own.cgroups) if own else None
    if step is None:
        raise errors.InputError(
            f"{_OPTION}: this is not inside a job of Slurm",
            instead="write it behind `srun --gres=gpu:1`, or in the script of such a job",
        )
    nodes = managed_cards.own_nodes(node_paths.main_file(None, environ), machine_facts.hosts())
    user = location.user_name(os.getuid())
    given = job_cards.given(step.job, nodes, devices, user=user)
    if not given:
        raise errors.InputError(
            f"{_OPTION}: job {step.job} has no whole card on this machine", instead=_WHOLE
        )
    why = f"not given to job {step.job} as a whole"
    return card_access.Access(uuids=given, why=why, instead=_WHOLE)


def _job_of(process: processes.Facts) -> int | None:
    from partage.slurm.jobs import job_processes

    step = job_processes.step_of(process.cgroups)
    return step.job if step else None


def _uuids(devices: Sequence[nvml.Device]) -> frozenset[str]:
    return frozenset(device.uuid for device in devices if device.uuid is not None)


def _jobs(root: Path) -> other_tenants.OtherTenants:
    from partage.slurm.jobs import job_processes, job_tenants

    held = job_tenants.read(root)
    return other_tenants.OtherTenants(
        held.root,
        {
            job.tenant.name: other_tenants.OtherTenant(
                job=job.job, uid=job.uid, since=job.since, tenant=job.tenant
            )
            for job in held.by_job.values()
        },
        held.whose,
        _job_of,
        job_processes.step_name,
    )
