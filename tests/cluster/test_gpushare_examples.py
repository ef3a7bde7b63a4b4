"""gpushare's published examples, through the real kube-scheduler with gpushare's configuration.

The configuration is the one it ships, with the version of the API that this scheduler reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import api, objects, pod_phases
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import making
from tests.cluster.making import MEMORY

INSUFFICIENT = "Insufficient GPU Memory in one device"


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender
) -> Iterator[ControlPlane]:
    """A cluster that decides the way gpushare's does."""
    extender.start()
    clean_cluster.start_scheduler(
        scheduler_config.gpushare(clean_cluster.kubeconfig, port=extender.port)
    )
    yield clean_cluster
    clean_cluster.stop_scheduler()


def _placed(plane: ControlPlane, node: str, card_units: int, *amounts: int) -> None:
    """Pods that gpushare itself placed: one on each card, of these amounts."""
    for index, units in enumerate(amounts):
        if units:
            record = {
                "ALIYUN_COM_GPU_MEM_IDX": str(index),
                "ALIYUN_COM_GPU_MEM_DEV": str(card_units),
                "ALIYUN_COM_GPU_MEM_POD": str(units),
                "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1579000000000000000",
            }
            name = f"{node}-{index}"
            plane.client.create(
                objects.pod(name, {MEMORY: units}, node_name=node, annotations=record)
            )


def _index(pod: api.Object) -> str:
    return making.written(pod)["ALIYUN_COM_GPU_MEM_IDX"]


def test_the_filter_example_of_the_design_document(plane: ControlPlane) -> None:
    """8138 MiB go to the only node with a card that has them, beside pods of the old system."""
    for name, used in (("n1", (16276, 12207)), ("n2", (12207, 12207)), ("n3", (8138, 16276))):
        plane.client.create(objects.node(name, cards=2, card_units=16276))
        _placed(plane, name, 16276, *used)
    plane.client.create(objects.pod("p", {MEMORY: 8138}))
    pod = making.bound(plane, "p")
    assert pod["spec"]["nodeName"] == "n3"
    assert _index(pod) == "0"


def test_the_bind_example_of_the_design_document(plane: ControlPlane) -> None:
    """12207, 8138, 4069 and 16276 MiB are free: 8138 take card 1, and five annotations say so."""
    plane.client.create(objects.node("n1", cards=4, card_units=16276))
    _placed(plane, "n1", 16276, 4069, 8138, 12207, 0)
    plane.client.create(objects.pod("p", {MEMORY: 8138}, annotations={"mine": "stays"}))
    written = making.written(making.bound(plane, "p"))
    time_ns = written.pop("ALIYUN_COM_GPU_MEM_ASSUME_TIME")
    assert (len(time_ns), time_ns.isdigit()) == (19, True)
    record = written.pop(making.GRANT)
    assert '"index":1,"memory_mib":8138' in record
    assert written == {
        "mine": "stays",
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_DEV": "16276",
        "ALIYUN_COM_GPU_MEM_POD": "8138",
        "ALIYUN_COM_GPU_MEM_ASSIGNED": "false",
    }


def test_samples_one_to_three_share_a_card(plane: ControlPlane) -> None:
    """Three Deployments of 2 GiB pods end up on the same card of a node."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    names = [f"binpack-{i}" for i in (1, 2, 3)]
    for name in names:
        plane.client.create(objects.pod(name, {MEMORY: 2}))
    pods = [making.bound(plane, name) for name in names]
    assert len({_index(pod) for pod in pods}) == 1
    assert {making.written(pod)["ALIYUN_COM_GPU_MEM_POD"] for pod in pods} == {"2"}


@pytest.mark.parametrize(("card_units", "fits"), [(16276, True), (15, False)], ids=["MiB", "GiB"])
def test_sample_four_fits_in_a_cluster_that_counts_mib_only(
    plane: ControlPlane, card_units: int, fits: bool
) -> None:
    """It asks for 16276."""
    plane.client.create(objects.node("n1", cards=1, card_units=card_units))
    plane.client.create(objects.pod("binpack-4", {MEMORY: 16276}))
    if fits:
        assert making.bound(plane, "binpack-4")["spec"]["nodeName"] == "n1"
    else:
        making.told(plane, "binpack-4", "1 Insufficient aliyun.com/gpu-mem")


def test_what_fits_the_node_but_no_card_waits_with_gpushares_text(plane: ControlPlane) -> None:
    """The second demo of its README; people's alerts look for this text."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    _placed(plane, "n1", 15, 8, 8)
    plane.client.create(objects.pod("p", {MEMORY: 10}))
    making.told(plane, "p", f"0/1 nodes are available: 1 {INSUFFICIENT}.")
    assert making.node_of(plane, "p") == ""


def test_the_table_of_the_user_guide(plane: ControlPlane) -> None:
    """Three pods of 3 GiB on two nodes of 15: the guide's numbers, by the real command."""
    plane.client.create(objects.node("node-b", cards=1, card_units=15, address="192.168.0.71"))
    plane.client.create(objects.node("node-c", cards=1, card_units=15, address="192.168.0.70"))
    for i in range(3):
        # Enough CPU that kube-scheduler, which chooses the node here, spreads them.
        plane.client.create(objects.pod(f"binpack-1-{i}", {MEMORY: 3, "cpu": 16}))
        making.bound(plane, f"binpack-1-{i}")
    command = Path(sys.executable).with_name("kubectl-inspect-gpushare")
    shown = subprocess.run(
        [command],
        env={**os.environ, "KUBECONFIG": str(plane.kubeconfig)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    header, first, second, _dashes, _title, total = shown.splitlines()[:6]
    assert header.split() == ["NAME", "IPADDRESS", "GPU0(Allocated/Total)", "GPU", "Memory(GiB)"]
    assert first.split()[:2] == ["node-b", "192.168.0.71"]
    assert {first.split()[2], second.split()[2]} == {"6/15", "3/15"}
    assert total.startswith("9/30 (30%)")


def test_containers_of_a_pod_are_added_up_on_one_card(plane: ControlPlane) -> None:
    """Two of 5 on a card of 14: the old plugin failed to start such a pod."""
    plane.client.create(objects.node("n1", cards=1, card_units=14))
    pod = objects.pod("p", {MEMORY: 5})
    pod["spec"]["containers"].append({**pod["spec"]["containers"][0], "name": "second"})
    plane.client.create(pod)
    written = making.written(making.bound(plane, "p"))
    assert written["ALIYUN_COM_GPU_MEM_POD"] == "10"
    assert written["ALIYUN_COM_GPU_MEM_DEV"] == "14"
    assert written["ALIYUN_COM_GPU_MEM_IDX"] == "0"
    assert written["ALIYUN_COM_GPU_MEM_ASSIGNED"] == "false"


def test_a_request_of_an_init_container_alone_is_bound(plane: ControlPlane) -> None:
    """kube-scheduler asks about it, and gpushare's bind failed for ever."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    pod = objects.pod("p")
    init = {**objects.pod("x", {MEMORY: 3})["spec"]["containers"][0], "name": "init"}
    pod["spec"]["initContainers"] = [init]
    plane.client.create(pod)
    record = making.grant(making.bound(plane, "p"))
    assert [c["name"] for c in record["containers"]] == ["init"]


def test_memory_of_a_finished_job_goes_to_the_one_that_waits(plane: ControlPlane) -> None:
    """Within seconds, where it used to take kube-scheduler's five minutes."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    _placed(plane, "n1", 15, 8, 8)
    plane.client.create(objects.pod("p", {MEMORY: 10}))
    making.eventually(lambda: making.events(plane, "p"))
    pod_phases.succeed(plane.client, "n1-1")
    assert _index(making.bound(plane, "p")) == "1"


def test_the_same_name_again_and_again_loses_no_memory(plane: ControlPlane) -> None:
    """A pod that is deleted and made anew ten times still finds the whole card."""
    plane.client.create(objects.node("n1", cards=1, card_units=15))
    for _ in range(10):
        plane.client.create(objects.pod("p", {MEMORY: 15}))
        making.bound(plane, "p")
        plane.client.delete("Pod", "p", grace_seconds=0)


def test_a_pod_that_asks_only_for_a_count_is_a_matter_of_the_scheduler(
    plane: ControlPlane,
) -> None:
    """It never reaches an extender that manages memory; it is subtracted as a number."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    plane.client.create(objects.pod("p", {objects.COUNT: 1}))
    assert making.GRANT not in making.written(making.bound(plane, "p"))


def test_an_unhealthy_card_gets_no_pod_until_it_is_well(plane: ControlPlane) -> None:
    """The list is a ConfigMap, which kube-scheduler does not look at: it has to be told."""
    plane.client.create(objects.node("n1", cards=2, card_units=15))
    plane.client.create(_unhealthy("n1", "0, 1"))
    plane.client.create(objects.pod("p", {MEMORY: 3}))
    making.told(plane, "p", INSUFFICIENT)
    plane.client.patch(
        "ConfigMap", "unhealthy-gpu-n1", {"data": {"gpus": "0"}}, namespace="kube-system"
    )
    assert _index(making.bound(plane, "p")) == "1"
    plane.client.delete("ConfigMap", "unhealthy-gpu-n1", "kube-system")


def _unhealthy(node: str, gpus: str) -> api.Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"unhealthy-gpu-{node}", "namespace": "kube-system"},
        "data": {"gpus": gpus},
    }
