"""Pods of every system live on three real nodes at once, each with what its own system gives it.

One node is T9k's for cards (``xgn``) and stays empty for a pod that wants all of it. The second is
``xgn``, too, and for cGPU's shares of compute; the third is T9k's for percentages (``sgn``), and
for all who ask for no mode.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
import yaml

from cluster import api, objects
from cluster.node import container_image, node
from cluster.node.node import Node
from cluster.partage_processes.admission_process import Admission
from partage.core.quantities import MIB
from partage.dialects import registry
from partage.fence.store import limits
from tests.cluster import admitting, making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

PARTAGE = Path(sys.executable).with_name("partage")
MANIFESTS = Path(__file__).with_name("all_systems.yaml")
NOT_TO_BE_HAD = (
    "example.io/example-image:latest",
    "nginx",
    "cheyang/gpu-player:v2",
    "registry.cn-beijing.aliyuncs.com/ai-samples/gpushare-sample:cuda-sample-11.0.3",
)
T9K_MODE, CGPU_MODE = "sched.tensorstack.dev/node-alloc-mode", "ack.node.gpu.schedule"
ACCELERATOR = {"sched.tensorstack.dev/accelerator": "nvidia-gpu"}
REPLICAS = tuple(f"binpack-1-{i}" for i in range(3))
OF_SYSTEMS = ("ALIYUN_", "CGPU_", "T9K_", "CUDA_DEVICE_", "CUDA_TASK_", "NVIDIA_VISIBLE_")
WHOLE = 0  # the memory of a card that a container has for itself, or is only advised about
NO_LIMIT = (limits.Mode.NONE, 0)


class Expected(msgspec.Struct, frozen=True):
    """What a system gives to its pod's container."""

    dialect: str
    environment: dict[str, str]  # beside the cards that are visible
    seen_mib: int = WHOLE
    compute: tuple[limits.Mode, int] = NO_LIMIT  # percent


GPUSHARE = Expected(
    "aliyun", {"ALIYUN_COM_GPU_MEM_POD": "3", "ALIYUN_COM_GPU_MEM_CONTAINER": "3"}, 3072
)
EXPECTED = {
    **dict.fromkeys(REPLICAS, GPUSHARE),
    "cuda-sample": Expected(
        "aliyun",
        {"ALIYUN_COM_GPU_MEM_POD": "2", "ALIYUN_COM_GPU_MEM_CONTAINER": "2"},
        2048,
        (limits.Mode.FIXED, 30),
    ),
    "qgpu": Expected("qgpu", {}, 5120, (limits.Mode.BEST_EFFORT, 30)),
    "vcuda": Expected("gaia", {}, 1024, (limits.Mode.FIXED, 20)),
    "elastic": Expected("elastic", {}, 600, (limits.Mode.FIXED, 10)),
    "hami": Expected(
        "hami",
        {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"},
        3000,
        (limits.Mode.BURST, 30),
    ),
    "nvidia": Expected("nvidia", {}),
    "exclusive-gpu": Expected("t9k", {}),
    "shared-gpu": Expected("t9k", {"T9K_GPU_PERCENT": "30"}),
    "exlusive-node": Expected("t9k", {}),
}
ON_ITS_OWN_CARDS = {"nvidia": 1, "exclusive-gpu": 2, "exlusive-node": 2}


@pytest.fixture(scope="module")
def three_nodes(
    nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Node, Node, Node]]:
    """The nodes that all tests share, a third beside them, and their modes."""
    shared_plane = nodes[0].plane
    third = Node(shared_plane, tmp_path_factory.mktemp("third"), 3, cards="4x16GiB")
    modes = {
        nodes[0].name: {T9K_MODE: "xgn"},
        nodes[1].name: {T9K_MODE: "sgn"},
        third.name: {T9K_MODE: "xgn", CGPU_MODE: "core_mem"},
    }
    try:
        third.start()
        for name, labels in modes.items():
            _label(shared_plane.client, name, labels | ACCELERATOR)
        yield nodes[0], third, nodes[1]
    finally:
        node.clear((*nodes, third))
        third.stop()
        shared_plane.client.delete("Node", third.name)
        for name in (nodes[0].name, nodes[1].name):
            _label(shared_plane.client, name, dict.fromkeys([T9K_MODE, *ACCELERATOR]))


@pytest.fixture(scope="module")
def three(
    three_nodes: tuple[Node, Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A site of them, whose agents serve every dialect there is."""
    node.clear(three_nodes)
    options = ("--dialects", ",".join(registry.dialect_names()))
    made = Site(three_nodes, tmp_path_factory.mktemp("site"), options=options)
    try:
        made.start()
        making.eventually(lambda: _have_their_taints(made, three_nodes[:2]))
        yield made
        _remove_workloads(made)
        for real_node in three_nodes:
            _label(made.client, real_node.name, {T9K_MODE: None})
        making.eventually(lambda: not any(_taints(made, name) for name in three_nodes))
    finally:
        made.plane.stop_scheduler()
        made.close()


@pytest.fixture(scope="module")
def admission(three: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admission]:
    """The webhooks of its control plane."""
    with admitting.admission(three.plane, tmp_path_factory.mktemp("admission")) as process:
        yield process


def test_all_systems_live_on_three_nodes_at_once(three: Site, admission: Admission) -> None:
    """Each has its own environment and limits, one table has all; they outlive the webhooks."""
    pods = _all_running(three)
    for name, expected in EXPECTED.items():
        _check_container(three, pods[name], expected)
    _check_places(three, pods)
    _check_table(three, pods)
    _check_webhooks_may_be_down(three, admission, pods)


def _label(client: api.Api, node_name: str, labels: dict[str, str] | dict[str, None]) -> None:
    client.patch("Node", node_name, {"metadata": {"labels": labels}})


def _taints(site: Site, real_node: Node) -> list[api.Object]:
    return list(site.client.get("Node", real_node.name)["spec"].get("taints", []))


def _have_their_taints(site: Site, exclusive: Sequence[Node]) -> bool:
    return all(_taints(site, real_node) for real_node in exclusive)


def _remove_workloads(site: Site) -> None:
    for kind, name in (("StatefulSet", "binpack-1"), ("Job", "cuda-sample")):
        site.client.delete(kind, name)


def _manifests() -> dict[str, api.Object]:
    """By name; images that cannot be had here are those of tests."""
    text = MANIFESTS.read_text()
    for image in NOT_TO_BE_HAD:
        text = text.replace(f" {image}\n", f" {container_image.NAME}\n")
    return {made["metadata"]["name"]: made for made in yaml.safe_load_all(text)}


def _all_running(site: Site) -> dict[str, api.Object]:
    """Create all of them; by name, that of the Job's only pod without what Kubernetes adds.

    A whole node has to be empty, so those who go to the exclusive nodes come one after the other.
    """
    made = _manifests()
    site.create(made.pop("cuda-sample"))
    job_pod = making.eventually(lambda: site.client.list_all("Pod", selector="app=cuda-sample"))
    job_name = str(job_pod[0]["metadata"]["name"])
    site.running(job_name)
    for name in ("exlusive-node", "exclusive-gpu"):
        site.create(made.pop(name))
        site.running(name)
    site.create(*made.values())
    names = [job_name if name == "cuda-sample" else name for name in EXPECTED]
    running = site.running(*names, patience_s=180)
    return dict(zip(EXPECTED, running, strict=True))


def _check_container(site: Site, pod: api.Object, expected: Expected) -> None:
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    granted = sites.shares(pod, container)
    seen = site.cards(name, container)
    assert making.grant(pod)["dialect"] == expected.dialect
    assert seen.keys() == granted.keys(), name
    _check_environment(site, pod, expected)
    own = {uuid: share for uuid, share in granted.items() if share["exclusive"]}
    assert len(own) == ON_ITS_OWN_CARDS.get(name, 0), name
    if expected.seen_mib:
        assert set(seen.values()) == {expected.seen_mib}, name
        _check_fence(site, pod, expected)


def _check_environment(site: Site, pod: api.Object, expected: Expected) -> None:
    """All variables of its own system are there, and none of any other."""
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    granted = sites.shares(pod, container)
    variables = site.environment(name, container)
    has = {key: text for key, text in variables.items() if key.startswith(OF_SYSTEMS)}
    visible = "all" if name == "exlusive-node" else ",".join(granted)
    assert has.pop("NVIDIA_VISIBLE_DEVICES") == visible, name
    if expected.dialect == "aliyun":
        written = making.written(pod)
        for key in ("ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_DEV"):
            assert has.pop(key) == written[key], name
    if name == "shared-gpu":
        (whole_card_mib,) = site.cards(name, container).values()
        assert has.pop("T9K_GPU_MEMORY") == str(30 * whole_card_mib // 100)
    assert has == expected.environment, name


def _check_fence(site: Site, pod: api.Object, expected: Expected) -> None:
    """What is enforced is what was asked for: past its memory is out of memory."""
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    (card,) = site.tenant(pod, container).cards
    mode, percent = expected.compute
    assert card.memory_bytes == expected.seen_mib * MIB, name
    assert (card.mode, card.share_millionths) == (mode, percent * limits.MILLIONTHS_PER_PERCENT)
    refused = site.exec(name, "gpu", "try", str(expected.seen_mib), container=container)
    assert (refused.returncode, refused.stdout) == (1, "CUDA_ERROR_OUT_OF_MEMORY\n"), name


def _check_places(site: Site, pods: dict[str, api.Object]) -> None:
    """Whole cards are nobody else's; the modes of nodes hold."""
    whole, mixed, open_node = (real_node.name for real_node in site.nodes)
    where = {name: pod["spec"]["nodeName"] for name, pod in pods.items()}
    assert [name for name in where if where[name] == whole] == ["exlusive-node"]
    assert sorted(name for name in where if where[name] == mixed) == [
        "cuda-sample",
        "exclusive-gpu",
    ]
    assert {where[name] for name in where} == {whole, mixed, open_node}
    own = [uuid for name in ON_ITS_OWN_CARDS for uuid in _uuids(pods[name])]
    others = [u for name in pods if name not in ON_ITS_OWN_CARDS for u in _uuids(pods[name])]
    assert len(own) == len(set(own)) == sum(ON_ITS_OWN_CARDS.values())
    assert not set(own) & set(others)


def _uuids(pod: api.Object) -> list[str]:
    return list(sites.shares(pod, pod["spec"]["containers"][0]["name"]))


def _check_table(site: Site, pods: dict[str, api.Object]) -> None:
    """`partage inspect` has a row for each pod and card, with its dialect, and no problems."""
    command = [str(PARTAGE), "inspect", "--kubeconfig", str(site.plane.kubeconfig)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split()[:6] for line in shown.split("\n\n")[1].splitlines()[1:]]
    expected = [
        (pod["spec"]["nodeName"], pod["metadata"]["name"], EXPECTED[name].dialect)
        for name, pod in pods.items()
        for _ in _uuids(pod)
    ]
    assert sorted((row[0], row[3], row[4]) for row in rows) == sorted(expected), shown
    assert "PROBLEM" not in shown, shown


def _check_webhooks_may_be_down(
    site: Site, admission: Admission, pods: dict[str, api.Object]
) -> None:
    """Pods with cards are refused, of every system, and others come in; then all goes on."""
    admission.kill()
    for name, made in _manifests().items():
        if made["kind"] == "Pod":
            made["metadata"]["name"] = f"second-{name}"
            with pytest.raises(api.ApiError) as caught:
                site.client.create(made)
            assert "failed calling webhook" in str(caught.value), name
            assert ".pods.partage.dev" in str(caught.value), name
    site.create(objects.running_pod("without-cards"))
    site.running("without-cards")
    site.gone(REPLICAS[2])
    admission.start()
    second = objects.running_pod("second", objects.container(limits={"aliyun.com/gpu-mem": 1}))
    site.create(second)
    names = [pod["metadata"]["name"] for pod in pods.values()]
    site.running(*names, "second")
    before = {name: pod["metadata"]["uid"] for name, pod in pods.items()}
    after = {name: site.pod(n)["metadata"]["uid"] for name, n in zip(pods, names, strict=True)}
    assert {name for name in before if before[name] != after[name]} == {REPLICAS[2]}
