"""Checks of versions: what runs of Partage, and whether it goes together.

Parts of one minor version go together. One minor version apart is what an upgrade looks like while
it goes on, and is noted; more than that was never tried.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from partage.cli.cluster.checks import groups, remedies
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

_FAR = 100
_NUMBERS = re.compile(r"(\d+)\.(\d+)")


def versions(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """All parts beside the extender's version, or beside that of this command."""
    parts = dict(sorted(_parts(facts)))
    if not parts:
        return
    leading = [lease.version for lease in facts.leases or () if lease.version]
    base, whose = (leading[0], "the extender") if leading else (facts.version, "this command")
    apart = {part: _apart(version, base) for part, version in parts.items()}
    far = [part for part, steps in apart.items() if steps > 1]
    near = [part for part, steps in apart.items() if steps == 1]
    text = f"it does not have the version of {whose}, {base}"
    remedy = "install the same version everywhere"
    if far:
        yield groups.problem("part", [_named(part, parts) for part in far], text, remedy)
    if near:
        yield groups.note(
            "part", [_named(part, parts) for part in near], text, f"{remedy}; fine in an upgrade"
        )
    if not far and not near:
        counts = ", ".join(sorted({*parts.values(), base}))
        yield findings.ok("versions", f"{groups.counted(len(parts), 'part')} of {counts}")
    if _apart(facts.version, base):
        yield findings.note(
            "this command",
            f"it is version {facts.version}, and {whose} {base}: it may not know all that it sees",
            f"use the doctor of version {base}",
        )


def kube_scheduler(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """A kube-scheduler of ours beside the API server: it may be a minor version behind, no more.

    The chart takes the version that the cluster has when it is rendered, and stays behind when the
    cluster is upgraded.
    """
    replicas = facts.pods.replicas if facts.pods else ()
    schedulers = [r for r in replicas if r.role is cluster_facts.Role.SCHEDULER and r.version]
    behind = {
        f"{replica.label.removeprefix('pod ')} ({replica.version})": steps
        for replica in schedulers
        if (steps := _behind(replica.version, facts.server_version))
    }
    text = f"kube-scheduler in it does not have the API server's version, {facts.server_version}"
    place = facts.release
    upgrade = f"`{remedies.upgrade(place)}`" if place else "name another image there"
    far = [pod for pod, steps in behind.items() if steps != 1]
    near = [pod for pod, steps in behind.items() if steps == 1]
    if far:
        yield groups.problem("pod", far, f"{text}, and cannot be relied on", upgrade)
    if near:
        yield groups.note("pod", near, text, f"{upgrade}; one minor version behind works")


def _parts(facts: cluster_facts.Facts) -> Iterator[tuple[str, str]]:
    """Each part with its version, where it is told; what a program tells itself comes last."""
    for replica in facts.pods.replicas if facts.pods else ():
        if replica.version and replica.role is not cluster_facts.Role.SCHEDULER:
            yield replica.label, replica.version
    for lease in facts.leases or ():
        if lease.version:
            yield lease.label, lease.version
    for node in facts.nodes.cards if facts.nodes else ():
        if node.agent_version:
            yield f"agent of node {node.name}", node.agent_version


def _named(part: str, parts: dict[str, str]) -> str:
    return f"{part} ({parts[part]})"


def _apart(version: str, other: str) -> int:
    """How many minor versions apart; another major version is far."""
    return abs(_behind(version, other))


def _behind(version: str, other: str) -> int:
    """How many minor versions the first is behind the other; negative if it is newer."""
    numbers = [_NUMBERS.match(text) for text in (version, other)]
    if not all(numbers):
        return 0  # a version of somebody's own; nothing can be said
    (major, minor), (other_major, other_minor) = (
        (int(match.group(1)), int(match.group(2))) for match in numbers if match
    )
    return other_minor - minor if major == other_major else (other_major - major) * _FAR
