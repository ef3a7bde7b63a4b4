"""Settings of a node on a network: what its CNI plugin, kubelet and kube-proxy are given for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from cluster.network import addresses

KUBELET_PORT = 10250  # the usual one: the node's network is its own


def plugin(number: int) -> str:
    """How containerd's CNI plugin connects a pod with this node."""
    veth = {
        "type": "partage-veth",
        "node": addresses.node(number),
        "pods": addresses.pods(number),
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [veth]})


def kubelet() -> dict[str, Any]:
    """What pods are told about names. There is nothing to resolve outside the cluster."""
    return {"clusterDNS": [addresses.HUB], "clusterDomain": addresses.DOMAIN, "resolvConf": ""}


def kube_proxy(node: str, kubeconfig: Path) -> str:
    """kube-proxy's configuration; limits of connections are the machine's, and stay as they are."""
    return yaml.safe_dump(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "hostnameOverride": node,
            "clusterCIDR": addresses.PODS,
            "detectLocalMode": "ClusterCIDR",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpCloseWaitTimeout": "0s",
                "tcpEstablishedTimeout": "0s",
            },
            "nftables": {"minSyncPeriod": "0s"},
        },
        sort_keys=False,
    )
