"""The objects of the original systems, as their manifests and charts make them.

gpushare's are those of its repositories (config/gpushare-schd-extender.yaml, device-plugin-ds.yaml,
device-plugin-rbac.yaml), HAMi's those of its chart with default values, and NVIDIA's that of its
static manifest; without what makes no difference to a take-over.
"""

from __future__ import annotations

from typing import Any

from cluster import api

SYSTEM = "kube-system"
EXTENDER, PLUGIN = "gpushare-schd-extender", "gpushare-device-plugin-ds"


def gpushare(*, image: str = "gpushare:1", unit: str = "GiB") -> list[api.Object]:
    """All that gpushare has in a cluster."""
    return [
        *_rights(EXTENDER, EXTENDER, _EXTENDER_RULES),
        *_rights("gpushare-device-plugin", "gpushare-device-plugin", _PLUGIN_RULES),
        _extender(image),
        _service(),
        _device_plugin(image, unit),
    ]


def hami() -> list[api.Object]:
    """HAMi's scheduler, webhook and plugin, as its chart names them."""
    labels = {"app.kubernetes.io/name": "hami"}
    scheduler = labels | {"app.kubernetes.io/component": "hami-scheduler"}
    plugin = labels | {"app.kubernetes.io/component": "hami-device-plugin"}
    return [
        _object("v1", "ServiceAccount", "hami-device-plugin", labels),
        workload(
            "Deployment",
            "hami-scheduler",
            scheduler,
            [
                {"name": "kube-scheduler", "image": "kube-scheduler:1"},
                {
                    "name": "vgpu-scheduler-extender",
                    "image": "projecthami/hami:v2.6.0",
                    "command": ["scheduler", "--http_bind=0.0.0.0:443"],
                },
            ],
            {"replicas": 1},
        ),
        {
            **_object("v1", "Service", "hami-scheduler", labels),
            "spec": {"ports": [{"port": 443}], "selector": scheduler},
        },
        workload(
            "DaemonSet",
            "hami-device-plugin",
            plugin,
            [
                {
                    "name": "device-plugin",
                    "image": "projecthami/hami:v2.6.0",
                    "command": ["nvidia-device-plugin", "--device-split-count=10"],
                }
            ],
            {},
            nodeSelector={"gpu": "on"},
        ),
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "hami-webhook", "labels": labels},
            "webhooks": [
                {
                    "name": "vgpu.hami.io",
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "failurePolicy": "Ignore",
                    "timeoutSeconds": 1,
                    "objectSelector": {
                        "matchExpressions": [
                            {"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}
                        ]
                    },
                    "clientConfig": {
                        "service": {
                            "name": "hami-scheduler",
                            "namespace": SYSTEM,
                            "path": "/webhook",
                        }
                    },
                    "rules": [
                        {
                            "apiGroups": [""],
                            "apiVersions": ["v1"],
                            "operations": ["CREATE"],
                            "resources": ["pods"],
                        }
                    ],
                }
            ],
        },
    ]


def nvidia(*, operated: bool = False, image: str = "nvidia:1") -> list[api.Object]:
    """NVIDIA's plugin by its own manifest; or as the GPU Operator places it."""
    labels = {"name": "nvidia-device-plugin-ds"}
    chosen = {"nvidia.com/gpu.deploy.device-plugin": "true"} if operated else {}
    container = {"name": "nvidia-device-plugin-ctr", "image": image}
    return [
        workload(
            "DaemonSet",
            "nvidia-device-plugin-daemonset",
            labels,
            [container],
            {},
            **({"nodeSelector": chosen} if chosen else {}),
        )
    ]


_EXTENDER_RULES = [
    {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["update", "patch", "get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["bindings", "pods/binding"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch"]},
]
_PLUGIN_RULES = [
    {"apiGroups": [""], "resources": ["nodes", "nodes/proxy"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
    {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["update", "patch", "get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch", "update"]},
]


def _rights(name: str, account: str, rules: list[dict[str, Any]]) -> list[api.Object]:
    group = "rbac.authorization.k8s.io"
    role = {"apiGroup": group, "kind": "ClusterRole", "name": name}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": SYSTEM}
    return [
        _object("v1", "ServiceAccount", account),
        {**_object(f"{group}/v1", "ClusterRole", name, namespace=""), "rules": rules},
        {
            **_object(f"{group}/v1", "ClusterRoleBinding", name, namespace=""),
            "roleRef": role,
            "subjects": [subject],
        },
    ]


def _extender(image: str) -> api.Object:
    container = {
        "name": EXTENDER,
        "image": image,
        "env": [{"name": "LOG_LEVEL", "value": "debug"}, {"name": "PORT", "value": "12345"}],
    }
    return workload(
        "Deployment",
        EXTENDER,
        {"app": "gpushare", "component": EXTENDER},
        [container],
        {"replicas": 1, "strategy": {"type": "Recreate"}},
        hostNetwork=True,
        serviceAccountName=EXTENDER,
        nodeSelector={"node-role.kubernetes.io/master": ""},
        tolerations=[{"key": "node-role.kubernetes.io/master", "effect": "NoSchedule"}],
    )


def _service() -> api.Object:
    labels = {"app": "gpushare", "component": EXTENDER}
    port = {"name": "http", "port": 12345, "targetPort": 12345, "nodePort": 32766}
    return {
        **_object("v1", "Service", EXTENDER, labels),
        "spec": {"type": "NodePort", "ports": [port], "selector": labels},
    }


def _device_plugin(image: str, unit: str) -> api.Object:
    labels = {"app": "gpushare", "component": "gpushare-device-plugin", "name": PLUGIN}
    folder = "/var/lib/kubelet/device-plugins"
    command = ["gpushare-device-plugin-v2", "-logtostderr", "--v=5", f"--memory-unit={unit}"]
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    container = {
        "name": "gpushare",
        "image": image,
        "command": command,
        "env": [
            {"name": "KUBECONFIG", "value": "/etc/kubernetes/kubelet.conf"},
            {"name": "NODE_NAME", "valueFrom": field},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "device-plugin", "mountPath": folder}],
    }
    return workload(
        "DaemonSet",
        PLUGIN,
        labels,
        [container],
        {},
        hostNetwork=True,
        serviceAccountName="gpushare-device-plugin",
        nodeSelector={"gpushare": "true"},
        volumes=[{"name": "device-plugin", "hostPath": {"path": folder}}],
    )


def workload(
    kind: str,
    name: str,
    labels: dict[str, str],
    containers: list[dict[str, Any]],
    more: dict[str, Any],
    **pod: Any,
) -> api.Object:
    """A Deployment or a DaemonSet in the system's namespace."""
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **pod}}
    spec = {"selector": {"matchLabels": labels}, "template": template, **more}
    return {**_object("apps/v1", kind, name, labels), "spec": spec}


def _object(
    version: str,
    kind: str,
    name: str,
    labels: dict[str, str] | None = None,
    *,
    namespace: str = SYSTEM,
) -> api.Object:
    space = {"namespace": namespace} if namespace else {}
    meta = {"name": name, **space, **({"labels": labels} if labels else {})}
    return {"apiVersion": version, "kind": kind, "metadata": meta}
