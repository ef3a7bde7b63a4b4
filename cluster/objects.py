"""Objects: Node and Pod objects as plain dictionaries, ready for the API server.

A node has what a kubelet and gpushare's device plugin would have reported, and is Ready; its status
can be given at creation. A pod's cannot: the API server starts every pod as Pending.
:mod:`cluster.pod_phases` changes it later. For a :class:`cluster.node.node.Node` a pod is made with
:func:`running_pod`, as there its image is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cluster import api
from cluster.node import container_image

MEMORY = "aliyun.com/gpu-mem"
COUNT = "aliyun.com/gpu-count"

_CPU = "64"
_MAIN_MEMORY = "256Gi"
_MOST_PODS = "250"
_PER_SUBNET = 250


def node(
    name: str,
    *,
    cards: int = 4,
    card_units: int = 16,
    resources: Mapping[str, str | int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    address: str = "10.1.0.1",
) -> api.Object:
    """A node; ``card_units`` is a card's memory in the unit of gpushare's plugin, usually GiB.

    ``resources`` come on top, or in place of what is there. Without cards gpushare reports nothing.
    """
    gpushare = {MEMORY: str(cards * card_units), COUNT: str(cards)} if cards else {}
    amounts = {
        "cpu": _CPU,
        "memory": _MAIN_MEMORY,
        "pods": _MOST_PODS,
        **gpushare,
        **{resource: str(amount) for resource, amount in (resources or {}).items()},
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "status": _node_status(amounts, address),
    }


def nodes(
    count: int,
    *,
    prefix: str = "node-",
    cards: int = 4,
    card_units: int = 16,
    resources: Mapping[str, str | int] | None = None,
) -> Iterator[api.Object]:
    """Some nodes, all alike but for name and address."""
    width = len(str(count))
    for number in range(1, count + 1):
        subnet, host = divmod(number - 1, _PER_SUBNET)
        yield node(
            f"{prefix}{number:0{width}}",
            cards=cards,
            card_units=card_units,
            resources=resources,
            address=f"10.1.{subnet}.{host + 1}",
        )


def pod(
    name: str,
    limits: Mapping[str, str | int] | None = None,
    *,
    namespace: str = api.DEFAULT,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    scheduler: str = "",
    node_name: str = "",
    priority_class: str = "",
) -> api.Object:
    """A pod of one container with these limits; ``node_name`` makes it bound from the start."""
    written = {resource: str(amount) for resource, amount in (limits or {}).items()}
    choices = {
        "schedulerName": scheduler,
        "nodeName": node_name,
        "priorityClassName": priority_class,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {
            "containers": [{"name": "main", "image": "pause", "resources": {"limits": written}}],
            **{field: value for field, value in choices.items() if value},
        },
    }


def container(
    *command: str, name: str = "main", limits: Mapping[str, str | int] | None = None
) -> api.Object:
    """A container that a real node can run; without a command it sleeps."""
    written = {resource: str(amount) for resource, amount in (limits or {}).items()}
    made = {
        "name": name,
        "image": container_image.NAME,
        "imagePullPolicy": "Never",
        "resources": {"limits": written},
    }
    return made | ({"command": list(command)} if command else {})


def running_pod(
    name: str,
    *containers: api.Object,
    namespace: str = api.DEFAULT,
    annotations: Mapping[str, str] | None = None,
    node_name: str = "",
    **spec: object,
) -> api.Object:
    """A pod of such containers, one that sleeps if none is given; ``spec`` as the API has it."""
    made = pod(name, namespace=namespace, annotations=annotations, node_name=node_name)
    made["spec"] |= {
        "containers": list(containers) or [container()],
        "automountServiceAccountToken": False,
        **spec,
    }
    return made


def runtime_class(name: str) -> api.Object:
    """A RuntimeClass for pods that name a runtime of their node's containerd."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": name,
    }


def _node_status(amounts: Mapping[str, str], address: str) -> api.Object:
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "made for a test; there is no kubelet",
    }
    return {
        "capacity": dict(amounts),
        "allocatable": dict(amounts),
        "conditions": [ready],
        "addresses": [{"type": "InternalIP", "address": address}],
    }


def gpu_definition(*, status_apart: bool = False) -> api.Object:
    """A definition of GPU objects that accepts anything; its status may be written apart."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1alpha1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}} if status_apart else {},
    }
    names = {"plural": "gpus", "singular": "gpu", "kind": "GPU", "listKind": "GPUList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gpus.elasticgpu.io"},
        "spec": {
            "group": "elasticgpu.io",
            "scope": "Cluster",
            "names": names,
            "versions": [version],
        },
    }
