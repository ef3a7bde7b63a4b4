"""Checks of nodes with cards: whether something serves them, once, and with a fence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from partage.cli.cluster.checks import groups, remedies
from partage.cli.cluster.facts import cluster_facts
from partage.local.doctor import findings

_LABEL = "kubectl label node NAME partage.dev/agent=enabled"
_LOG = "see the log of the agent's pod there, and `kubectl describe node`"
_WEAK = "advisory"

_Agents = Mapping[str, list[cluster_facts.Replica]]  # by node


def served(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Nodes on which an agent is missing, or not well."""
    if facts.nodes is None or facts.pods is None:
        return
    agents = _agents(facts.pods)
    sorts: dict[str, list[str]] = {}
    for node in facts.nodes.cards:
        sorts.setdefault(_sort(node, agents), []).append(node.name)
    agent = remedies.described_agent(facts)
    yield from (
        make("node", sorts[sort], text, remedy.format(agent=agent))
        for sort, (make, text, remedy) in _SORTS.items()
        if sort in sorts
    )
    well = groups.counted(len(sorts.get(_WELL, ())), "node")
    yield findings.ok("nodes", f"{well} of {facts.nodes.count:,} with an agent that is ready")


def published(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """What agents wrote on their nodes, where it cannot be read or says little."""
    for node in facts.nodes.cards if facts.nodes else ():
        if node.problem:
            yield findings.problem(
                f"node {node.name}",
                f"what its agent wrote cannot be read: {node.problem}",
                "let the agent and this command be of one version",
            )
    weak = [n.name for n in (facts.nodes.cards if facts.nodes else ()) if n.fence == _WEAK]
    if weak:
        yield groups.note(
            "node",
            weak,
            "its fence is advisory: containers are not held to their share",
            f"{_LOG}; docs/fence.md has what the level hook needs",
        )


def device_interface(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Nodes whose container runtime does not know CDI, by what became of pods there."""
    failing = facts.pods.without_cdi if facts.pods else {}
    if failing:
        pods = sorted(pod for names in failing.values() for pod in names)
        yield groups.problem(
            "node",
            failing,
            f"its container runtime did not inject devices by CDI ({groups.listed(pods)})",
            "turn CDI on there: docs/agent.md#what-a-node-needs",
        )


def rivals(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Other systems' plugins on nodes that have Partage's agent."""
    if facts.pods is None:
        return
    agents = _agents(facts.pods)
    beside: dict[tuple[str, frozenset[str]], list[str]] = {}
    elsewhere: dict[str, set[str]] = {}
    for pod in facts.pods.rivals:
        if pod.node in agents:
            beside.setdefault((pod.plugin, pod.resources), []).append(f"{pod.node} ({pod.pod})")
        else:
            elsewhere.setdefault(pod.plugin, set()).add(pod.node)
    for (plugin, resources), names in sorted(beside.items(), key=lambda item: item[0][0]):
        yield groups.problem(
            "node",
            names,
            f"{plugin} runs beside Partage's agent, and serves {', '.join(sorted(resources))} "
            "as well: the same cards are given away twice",
            "keep it away from nodes with the agent: docs/install.md",
        )
    for plugin, nodes in sorted(elsewhere.items()):
        yield findings.ok(plugin, f"on {groups.counted(len(nodes), 'node')} without an agent")


def complaints(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """What agents themselves told of plugins beside them."""
    agents = _agents(facts.pods) if facts.pods else {}
    for complaint in facts.complaints:
        began = [agent.created for agent in agents.get(complaint.node, []) if agent.created]
        if complaint.when and any(created > complaint.when for created in began):
            continue  # another agent is there since
        kind = findings.problem if complaint.taken else findings.note
        yield kind(
            f"node {complaint.node}",
            f"its agent says: {complaint.text}",
            "remove the other plugin from the node, then delete the agent's pod there",
        )


_WELL = "well"
_SORTS = {
    "unready": (groups.problem, "its agent is not ready: it offers nothing", _LOG),
    "missing": (
        groups.problem,
        "an agent should be there, and none is",
        "see {agent}, and taints of the node",
    ),
    "gone": (
        groups.problem,
        "an agent published its cards and is gone: what is bound to it does not start",
        f"{_LABEL}; or `kubectl annotate node NAME partage.dev/cards-` if it is meant so",
    ),
    "down": (
        groups.note,
        "its kubelet is not ready, so nothing is said of its agent",
        "see `kubectl describe node`",
    ),
    "others": (
        groups.note,
        "another system's plugin serves its cards, and no agent is there",
        "nothing to do where that is meant; else docs/install.md tells how to move a node",
    ),
    "idle": (groups.note, "it has a card, and nothing serves it", _LABEL),
}


def _sort(node: cluster_facts.Node, agents: _Agents) -> str:
    present = agents.get(node.name, [])
    if any(agent.ready for agent in present):
        return _WELL
    if not node.ready:
        return "down"
    if present:
        return "unready"
    if node.selected:
        return "missing"
    if node.published:
        return _WELL if node.served else "gone"  # one that runs outside of pods has no pod
    return "others" if node.served else "idle"


def _agents(pods: cluster_facts.Pods) -> dict[str, list[cluster_facts.Replica]]:
    agents: dict[str, list[cluster_facts.Replica]] = {}
    for replica in pods.replicas:
        if replica.role is cluster_facts.Role.AGENT:
            agents.setdefault(replica.node, []).append(replica)
    return agents
