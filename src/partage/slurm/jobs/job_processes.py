"""Whose a process of a node is: the job and the step of Slurm, by its cgroup.

A process cannot leave the cgroup of its step, and no process of others can enter it. Its path names
both, in the forms of either version of cgroups:

    .../slurm/uid_1000/job_4711/step_0/task_1             version 1; or slurm_NODE
    .../system.slice/slurmstepd.scope/job_4711/step_0     version 2

What a job makes inside its own cgroup comes behind that, so the first job of a path is the one. A
user may have cgroups of their own elsewhere, and name them as they like: who relies on this looks
at who started the process, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

_STEP = re.compile(
    r"(?:^|/)(?:slurm(?:_[^/]+)?|[^/]*slurmstepd\.scope)"
    r"/(?:uid_\d+/)?job_(\d{1,10})(?:/step_([^/]{1,40}))?(?=/|$)",
    re.ASCII,
)

# Steps that have a name and no number of their own: as slurm.h has them.
_NAMED = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern"}


class Step(msgspec.Struct, frozen=True):
    """A step of a job; empty where the path names the job alone."""

    job: int
    step: str = ""


def step_name(group: int) -> str:
    """Of the step that is a group of its job's tenant; ``native/spank`` counts them from 1."""
    return _NAMED.get(group - 1, str(group - 1))


def step_of(cgroups: Iterable[str]) -> Step | None:
    """The step that a process belongs to, by the paths of its cgroups; None if there is none."""
    for path in cgroups:
        if match := _STEP.search(path):
            return Step(int(match[1]), match[2] or "")
    return None
