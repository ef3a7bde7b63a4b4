"""Forms: the fields of Kubernetes objects that the doctor reads, and no others."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

import msgspec

from partage.dialects import nodes, pods


class Managed(msgspec.Struct, frozen=True, rename="camel"):
    """Who wrote fields of an object, and when the API server saw it."""

    time: dt.datetime | None = None
    fields_v1: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="fieldsV1")


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """Who an object is."""

    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    managed_fields: tuple[Managed, ...] = ()


class Container(pods.Container, frozen=True, rename="camel"):
    """One container, and the program that it runs."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class PodMetadata(pods.Metadata, frozen=True, rename="camel"):
    """Who the pod is, and since when."""

    creation_timestamp: dt.datetime | None = None


class PodSpec(pods.Spec, frozen=True, rename="camel"):
    """What the pod runs."""

    containers: tuple[Container, ...] = ()


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One condition of a pod or a node."""

    type: str = ""
    status: str = ""
    last_transition_time: dt.datetime | None = None


class Reason(msgspec.Struct, frozen=True):
    """Why a container does not run."""

    message: str = ""


class State(pods.State, frozen=True, rename="camel"):
    """What a container does."""

    waiting: Reason | None = None


class ContainerStatus(pods.ContainerStatus, frozen=True, rename="camel"):
    """What the kubelet last said of one container."""

    state: State = State()


class PodStatus(pods.Status, frozen=True, rename="camel"):
    """What was last said of the pod."""

    conditions: tuple[Condition, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(pods.Pod, frozen=True, rename="camel"):
    """A pod, with what the dialects read of it."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> Condition | None:
        """One of its conditions."""
        return next((c for c in self.status.conditions if c.type == kind), None)

    @property
    def label(self) -> str:
        """Its name for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class NodeStatus(nodes.Status, frozen=True, rename="camel"):
    """What the kubelet reports."""

    conditions: tuple[Condition, ...] = ()


class Node(nodes.Node, frozen=True, rename="camel"):
    """A node, and whether its kubelet is well."""

    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its kubelet says so; one of which nobody says anything counts as ready."""
        said = [c.status for c in self.status.conditions if c.type == "Ready"]
        return "True" in said or not said


class TemplateSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The pods of a workload."""

    containers: tuple[Container, ...] = ()
    node_selector: Mapping[str, str] = {}


class Template(msgspec.Struct, frozen=True):
    """The same with its metadata."""

    spec: TemplateSpec = TemplateSpec()


class WorkloadSpec(msgspec.Struct, frozen=True):
    """What a Deployment or a DaemonSet should be."""

    replicas: int = 1
    template: Template = Template()


class WorkloadStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What a DaemonSet is."""

    desired_number_scheduled: int = 0


class Workload(msgspec.Struct, frozen=True):
    """A Deployment or a DaemonSet."""

    metadata: Metadata = Metadata()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """What an API server says of itself."""

    git_version: str = ""


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Whose a Lease is."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: dt.datetime | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease."""

    metadata: Metadata = Metadata()
    spec: LeaseSpec = LeaseSpec()


class Target(msgspec.Struct, frozen=True):
    """What an endpoint is."""

    kind: str = ""
    name: str = ""
    namespace: str = ""


class EndpointConditions(msgspec.Struct, frozen=True):
    """Whether it is asked."""

    ready: bool | None = None  # nobody says so: it is


class Endpoint(msgspec.Struct, frozen=True, rename="camel"):
    """One address of a Service."""

    conditions: EndpointConditions = EndpointConditions()
    target_ref: Target | None = None


class EndpointSlice(msgspec.Struct, frozen=True):
    """Addresses of a Service."""

    endpoints: tuple[Endpoint, ...] | None = ()


class ServiceReference(msgspec.Struct, frozen=True):
    """The Service behind which a webhook is."""

    name: str = ""
    namespace: str = ""
    port: int = 443


class Client(msgspec.Struct, frozen=True, rename="camel"):
    """How the API server reaches a webhook."""

    ca_bundle: bytes = b""
    url: str = ""
    service: ServiceReference | None = None


class Webhook(msgspec.Struct, frozen=True, rename="camel"):
    """One webhook."""

    name: str = ""
    failure_policy: str = "Fail"
    client_config: Client = Client()


class WebhookConfiguration(msgspec.Struct, frozen=True):
    """What the API server asks."""

    webhooks: tuple[Webhook, ...] = ()


class ServiceSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a Service is."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")


class Service(msgspec.Struct, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class ConfigMap(msgspec.Struct, frozen=True):
    """A ConfigMap."""

    data: Mapping[str, str] = {}


class Secret(msgspec.Struct, frozen=True):
    """A Secret; keys are in it, and are not kept."""

    data: Mapping[str, bytes] = {}


class Involved(msgspec.Struct, frozen=True):
    """What an event is about."""

    name: str = ""


class Event(msgspec.Struct, frozen=True, rename="camel"):
    """An event."""

    involved_object: Involved = Involved()
    reason: str = ""
    message: str = ""
    last_timestamp: dt.datetime | None = None


class Definition(msgspec.Struct, frozen=True):
    """A CustomResourceDefinition."""

    spec: Mapping[str, object] = {}


class GpuSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Which card it is."""

    index: int = -1
    node_name: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """A GPU object."""

    metadata: Metadata = Metadata()
    spec: GpuSpec = GpuSpec()
