"""A take-over is stopped after any of its writes, and goes on or goes back; on a real API server.

Controllers, kubelets and plugins are played, so that a test says when they act. What an extender
answers is played, too; real ones are in ``test_adoption_of_a_cluster.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec
import pytest

from cluster import api, objects
from cluster.control_plane.control_plane import ControlPlane
from partage.cli.cluster import cluster_snapshot, mirror_snapshot
from partage.cli.cluster.adoption import adoptions, performance, record, survey, systems
from partage.cli.cluster.adoption import objects as written_objects
from partage.cli.cluster.adoption.plans import gpushare_plan, plan, vendor_plan
from partage.dialects import nodes, pods
from partage.kube import api as kube
from partage.kube.auth import credentials
from partage.scheduler.verbs import gpushare_inspect
from tests.cluster import originals, played_controllers

T = TypeVar("T")

NODES = ["n1", "n2"]
IMAGE = "registry.example/partage:0.1.0"
KINDS = (
    *("Deployment", "DaemonSet", "ServiceAccount", "Service", "Secret"),
    *("ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "MutatingWebhookConfiguration"),
)
# What controllers count in, and changes with every update.
COUNTERS = ("deprecated.daemonset.template.generation",)


# Of the second card of each node, by the pod that was there before: MiB.
USED = {"gpushare": [3072, 3072], "hami": [3000, 3000], "nvidia": [16384, 16384]}


# Each round takes seconds, and many writes are like the one before.
STRIDES = {"gpushare": 3, "hami": 2, "nvidia": 2}


class Killed(BaseException):
    """The program ends here, and runs nothing more."""


class MortalApi(kube.Api):
    """An API of a program that is killed after so many writes have been done."""

    left = -1

    async def create(self, *arguments: Any, **options: Any) -> bytes:
        """A write."""
        return self._counted(await super().create(*arguments, **options))

    async def replace(self, *arguments: Any, **options: Any) -> Any:
        """A write."""
        return self._counted(await super().replace(*arguments, **options))

    async def patch(self, *arguments: Any, **options: Any) -> bytes:
        """A write."""
        return self._counted(await super().patch(*arguments, **options))

    async def delete(self, *arguments: Any, **options: Any) -> None:
        """A write."""
        await super().delete(*arguments, **options)
        self._counted(None)

    def _counted(self, answer: T) -> T:
        self.left -= 1
        if self.left == 0:
            raise Killed
        return answer


class Place:
    """A cluster with one of the systems on it, and who takes it over."""

    def __init__(self, plane: ControlPlane, system: str) -> None:
        self.plane = plane
        self.client = plane.client
        self.system = systems.SYSTEMS[system]
        self.player = played_controllers.Player(self.client, NODES)

    async def plan(self) -> plan.Plan:
        """As the command makes it."""
        async with self._api() as client:
            if self.system.name == systems.GPUSHARE:
                seen = await survey.survey(
                    client, self.system, gpushare_plan.written, tell=lambda _: None
                )
                return gpushare_plan.made(seen, image=IMAGE)
            seen = await survey.survey(
                client, self.system, vendor_plan.written, tell=lambda _: None
            )
            return vendor_plan.made(seen)

    async def perform(
        self, adoption: adoptions.Adoption, *, back: bool = False, writes: int = -1
    ) -> bool:
        """All of it, or as far as so many writes lead; whether it came to its end."""
        async with self._api() as client:
            client.left = writes
            performed = performance.Performance(
                client, adoption, self._surroundings(), lambda _: None
            )
            try:
                await (performed.backward() if back else performed.forward())
            except Killed:
                return False
            return True

    async def used(self) -> list[int]:
        """What the fleet counts on the second card of each node; nothing on the first."""
        async with self._api() as client:
            cluster = cluster_snapshot.Cluster(client, "")
            mirror = await mirror_snapshot.read(cluster, pods.Pod)
        states = [mirror.fleet.state(name) for name in NODES]
        rooms = [state.rooms for state in states if state is not None]
        assert [room[0].memory_mib - room[0].free_mib for room in rooms] == [0, 0]
        return [room[1].memory_mib - room[1].free_mib for room in rooms]

    async def kept(self) -> adoptions.Adoption | None:
        """What the cluster knows of a take-over."""
        async with self._api() as client:
            return await record.read(client, self.system)

    def inventory(self) -> dict[str, Any]:
        """All that a take-over may touch, as somebody wrote it."""
        made: dict[str, Any] = {}
        for kind in KINDS:
            for one in self.client.list_all(kind):
                bare = written_objects.bare(one, kind=kind, version="v1")
                for counter in COUNTERS:
                    bare["metadata"].get("annotations", {}).pop(counter, None)
                made[f"{kind} {bare['metadata']}"] = bare
        for name in NODES:
            node = self.client.get("Node", name)
            meta, published = node["metadata"], {nodes.CARDS}
            notes = {k: v for k, v in meta.get("annotations", {}).items() if k not in published}
            amounts = node["status"]["allocatable"]
            made[name] = (meta["labels"], notes, node["spec"], amounts)
        made["pods"] = sorted(p["metadata"]["uid"] for p in self.client.list_all("Pod", "default"))
        return made

    def _api(self) -> MortalApi:
        return MortalApi(credentials.load(str(self.plane.kubeconfig), None))

    def _surroundings(self) -> performance.Surroundings:
        """A pause is when the others act; after ten they have nothing left to do."""
        pauses = 0

        async def pause() -> None:
            nonlocal pauses
            pauses += 1
            await asyncio.to_thread(self.player.settle)

        return performance.Surroundings(lambda: float(pauses), pause, 10.0, _agreeing)


async def _agreeing(client: kube.Api, _deployment: str) -> bytes:
    mirror = await mirror_snapshot.read(cluster_snapshot.Cluster(client, ""), pods.Pod)
    return gpushare_inspect.GpushareInspect(mirror).inspect()


@pytest.fixture
def gpushare(clean_cluster: ControlPlane) -> Iterator[Place]:
    """gpushare on two nodes, with a pod on each that it placed."""
    with_plugin = {"gpushare": "true"}
    for name in NODES:
        made = objects.node(name, cards=2, card_units=16, labels=with_plugin)
        clean_cluster.client.create(made)
    yield from _with(Place(clean_cluster, systems.GPUSHARE), originals.gpushare())


@pytest.fixture
def hami(clean_cluster: ControlPlane) -> Iterator[Place]:
    """HAMi on two nodes, and Partage installed beside it, on none."""
    place = Place(clean_cluster, systems.HAMI)
    for name in NODES:
        register = [
            {"id": place.player.uuid(name, i), "index": i, "count": 10, "devmem": 16384}
            | {"devcore": 100, "type": "NVIDIA-Tesla T4", "numa": 0, "mode": "hami-core"}
            | {"health": True}
            for i in range(2)
        ]
        text = msgspec.json.encode(register).decode()
        made = objects.node(
            name,
            cards=0,
            resources={"nvidia.com/gpu": 20},
            labels={"gpu": "on"},
            annotations={"hami.io/node-nvidia-register": text},
        )
        clean_cluster.client.create(made)
    yield from _with(place, [*originals.hami(), *_partage()])


@pytest.fixture
def nvidia(clean_cluster: ControlPlane) -> Iterator[Place]:
    """NVIDIA's plugin on two nodes, and Partage installed beside it, on none."""
    for name in NODES:
        labels = {
            "nvidia.com/gpu.count": "2",
            "nvidia.com/gpu.memory": "16384",
            "nvidia.com/gpu.product": "Tesla-T4",
            "nvidia.com/gpu.present": "true",
        }
        resources = {"nvidia.com/gpu": 2}
        made = objects.node(name, cards=0, resources=resources, labels=labels)
        clean_cluster.client.create(made)
    yield from _with(Place(clean_cluster, systems.NVIDIA), [*originals.nvidia(), *_partage()])


def _with(place: Place, made: list[api.Object]) -> Iterator[Place]:
    """The objects as long as the test runs."""
    for one in made:
        place.client.create(one)
    place.player.settle()
    for name in NODES:
        place.client.create(_tenant(place, name))
        status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
        place.client.patch("Pod", f"on-{name}", {"status": status}, subresource="status")
    place.player.offences.clear()
    yield place
    for one in made:
        meta = one["metadata"]
        place.client.delete(one["kind"], meta["name"], meta.get("namespace", ""))
    for secret in place.client.list_all("Secret", "kube-system"):
        if secret["metadata"]["name"].startswith("partage-adopted-"):
            place.client.delete("Secret", secret["metadata"]["name"], "kube-system")


def _tenant(place: Place, node: str) -> api.Object:
    """A pod that the original system placed on the second card."""
    if place.system.name == systems.GPUSHARE:
        written = {
            "ALIYUN_COM_GPU_MEM_IDX": "1",
            "ALIYUN_COM_GPU_MEM_DEV": "16",
            "ALIYUN_COM_GPU_MEM_POD": "3",
            "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
            "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1579000000000000000",
        }
        limits = {"aliyun.com/gpu-mem": 3}
    elif place.system.name == systems.NVIDIA:
        written, limits = {}, {"nvidia.com/gpu": 1}
    else:
        uuid = place.player.uuid(node, 1)
        written = {
            "hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,3000,30:;",
            "hami.io/vgpu-node": node,
            "hami.io/bind-phase": "success",
        }
        limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}
    return objects.pod(f"on-{node}", limits, node_name=node, annotations=written)


def _partage() -> list[api.Object]:
    """The agents and the extender of the chart, in short."""
    chosen = {"nodeSelector": {"partage.dev/agent": "enabled"}}
    words = ["partage", "agent", "--dialects=partage,aliyun,qgpu,gaia,elastic,t9k"]
    agent = originals.workload(
        "DaemonSet",
        "partage-agent",
        {"app": "partage-agent"},
        [{"name": "agent", "image": IMAGE, "args": words}],
        {},
        **chosen,
    )
    extender = originals.workload(
        "Deployment",
        "partage-extender",
        {"app": "partage-extender"},
        [{"name": "extender", "image": IMAGE, "args": ["partage", "extender"]}],
        {"replicas": 1},
    )
    return [agent, extender]


@pytest.mark.parametrize("system", ["gpushare", "hami", "nvidia"])
@pytest.mark.slow  # hundreds of requests to an API server, for each write at which it is stopped
async def test_it_is_stopped_after_each_write_and_goes_on_or_goes_back(
    system: str, request: pytest.FixtureRequest
) -> None:
    """In the end all is Partage's, or all is as it was; never two plugins, nor an open gap."""
    place: Place = request.getfixturevalue(system)
    before = place.inventory()
    adoption = (await place.plan()).adoption
    writes, finished, tries = 1, False, 0
    while not finished:
        tries += 1
        finished = await place.perform(adoption, writes=writes)
        kept = await place.kept()
        assert kept == adoption, writes
        if tries % 2 or finished:
            assert await place.perform(kept), writes
            _check_adopted(place, kept)
            assert await place.used() == USED[system], writes
        # Going back is stopped as well, where the way forward was; then it goes on.
        await place.perform(kept, back=True, writes=writes)
        assert await place.perform(kept, back=True), writes
        place.player.settle()
        assert place.inventory() == before, writes
        assert place.player.offences == [], writes
        assert await place.kept() is None
        writes += STRIDES[system]
    assert writes > 10


def _check_adopted(place: Place, adoption: adoptions.Adoption) -> None:
    """Every node has the agent and is open, and the last step was done."""
    for name in NODES:
        node = place.client.get("Node", name)
        assert not node["spec"].get("unschedulable"), name
        assert adoptions.ADOPTING not in node["metadata"]["annotations"]
        pods_there = place.player.serving(node)
        assert [place.player.is_agent(pod) for pod in pods_there] == [True], name
    if adoption.system == systems.GPUSHARE:
        made = place.client.get("DaemonSet", originals.PLUGIN, originals.SYSTEM)
        assert made["spec"]["updateStrategy"]["type"] == "RollingUpdate"
        role = place.client.get("ClusterRole", "gpushare-device-plugin", "")
        assert "nodes/proxy" not in str(role["rules"])
    elif adoption.system == systems.HAMI:
        made = place.client.get("Deployment", "hami-scheduler", originals.SYSTEM)
        assert made["spec"]["replicas"] == 0
        assert not place.client.list_all("MutatingWebhookConfiguration")
