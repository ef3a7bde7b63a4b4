"""The examination of a cluster: all checks, over facts that were collected before.

Each check is one function from the facts to findings. What could not be read has one finding, and
checks pass over it: a doctor who did not look says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from partage.cli.cluster.checks import (
    certificate_checks,
    clock_checks,
    guard_checks,
    node_checks,
    object_checks,
    program_checks,
    scheduler_checks,
    version_checks,
)
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings


class Check(Protocol):
    """One check."""

    __name__: str

    def __call__(self, facts: cluster_facts.Facts, /) -> Iterable[findings.Finding]: ...


# In the order in which they are worth putting right.
CHECKS: tuple[Check, ...] = (
    program_checks.extender,
    program_checks.scheduler,
    program_checks.admission,
    program_checks.agents,
    version_checks.versions,
    version_checks.kube_scheduler,
    node_checks.served,
    node_checks.published,
    node_checks.device_interface,
    node_checks.rivals,
    node_checks.complaints,
    scheduler_checks.configuration,
    scheduler_checks.bound_past,
    scheduler_checks.unserved,
    scheduler_checks.advertised,
    object_checks.records,
    guard_checks.policies,
    guard_checks.asked,
    guard_checks.exceptions,
    certificate_checks.certificates,
    clock_checks.clocks,
    object_checks.definitions,
    object_checks.gpu_objects,
)


def examine(facts: cluster_facts.Facts) -> list[findings.Finding]:
    """All findings."""
    return [*_all(facts), *(_unread(part) for part in facts.unread)]


def exit_code(facts: cluster_facts.Facts, results: Iterable[findings.Finding]) -> int:
    """0: no problem; 1: a problem; 2: nothing could be looked at. Notes are no problems."""
    if facts.blind:
        return 2
    return int(any(finding.status is findings.Status.PROBLEM for finding in results))


def _all(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    for check in CHECKS:
        try:
            yield from check(facts)
        except Exception as error:  # noqa: BLE001 (one that fails must not hide the others)
            yield findings.failed(check.__name__, error)


def _unread(part: cluster_facts.Unread) -> findings.Finding:
    return findings.unchecked(part.part, part.why, part.remedy)
