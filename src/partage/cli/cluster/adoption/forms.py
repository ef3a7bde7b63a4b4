"""Forms: what is read of pods and nodes beside what the doctor reads of them."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.cli.cluster.facts import forms
from partage.dialects import pods


class ContainerStatus(forms.ContainerStatus, frozen=True, rename="camel"):
    """What the kubelet last said of one container, and which one it is."""

    container_id: str = msgspec.field(default="", name="containerID")


class PodStatus(forms.PodStatus, frozen=True, rename="camel"):
    """What was last said of the pod; the kubelet writes the start when it accepts the pod."""

    start_time: str = ""
    reason: str = ""
    container_statuses: tuple[ContainerStatus, ...] = ()


class PodMetadata(forms.PodMetadata, frozen=True, rename="camel"):
    """Who the pod is."""


class Pod(forms.Pod, frozen=True, rename="camel"):
    """A pod with all of that."""

    status: PodStatus = PodStatus()

    @property
    def path(self) -> str:
        """Where the API server has it."""
        return f"/api/v1/namespaces/{self.metadata.namespace}/pods/{self.metadata.name}"

    @property
    def ready(self) -> bool:
        """Whether it serves, and is not about to go."""
        condition = self.condition("Ready")
        going = self.metadata.deletion_timestamp is not None
        return condition is not None and condition.status == "True" and not going

    def made_by(self, kind: str, name: str, namespace: str) -> bool:
        """Whether this controller made it."""
        owner = pods.controller(self)
        is_its = owner is not None and (owner.kind, owner.name) == (kind, name)
        return is_its and self.metadata.namespace == namespace

    @property
    def containers(self) -> frozenset[str]:
        """The containers of it that run, by their ids."""
        return frozenset(
            status.container_id
            for status in self.status.container_statuses
            if status.state.running is not None
        )


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """How far a Deployment is."""

    observed_generation: int = 0
    replicas: int = 0
    updated_replicas: int = 0
    ready_replicas: int = 0


class WorkloadMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """Which version of it should be."""

    generation: int = 0


class WorkloadSpec(msgspec.Struct, frozen=True):
    """How many replicas there should be."""

    replicas: int = 1


class Deployment(msgspec.Struct, frozen=True):
    """A Deployment."""

    metadata: WorkloadMetadata = WorkloadMetadata()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def waiting(self) -> str:
        """What it waits for; empty if it is as it should be."""
        now = self.status
        if now.observed_generation < self.metadata.generation:
            return "its controller has not seen the change"
        if now.updated_replicas < self.spec.replicas or now.replicas > self.spec.replicas:
            new, total = now.updated_replicas, self.spec.replicas
            return f"{new} of {total} replicas are new, and {now.replicas} are there"
        if now.ready_replicas < self.spec.replicas:
            return f"{now.ready_replicas} of {self.spec.replicas} replicas are ready"
        return ""


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret; its data is decoded."""

    data: Mapping[str, bytes] = {}
    metadata: pods.Metadata = pods.Metadata()
