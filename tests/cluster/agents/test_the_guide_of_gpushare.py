"""What gpushare's user guide shows is what one sees, on real nodes, with limits that hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from cluster import api, objects
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

GIB = 1024
REPLICAS = [f"binpack-1-{i}" for i in range(3)]


def stateful_set() -> api.Object:
    """The StatefulSet of the guide, in the version that clusters have today."""
    labels = {"app": "binpack-1"}
    main = objects.container(name="binpack-1", limits={"aliyun.com/gpu-mem": 3})
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "binpack-1", "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 3,
            "serviceName": "binpack-1",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [main], "terminationGracePeriodSeconds": 1},
            },
        },
    }


def test_three_replicas_of_three_gib_share_a_card(site: Site) -> None:
    """Annotations, environment and limits are those of the guide; past 3 GiB is out of memory."""
    site.client.create(stateful_set())
    pods = site.running(*REPLICAS)
    assert len({(p["spec"]["nodeName"], *sites.shares(p, "binpack-1")) for p in pods}) == 1
    for pod in pods:
        written = making.written(_assigned(site, pod))
        environment = site.environment(pod["metadata"]["name"], "binpack-1")
        assert environment["ALIYUN_COM_GPU_MEM_IDX"] == written["ALIYUN_COM_GPU_MEM_IDX"]
        assert environment["ALIYUN_COM_GPU_MEM_DEV"] == written["ALIYUN_COM_GPU_MEM_DEV"]
        assert environment["ALIYUN_COM_GPU_MEM_POD"] == written["ALIYUN_COM_GPU_MEM_POD"] == "3"
        assert environment["ALIYUN_COM_GPU_MEM_CONTAINER"] == "3"
        (uuid,) = sites.shares(pod, "binpack-1")
        assert environment["NVIDIA_VISIBLE_DEVICES"] == uuid
        assert site.cards(pod["metadata"]["name"], "binpack-1") == {uuid: 3 * GIB}
    _check_limits(site)
    _check_table(site, pods)
    site.client.delete("StatefulSet", "binpack-1")


def _check_limits(site: Site) -> None:
    """One asks for more than it has, and a neighbour beside it does not notice."""
    greedy, neighbour = REPLICAS[:2]
    assert site.said(neighbour, "gpu", "try", "2500", container="binpack-1") == "held\n"
    refused = site.exec(greedy, "gpu", "try", str(3 * GIB), container="binpack-1")
    assert (refused.returncode, refused.stdout) == (1, "CUDA_ERROR_OUT_OF_MEMORY\n")
    assert site.said(neighbour, "gpu", "try", "2500", container="binpack-1") == "held\n"


def _check_table(site: Site, pods: list[api.Object]) -> None:
    """`kubectl inspect gpushare` prints what the guide shows."""
    program = Path(sys.executable).with_name("kubectl-inspect-gpushare")
    command = [str(program), "--kubeconfig", str(site.plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    written = making.written(pods[0])
    total = int(written["ALIYUN_COM_GPU_MEM_DEV"])
    column = 2 + int(written["ALIYUN_COM_GPU_MEM_IDX"])
    node = pods[0]["spec"]["nodeName"]
    row = next(line.split() for line in shown.splitlines() if line.startswith(node))
    assert row[column] == f"9/{total}", shown
    assert shown.splitlines()[-2:] == [
        "Allocated/Total GPU Memory In Cluster:",
        f"9/136 ({900 // 136}%)  ",
    ]


def _assigned(site: Site, pod: api.Object) -> api.Object:
    """The pod once the agent has said that its container has its card, and by what it is held."""
    name, before = pod["metadata"]["name"], making.written(pod)

    def check() -> api.Object | None:
        pod_now = site.pod(name)
        done = making.written(pod_now)["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "true"
        return pod_now if done and sites.fence(pod_now, "binpack-1") == "hook" else None

    assigned: api.Object = making.eventually(check)
    time = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"
    assert making.written(assigned)[time] == before[time]
    return assigned
