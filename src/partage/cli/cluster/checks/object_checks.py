"""Checks of what is stored: records on pods, definitions of claims, GPU objects."""

from __future__ import annotations

from collections.abc import Iterator

from partage.cli.cluster.checks import groups, remedies
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

_WORST = "it counts on every card it may have"


def records(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Records that this version does not understand."""
    if facts.pods is None:
        return
    if facts.pods.newer:
        yield groups.problem(
            "pod",
            facts.pods.newer,
            f"a newer Partage recorded its cards, in a way that {facts.version} does not know",
            "upgrade what is older, or use the doctor of the newer version",
        )
    if facts.pods.older:
        yield groups.problem(
            "pod",
            facts.pods.older,
            f"an older Partage recorded its cards, in a way that {facts.version} does not read",
            "delete the pod so that it is placed again",
        )
    problems = {pod.pod: pod.problem for pod in facts.pods.damaged}
    if problems:
        first = min(problems)
        said = problems[first] if len(problems) == 1 else f"{first}: {problems[first]}"
        text = f"its record cannot be read, so {_WORST} ({said})"
        yield groups.problem("pod", problems, text, "delete the pod so that it is placed again")


def definitions(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether claims are installed, all of them and as this version has them."""
    if facts.definitions is None:
        return
    missing = [d.name for d in facts.definitions if not d.installed]
    if missing and len(missing) == len(facts.definitions):
        yield findings.ok("claims", "their definitions are not installed, and not needed")
        return
    put_back = remedies.applied(facts, "claims.yaml", "crds.install=true")
    if missing:
        text = "it is missing, and others are there"
        yield groups.problem("definition", missing, text, put_back)
    other = [d.name for d in facts.definitions if d.installed and not d.same]
    if other:
        yield groups.note(
            "definition",
            other,
            f"it is not as {facts.version} would install it: an older one, or another's",
            put_back,
        )
    elif not missing:
        count = groups.counted(len(facts.definitions), "definition")
        yield findings.ok("claims", f"{count}, as {facts.version} has them")


def gpu_objects(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether GPU objects are about the cards that there are."""
    if facts.gpu_objects is None or facts.nodes is None:
        return
    cards = {(node.name, index) for node in facts.nodes.cards for index in node.indexes}
    served = {node.name for node in facts.nodes.cards}
    lost = {node for node, _ in cards - facts.gpu_objects.cards}
    stale = {node for node, _ in facts.gpu_objects.cards if node not in served}
    remedy = "check the extender's log and its right to elasticgpu.io: gpus"
    if lost:
        yield groups.note("node", lost, "GPU objects of its cards are missing", remedy)
    if stale:
        yield groups.note("node", stale, "GPU objects tell of its cards, and it has none", remedy)
    if not lost and not stale:
        changed = facts.gpu_objects.changed
        latest = "" if changed is None else f", the latest change on {changed:%Y-%m-%d %H:%M} UTC"
        count = groups.counted(len(facts.gpu_objects.cards), "object")
        yield findings.ok("GPU objects", f"{count}{latest}")
