"""Situations: what was read of a cluster before a take-over is planned."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.cli.cluster.adoption import forms, objects, systems
from partage.cli.cluster.facts import cluster_facts
from partage.cli.cluster.facts import forms as doctors_forms
from partage.local.doctor import findings


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    system: systems.System
    plugins: tuple[objects.Object, ...] = ()  # DaemonSets of the system's device plugin
    deciders: tuple[objects.Object, ...] = ()  # Deployments that decide for the system
    webhooks: tuple[objects.Object, ...] = ()  # configurations that lead to the system
    beside: tuple[str, ...] = ()  # other objects of the system
    agents: tuple[objects.Object, ...] = ()  # DaemonSets of Partage's agent
    nodes: tuple[doctors_forms.Node, ...] = ()  # all of the cluster
    pods: tuple[forms.Pod, ...] = ()  # that ask for cards, or serve them; none that ended
    present: Mapping[str, objects.Object] = {}  # objects that would be written, by their path
    facts: cluster_facts.Facts | None = None  # of the doctor
    findings: tuple[findings.Finding, ...] = ()  # of the doctor

    def plugin_nodes(self) -> Mapping[str, forms.Pod]:
        """The pods of the system's plugin, by node."""
        names = {(p["metadata"]["name"], p["metadata"]["namespace"]) for p in self.plugins}
        return {
            pod.spec.node_name: pod
            for pod in self.pods
            if pod.spec.node_name and any(pod.made_by("DaemonSet", *name) for name in names)
        }

    def tenants(self, node: str) -> tuple[forms.Pod, ...]:
        """The pods on a node that ask for cards."""
        serving = {pod.metadata.uid for pod in self.plugin_nodes().values()}
        of_node = (pod for pod in self.pods if pod.spec.node_name == node)
        return tuple(pod for pod in of_node if pod.metadata.uid not in serving)
