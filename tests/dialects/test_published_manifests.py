"""Manifests as the systems' own documentation prints them work unchanged."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml

from partage.core.demands import ALL_CARDS, ComputeMode, Demand, Exclusive
from partage.dialects import pods, registry
from tests.dialects import dialect_pods

GPUSHARE = """
apiVersion: apps/v1beta1
kind: StatefulSet
metadata:
  name: binpack-1
spec:
  replicas: 3
  serviceName: "binpack-1"
  podManagementPolicy: "Parallel"
  template:
    metadata:
      labels:
        app: binpack-1
    spec:
      containers:
      - name: binpack-1
        image: cheyang/gpu-player:v2
        resources:
          limits:
            # GiB
            aliyun.com/gpu-mem: 3
"""
CGPU = """
apiVersion: batch/v1
kind: Job
metadata:
  name: cuda-sample
spec:
  parallelism: 1
  template:
    metadata:
      labels:
        app: cuda-sample
    spec:
      containers:
      - name: cuda-sample
        command:
        - bandwidthTest
        resources:
          limits:
            aliyun.com/gpu-mem: 2
            aliyun.com/gpu-core.percentage: 30
        workingDir: /somewhere
      restartPolicy: Never
"""
QGPU = """
apiVersion: v1
kind: Pod
metadata:
  name: qgpu-pod
spec:
  containers:
  - name: test
    resources:
      limits:
        tke.cloud.tencent.com/qgpu-core: 10
        tke.cloud.tencent.com/qgpu-memory: 4
"""
T9K_CARDS = """
apiVersion: v1
kind: Pod
metadata:
  name: exclusive-gpu
  labels:
    scheduler.tensorstack.dev/group-name: gpu-usage
spec:
  schedulerName: t9k-scheduler
  containers:
  - image: example.io/example-image:latest
    name: exclusive
    resources:
      limits:
        tensorstack.dev/nvidia-gpu: 2
"""
T9K_PERCENT = """
apiVersion: v1
kind: Pod
metadata:
  name: shared-gpu
spec:
  schedulerName: t9k-scheduler
  containers:
  - image: example.io/example-image:latest
    name: shared
    resources:
      limits:
        tensorstack.dev/nvidia-gpu-percent: 30
      requests:
        cpu: 500m
        memory: 200Mi
"""
T9K_NODE = """
apiVersion: v1
kind: Pod
metadata:
  name: exlusive-node
spec:
  schedulerName: t9k-scheduler
  containers:
  - image: nginx
    name: exlusive
    resources:
      limits:
        tensorstack.dev/nvidia-gpu-node: 1
"""

MANIFESTS = {
    "gpushare StatefulSet": (GPUSHARE, Demand(memory_mib=3072, compute_mode=ComputeMode.NODE)),
    "cGPU Job": (
        CGPU,
        Demand(memory_mib=2048, compute_percent=30, compute_mode=ComputeMode.FIXED),
    ),
    "qGPU Pod": (
        QGPU,
        Demand(memory_mib=4096, compute_percent=10, compute_mode=ComputeMode.NODE, max_tenants=16),
    ),
    "T9k cards": (T9K_CARDS, Demand(cards=2, exclusive=Exclusive.CARD)),
    "T9k percent": (T9K_PERCENT, Demand(memory_percent=30, memory_enforced=False)),
    "T9k node": (T9K_NODE, Demand(cards=ALL_CARDS, exclusive=Exclusive.NODE)),
}


def _pod(manifest: str) -> pods.Pod:
    """The pod of a manifest, or the template of what makes pods."""
    written: dict[str, Any] = yaml.safe_load(manifest)
    return msgspec.convert(written["spec"].get("template", written), pods.Pod)


@pytest.mark.parametrize(("manifest", "meant"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_published_manifest_is_understood(manifest: str, meant: Demand) -> None:
    """It becomes the demand that its page describes, and there is nothing to warn of."""
    pod = _pod(manifest)
    (container,) = dialect_pods.demand(pod).containers
    assert container.demand == meant
    assert registry.warnings(pod, dialect_pods.SETTINGS) == ()


def test_the_published_claims_amount_is_refused_with_a_hint() -> None:
    """The page writes 4GB, which Kubernetes does not take as an amount of anything."""
    error = dialect_pods.refusal(_pod(QGPU.replace("qgpu-memory: 4", "qgpu-memory: 4GB")))
    assert error.field == "spec.containers[0].resources.limits[tke.cloud.tencent.com/qgpu-memory]"
    assert "a number of GiB" in error.instead
