"""Programs in a cluster: which workloads and pods are Partage's, and which are rivals'.

By what they run, and not by their names: charts and administrators choose names. So Partage's own
programs are known by their command line, also where they stand in gpushare's place under gpushare's
names. Rivals, the device plugins of other systems, are known by the words of their DaemonSets and
images.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from partage.cli.cluster.facts import cluster_facts, forms
from partage.dialects import pods

Role = cluster_facts.Role

_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?\S*)")
_VERSION_LABEL = "app.kubernetes.io/version"
_NAME_LABEL = "app.kubernetes.io/name"
_RELEASE_LABEL = "app.kubernetes.io/instance"
_OURS = {"app.kubernetes.io/part-of": "partage"}
_BY_HELM = {"app.kubernetes.io/managed-by": "Helm"}
_COMMANDS = frozenset({Role.EXTENDER, Role.ADMISSION, Role.AGENT})
_SCHEDULER = "kube-scheduler"
_CONFIGURED = re.compile(r"--config=\S*/partage/\S*")  # as the chart and the pages have it
_WITHIN = "--admission"  # of the extender: the webhooks run in its process
_NOT_PLUGINS = ("feature-discovery", "mps-control")  # beside NVIDIA's plugin, of the same image


class Plugin(msgspec.Struct, frozen=True):
    """A device plugin of another system."""

    name: str
    words: tuple[str, ...]
    resources: frozenset[str]


PLUGINS = (
    Plugin(
        "gpushare's device plugin",
        ("gpushare-device-plugin", "gpushare-plugin"),
        frozenset({"aliyun.com/gpu-mem", "aliyun.com/gpu-count"}),
    ),
    Plugin("HAMi's device plugin", ("hami-device-plugin", "/hami:"), frozenset({"nvidia.com/gpu"})),
    Plugin(
        "NVIDIA's device plugin",
        ("nvidia-device-plugin", "k8s-device-plugin"),
        frozenset({"nvidia.com/gpu"}),
    ),
    Plugin(
        "Tencent's GPU manager",
        ("gpu-manager",),
        frozenset({"tencent.com/vcuda-core", "tencent.com/vcuda-memory"}),
    ),
    Plugin(
        "Elastic GPU's agent",
        ("elastic-gpu-agent",),
        frozenset({"elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"}),
    ),
)


def roles(containers: tuple[forms.Container, ...]) -> Iterator[Role]:
    """Which programs of Partage these containers run."""
    for container in containers:
        words = [*container.command, *container.args]
        if _is_our_scheduler(words):
            yield Role.SCHEDULER
        if not any("partage" in word for word in (*words[:1], container.image)):
            continue
        role = next((word for word in words[:2] if word in _COMMANDS), "")
        if role:
            yield Role(role)
        if role == Role.EXTENDER and _WITHIN in words:
            yield Role.ADMISSION


def version(role: Role, labels: Mapping[str, str], containers: tuple[forms.Container, ...]) -> str:
    """The version that a label, or the tag of an image, tells; empty if it tells none.

    The label is Partage's version, also on pods of kube-scheduler, which has one of its own.
    """
    tags = (container.image.partition("@")[0].rpartition(":")[2] for container in containers)
    said = "" if role is Role.SCHEDULER else labels.get(_VERSION_LABEL, "")
    for text in (said, *tags):
        match = _VERSION.fullmatch(text)
        if match:
            return match.group(1)
    return ""


def installation(meta: forms.Metadata) -> cluster_facts.Installation:
    """Of which a workload is a part; under names of other systems it says nothing of itself."""
    labels = meta.labels
    if not _OURS.items() <= labels.items():
        return cluster_facts.Installation(namespace=meta.namespace)
    by_helm = _BY_HELM.items() <= labels.items()
    return cluster_facts.Installation(
        namespace=meta.namespace,
        name=labels.get(_NAME_LABEL, cluster_facts.Installation().name),
        release=labels.get(_RELEASE_LABEL, "") if by_helm else "",
    )


def of_workload(kind: str, workload: forms.Workload) -> Iterator[cluster_facts.Program]:
    """The programs of Partage that a Deployment or a DaemonSet runs."""
    meta, containers = workload.metadata, workload.spec.template.spec.containers
    desired = workload.status.desired_number_scheduled
    for role in roles(containers):
        yield cluster_facts.Program(
            kind=kind,
            namespace=meta.namespace,
            name=meta.name,
            role=role,
            replicas=desired if kind == "DaemonSet" else workload.spec.replicas,
            version=version(role, meta.labels, containers),
            installation=installation(meta),
        )


def replicas(pod: forms.Pod) -> Iterator[cluster_facts.Replica]:
    """The programs of Partage that a pod runs."""
    ready = pod.condition("Ready")
    for role in roles(pod.spec.containers):
        yield cluster_facts.Replica(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            role=role,
            node=pod.spec.node_name,
            ready=ready is not None and ready.status == "True",
            version=version(role, pod.metadata.labels, pod.spec.containers),
            created=pod.metadata.creation_timestamp,
        )


def rival(pod: forms.Pod) -> cluster_facts.RivalPod | None:
    """The pod as that of another system's plugin, if it is one."""
    owner = pods.controller(pod)
    if owner is None or owner.kind != "DaemonSet":
        return None
    plugin = plugin_of(owner.name, pod.metadata.labels, pod.spec.containers)
    if plugin is None:
        return None
    return cluster_facts.RivalPod(plugin.name, plugin.resources, pod.label, pod.spec.node_name)


def plugin_of(
    daemon_set: str, labels: Mapping[str, str], containers: tuple[forms.Container, ...]
) -> Plugin | None:
    """Which system's plugin a DaemonSet of this name runs, if it is one."""
    if any(word in daemon_set for word in _NOT_PLUGINS) or any(roles(containers)):
        return None
    images = (container.image for container in containers)
    said = " ".join((daemon_set, *labels.values(), *images))
    return next((plugin for plugin in PLUGINS if any(word in said for word in plugin.words)), None)


def _is_our_scheduler(words: list[str]) -> bool:
    """Whether this is kube-scheduler with a configuration in a folder of Partage's."""
    program = words[0].rpartition("/")[2] if words else ""
    return program == _SCHEDULER and any(map(_CONFIGURED.fullmatch, words))
