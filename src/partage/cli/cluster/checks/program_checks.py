"""Checks of what runs: the extender and who leads, the webhooks, the agents."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence

from partage.cli.cluster.checks import groups, remedies
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

_LATE_S = 5.0  # after the end of a lease: the clocks of two machines differ a little

_Role = cluster_facts.Role


def extender(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether it runs, who leads, and whether kube-scheduler can reach that one."""
    leases = facts.leases or ()
    if facts.programs is not None and not _programs(facts, _Role.EXTENDER) and not leases:
        yield findings.problem(
            "extender",
            "no Deployment runs it, and no Lease shows one: nobody decides about cards",
            "install it: docs/install.md",
        )
        return
    for lease in leases:
        yield _leader(facts, lease)
    for program in _programs(facts, _Role.EXTENDER):
        yield from _replicas(facts, program, led=bool(leases))
    yield from _reached(facts)


def scheduler(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether the kube-scheduler runs that the chart brings; another one shows by what it does."""
    for program in _programs(facts, _Role.SCHEDULER):
        yield from _all_ready(facts, program, "pods that name it stay pending")


def admission(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether the webhooks run that the API server asks."""
    programs = _programs(facts, _Role.ADMISSION)
    for program in programs:
        yield from _all_ready(facts, program, "pods that ask for cards are refused")
    if facts.programs is not None and not programs and facts.webhooks:
        put_back = remedies.applied(facts, "admission.yaml", "admission.enabled=true")
        yield findings.note(
            "admission",
            "the API server asks webhooks that no Deployment of this cluster runs",
            f"nothing to do if they run elsewhere; else {put_back}",
        )


def agents(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether agents run, all together; single nodes have checks of their own."""
    programs = _programs(facts, _Role.AGENT)
    for program in programs:
        ready = _ready(facts, program)
        if ready is not None:
            nodes = groups.counted(program.replicas, "node")
            yield findings.ok(program.label, f"{len(ready)} ready, for {nodes}")
    if facts.programs is not None and not programs and not _served(facts):
        put_back = remedies.applied(facts, "agent.yaml", "agent.enabled=true")
        yield findings.problem(
            "agent",
            "no DaemonSet runs it: no node offers shares of cards",
            f"{put_back}, and label nodes: partage.dev/agent=enabled",
        )


def _programs(facts: cluster_facts.Facts, role: _Role) -> list[cluster_facts.Program]:
    return [program for program in facts.programs or () if program.role is role]


def _served(facts: cluster_facts.Facts) -> bool:
    """Whether anybody serves cards: an agent that runs outside of pods, or another's plugin."""
    return facts.nodes is not None and any(node.served for node in facts.nodes.cards)


def _ready(
    facts: cluster_facts.Facts, program: cluster_facts.Program
) -> Sequence[cluster_facts.Replica] | None:
    """The replicas that are ready; None if pods could not be read."""
    if facts.pods is None:
        return None
    return [
        replica
        for replica in facts.pods.replicas
        if (replica.role, replica.namespace) == (program.role, program.namespace) and replica.ready
    ]


def _all_ready(
    facts: cluster_facts.Facts, program: cluster_facts.Program, without: str
) -> Iterator[findings.Finding]:
    """Of a program each of whose replicas is ready; what happens ``without`` any."""
    ready = _ready(facts, program)
    if ready is None:
        return
    if not ready:
        yield findings.problem(
            program.label,
            f"no replica is ready: {without}",
            f"see `kubectl -n {program.namespace} describe deployment {program.name}`",
        )
    elif len(ready) < program.replicas:
        yield findings.note(
            program.label,
            f"{len(ready)} of {program.replicas} replicas are ready",
            f"see `kubectl -n {program.namespace} get pods`",
        )
    else:
        yield findings.ok(program.label, f"{groups.counted(len(ready), 'replica')} ready")


def _leader(facts: cluster_facts.Facts, lease: cluster_facts.Lease) -> findings.Finding:
    remedy = f"see the log: `kubectl -n {lease.namespace} logs deployment/{lease.name}`"
    if not lease.holder or lease.renewed is None:
        return findings.problem(lease.label, "no replica of the extender leads", remedy)
    stored = lease.written or lease.renewed
    silent = facts.now - stored
    if silent > dt.timedelta(seconds=lease.duration_s + _LATE_S):
        return findings.problem(
            lease.label,
            f"no replica of the extender leads: {lease.holder} has not renewed it for "
            f"{silent.total_seconds():.0f} s",
            remedy,
        )
    version = f", version {lease.version}" if lease.version else ""
    return findings.ok(lease.label, f"{lease.holder} leads{version}")


def _replicas(
    facts: cluster_facts.Facts, program: cluster_facts.Program, *, led: bool
) -> Iterator[findings.Finding]:
    """Only the leader is ready, so one that is ready is what there should be."""
    ready = _ready(facts, program)
    if ready is None:
        return
    if program.replicas > 1 and not led and facts.leases is not None:
        yield findings.problem(
            program.label,
            f"it has {program.replicas} replicas and no Lease: each would grant the same room",
            "set `elect = true` in [leader], or one replica",
        )
    if ready:
        one = "is" if len(ready) == 1 else "are"
        yield findings.ok(
            program.label, f"{len(ready)} of {program.replicas} {one} ready: the one that leads"
        )
    else:
        yield findings.problem(
            program.label,
            "no replica is ready: pods that ask for cards stay pending",
            f"see `kubectl -n {program.namespace} describe deployment {program.name}`",
        )


def _reached(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """A replica that is ready has to be behind a Service, or kube-scheduler does not find it."""
    if facts.pods is None or facts.endpoints is None:
        return
    unreached = [
        replica.label.removeprefix("pod ")
        for replica in facts.pods.replicas
        if replica.role is _Role.EXTENDER
        and replica.ready
        and f"{replica.namespace}/{replica.name}" not in facts.endpoints
    ]
    if unreached:
        yield groups.problem(
            "pod",
            unreached,
            "the extender is ready, and no Service leads to it: kube-scheduler cannot ask",
            "check the selector of its Service: `kubectl get services -A`",
        )
