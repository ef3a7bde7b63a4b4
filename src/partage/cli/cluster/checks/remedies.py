"""Remedies that depend on how Partage was installed: by Helm, or from files.

Files of deploy/ are for kube-system. Where a chart is installed elsewhere they would lead the API
server to Services that are not there, so the way back is the chart's.
"""

from __future__ import annotations

from partage.cli.cluster.facts import cluster_facts

CHART = "deploy/chart/partage"
_AGENT = "daemonset partage-agent"


def applied(facts: cluster_facts.Facts, file: str, value: str) -> str:
    """How objects of a file of deploy/ are put there; ``value`` lets the chart have them."""
    place = facts.release
    if place is None:
        return f"kubectl apply -f deploy/{file}"
    return f"`{upgrade(place)}`, with {value}"


def upgrade(place: cluster_facts.Installation) -> str:
    """The command that renders a chart anew with the values that it has."""
    where = f"--namespace {place.namespace}"
    return f"helm upgrade {place.release} {CHART} {where} --reset-then-reuse-values"


def described_agent(facts: cluster_facts.Facts) -> str:
    """How to look at the DaemonSet of the agents."""
    agents = [p for p in facts.programs or () if p.role is cluster_facts.Role.AGENT]
    namespace = agents[0].namespace if agents else cluster_facts.Installation().namespace
    name = f"daemonset {agents[0].name}" if agents else _AGENT
    return f"`kubectl -n {namespace} describe {name}`"
