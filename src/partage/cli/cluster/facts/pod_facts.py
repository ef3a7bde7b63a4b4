"""Pods as the doctor sees them: counted, and forgotten unless a finding may name them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Mapping

from partage.cli.cluster.facts import cluster_facts, forms, program_facts
from partage.core import cards, grants
from partage.dialects import bound_pods, contract, grant_record, pods, registry

_SCHEDULED = "PodScheduled"
_DEFAULT_SCHEDULER = "default-scheduler"
_CDI = "CDI device injection failed"  # as container runtimes with CDI off say it, in various ways


class Tally:
    """Takes the pods of a cluster, in any order."""

    def __init__(
        self,
        nodes: Mapping[str, cards.Node],
        published: Collection[str],
        settings: contract.Settings,
    ) -> None:
        self._nodes = nodes
        self._published = published  # nodes on which agents record what others gave, too
        self._settings = settings
        self._count = self._recorded = 0
        self._replicas: list[cluster_facts.Replica] = []
        self._rivals: list[cluster_facts.RivalPod] = []
        self._unrecorded: list[str] = []
        self._newer: list[str] = []
        self._older: list[str] = []
        self._damaged: list[cluster_facts.Damaged] = []
        self._waiting: list[cluster_facts.Waiting] = []
        self._looked: dict[str, dt.datetime] = {}
        self._asking: dict[str, list[str]] = {}
        self._without_cdi: dict[str, list[str]] = {}

    def put(self, pod: forms.Pod) -> None:
        """Look at one pod."""
        self._count += 1
        self._note_scheduler(pod)
        if pods.ended(pod):
            return
        self._replicas += program_facts.replicas(pod)
        rival = program_facts.rival(pod)
        if rival is not None:
            self._rivals.append(rival)
        if bound_pods.asks(pod) or registry.asks_by_annotation(pod):
            if pod.spec.node_name:
                self._bound(pod)
            else:
                self._pending(pod)

    def all(self) -> cluster_facts.Pods:
        """The facts."""
        return cluster_facts.Pods(
            count=self._count,
            recorded=self._recorded,
            replicas=tuple(self._replicas),
            rivals=tuple(self._rivals),
            unrecorded=tuple(self._unrecorded),
            newer=tuple(self._newer),
            older=tuple(self._older),
            damaged=tuple(self._damaged),
            waiting=tuple(self._waiting),
            looked=self._looked,
            asking={resource: tuple(names) for resource, names in self._asking.items()},
            without_cdi={node: tuple(names) for node, names in self._without_cdi.items()},
        )

    def _note_scheduler(self, pod: forms.Pod) -> None:
        """A pod that was placed, or could not be, shows that its scheduler is at work."""
        condition = pod.condition(_SCHEDULED)
        when = condition.last_transition_time if condition else None
        name = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
        if when is not None and when > self._looked.get(name, when - dt.timedelta(seconds=1)):
            self._looked[name] = when

    def _pending(self, pod: forms.Pod) -> None:
        created = pod.metadata.creation_timestamp
        if pod.condition(_SCHEDULED) is None and created is not None:
            scheduler = pod.spec.scheduler_name or _DEFAULT_SCHEDULER
            self._waiting.append(cluster_facts.Waiting(pod.label, scheduler, created))
        for resource in pods.resources(pod) & registry.names().resources:
            self._asking.setdefault(resource, []).append(pod.label)

    def _bound(self, pod: forms.Pod) -> None:
        if _lacks_cdi(pod):
            self._without_cdi.setdefault(pod.spec.node_name, []).append(pod.label)
        text = pod.metadata.annotations.get(grant_record.GRANT)
        version = grant_record.VERSION if text is None else grant_record.version(text)
        if version is not None and version > grant_record.VERSION:
            self._newer.append(pod.label)
        elif version is not None and version < grant_record.VERSION:
            self._older.append(pod.label)
        else:
            self._read(pod)

    def _read(self, pod: forms.Pod) -> None:
        name = pod.spec.node_name
        node = self._nodes.get(name, cards.Node(name=name, cards=()))
        granted = bound_pods.granted(pod, node, self._settings)
        if isinstance(granted, grants.Grant):
            self._recorded += 1
        elif granted is not None and _marked(pod):
            self._damaged.append(cluster_facts.Damaged(pod.label, str(granted)))
        elif granted is not None and not self._is_others(pod):
            self._unrecorded.append(pod.label)

    def _is_others(self, pod: forms.Pod) -> bool:
        """Whether a vendor's plugin gave its cards, which records nothing on its own nodes."""
        named = pods.resources(pod) & registry.names().resources
        vendors = named <= registry.names().vendor_resources
        return vendors and pod.spec.node_name not in self._published


def _marked(pod: forms.Pod) -> bool:
    """Whether somebody wrote down which cards the pod has."""
    records = registry.names().record_annotations - {grant_record.LOOKED_AT}
    return not records.isdisjoint(pod.metadata.annotations)


def _lacks_cdi(pod: forms.Pod) -> bool:
    states = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    return any(s.state.waiting is not None and _CDI in s.state.waiting.message for s in states)
