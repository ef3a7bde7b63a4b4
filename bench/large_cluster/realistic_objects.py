"""Realistic objects: nodes and pods as a large cluster has them, for benchmarks of the extender.

Sizes decide what decoding and memory cost, so they are those of real objects: a pod has 3 KB, with
the environment, volumes and probes that pods of machine learning have and that nobody here reads. A
node has eight cards, which its agent wrote down with uuid and model, besides what gpushare's plugin
reports.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence

from cluster import api, objects
from partage.core import cards
from partage.dialects import nodes

CARDS = 8
CARD_GIB = 80
MEMORY = objects.MEMORY
SIZES_GIB = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 30, 32, 40, 48)

_GIB_MIB = 1024
_MODEL = "NVIDIA A100-SXM4-80GB"
_REGISTRY = "registry.example.com/machine-learning/"


def names(count: int) -> list[str]:
    """The names of nodes, 21 characters each."""
    return [f"gpu-node-{number:04}.example" for number in range(count)]


def node(name: str) -> api.Object:
    """A node with its cards."""
    node_cards = [
        cards.Card(
            uuid=_card_uuid(name, index),
            index=index,
            memory_mib=CARD_GIB * _GIB_MIB,
            model=_MODEL,
            numa=index // 4,
        )
        for index in range(CARDS)
    ]
    return objects.node(
        name,
        cards=CARDS,
        card_units=CARD_GIB,
        annotations={nodes.CARDS: nodes.encode(node_cards)},
        labels={"topology.kubernetes.io/zone": "a", "node.kubernetes.io/instance-type": "gpu-8"},
    )


def pod(
    name: str,
    limits: Mapping[str, str | int],
    *,
    labels: Mapping[str, str] | None = None,
    uid: str = "",
    cpu: str = "500m",
) -> api.Object:
    """A pod that is not bound."""
    made = objects.pod(name, limits, labels={**_LABELS, **(labels or {})})
    if uid:
        made["metadata"]["uid"] = uid
    container = made["spec"]["containers"][0]
    container |= _CONTAINER
    container["resources"]["requests"] = {"cpu": cpu, "memory": "1Gi"}
    made["spec"] |= _SPEC
    return made


def binding(pod: api.Object, node_name: str, annotations: Mapping[str, str]) -> api.Object:
    """What binds a pod with its grant, as the extender writes it."""
    meta = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "uid": meta["uid"],
            "annotations": dict(annotations),
        },
        "target": {"apiVersion": "v1", "kind": "Node", "name": node_name},
    }


def sizes_gib(source: random.Random) -> Iterator[int]:
    """Sizes for ever: small ones often, large ones now and then."""
    weights = [1 / size**0.5 for size in SIZES_GIB]
    while True:
        yield from source.choices(SIZES_GIB, weights, k=256)


def body(pod: api.Object, node_names: Sequence[str]) -> bytes:
    """The question of filter and prioritize."""
    question = {"Pod": pod, "Nodes": None, "NodeNames": list(node_names)}
    return json.dumps(question, separators=(",", ":")).encode()


def _card_uuid(name: str, index: int) -> str:
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{index}')}"


_LABELS = {
    "app.kubernetes.io/name": "inference",
    "app.kubernetes.io/instance": "inference-production",
    "app.kubernetes.io/part-of": "recommendation",
    "pod-template-hash": "7c5ddbdf54",
}
_ENVIRONMENT = {
    "MODEL_NAME": "recommendation-large-v3",
    "MODEL_BUCKET": "s3://models-production-eu-central-1/recommendation/large/v3",
    "LOG_FORMAT": "json",
    "OMP_NUM_THREADS": "8",
    "NCCL_DEBUG": "WARN",
    "NCCL_SOCKET_IFNAME": "eth0",
    "HF_HOME": "/var/cache/huggingface",
    "TRITON_CACHE_DIR": "/var/cache/triton",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.observability.svc:4317",
    "OTEL_RESOURCE_ATTRIBUTES": "service.name=inference,deployment.environment=production",
}
_PROBE = {
    "initialDelaySeconds": 15,
    "timeoutSeconds": 2,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 6,
}
_MOUNTS = {
    "models": "/models",
    "cache": "/var/cache",
    "scratch": "/scratch",
    "shared-memory": "/dev/shm",
    "configuration": "/etc/inference",
}
_CONTAINER = {
    "image": f"{_REGISTRY}inference-server@sha256:{'0123456789abcdef' * 4}",
    "imagePullPolicy": "IfNotPresent",
    "command": ["/opt/inference/bin/server", "--model-store=/models", "--strict-readiness=true"],
    "env": [{"name": name, "value": value} for name, value in _ENVIRONMENT.items()],
    "ports": [{"name": "http", "containerPort": 8000}, {"name": "metrics", "containerPort": 8002}],
    "readinessProbe": {"httpGet": {"path": "/v2/health/ready", "port": 8000}, **_PROBE},
    "livenessProbe": {"httpGet": {"path": "/v2/health/live", "port": 8000}, **_PROBE},
    "volumeMounts": [{"name": name, "mountPath": path} for name, path in _MOUNTS.items()],
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_FOR_A_WHILE = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
_SPEC = {
    "volumes": [
        *({"name": name, "emptyDir": {}} for name in _MOUNTS if name != "configuration"),
        {"name": "configuration", "configMap": {"name": "inference", "defaultMode": 420}},
    ],
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": 30,
    "dnsPolicy": "ClusterFirst",
    "tolerations": [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        *({"key": key, **_FOR_A_WHILE} for key in ("example.com/slow", "example.com/busy")),
    ],
    "securityContext": {"runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000},
}
