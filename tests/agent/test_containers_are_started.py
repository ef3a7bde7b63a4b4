"""From a set of device IDs to a container with its cards: the right ones, or none."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from partage.agent.containers import (
    cdi,
    claim_check,
    cleanup,
    container_fence,
    container_start,
    driver_files,
    gate,
)
from partage.agent.pods import identity
from partage.core import errors, grants
from partage.dialects import grant_record, pods
from partage.dialects.families import native
from partage.fence.store import limits, roots, tenants
from partage.kubelet import errors as kubelet_errors
from partage.kubelet.wire import pod_resources_pb2
from tests.agent import agent_node
from tests.agent.agent_node import CORE, GIB, MEMORY, OWN_CARDS, OWN_MEMORY
from tests.kubelet import fake_kubelet

MIB = 1 << 20
P0 = frozenset({"p0"})


class Bench:
    """A node on which containers can be started: its folders, its pods, what was begun.

    Time passes only where somebody waits.
    """

    def __init__(self, folder: Path, fences: container_fence.Fences, *memory_mib: int) -> None:
        self.folder = folder
        self.fences = fences
        self.state = agent_node.facts(*memory_mib)
        self.state.served = frozenset({MEMORY, CORE, OWN_CARDS, agent_node.WHOLE})
        self.pods = agent_node.Pods()
        self.begun: list[tuple[grants.Grant, cdi.Started]] = []
        self.held: list[agent_node.Held] = []
        self.files: driver_files.DriverFiles | None = None
        self.pod_resources = folder / "no-kubelet.sock"
        self.now_s = 0.0
        self.passing: Callable[[float], None] = lambda _now_s: None  # what happens meanwhile
        self.messages: list[tuple[str, str]] = []
        self.api = agent_node.NoApi()
        self.starter = self.agent()

    def agent(self) -> container_start.Starter:
        """One that has just been started."""
        paths = container_start.Paths(
            cdi=self.folder / "cdi",
            checkpoint=agent_node.checkpointed(self.folder, *self.held),
            pod_resources=self.pod_resources,
        )
        return container_start.Starter(
            self.state,
            self.pods,
            fences=self.fences,
            files=self.files,
            paths=paths,
            begun=self.note,
            callbacks=gate.Callbacks(
                release=lambda uid: self.sweeper().release(uid),
                tell=lambda pod, why: self.messages.append((pod.name, why)),
                clock=lambda: self.now_s,
                sleep=self.sleep,
            ),
            claims=claim_check.ClaimCheck(self.api, self.state),
        )

    async def note(self, grant: grants.Grant, began: cdi.Started) -> None:
        """A container was begun."""
        self.begun.append((grant, began))

    def sweeper(self) -> cleanup.Sweeper:
        """The part that removes what is left of pods."""
        return cleanup.Sweeper(self.starter, self.fences, self.pods)

    async def sleep(self, pause_s: float) -> None:
        """Time passes."""
        self.now_s += pause_s
        self.passing(self.now_s)
        await asyncio.sleep(0)

    def add(
        self, pod: pods.Pod, ids: frozenset[str] = P0, resource: str = MEMORY, name: str = "main"
    ) -> None:
        """A pod is known, and the kubelet has given IDs to one of its containers."""
        self.pods.add(pod)
        self.held.append((pod.metadata.name, name, resource, ids))
        agent_node.checkpointed(self.folder, *self.held)

    async def start(self, ids: frozenset[str] = P0, resource: str = MEMORY) -> dict[str, Any]:
        """Allocate, then PreStartContainer; what the runtime then reads of the device."""
        self.starter.allocated(resource, ids)
        await self.starter.starting(resource, ids)
        return self.spec(ids, resource)

    def path(self, ids: frozenset[str] = P0, resource: str = MEMORY) -> Path:
        """Where the specification for a set of IDs is."""
        return self.folder / "cdi" / f"partage-{cdi.device(resource, ids)}.json"

    def spec(self, ids: frozenset[str] = P0, resource: str = MEMORY) -> dict[str, Any]:
        """The device in it."""
        [device] = json.loads(self.path(ids, resource).read_bytes())["devices"]
        return dict(device)

    def written(self) -> list[str]:
        """The names of all specifications."""
        return sorted(path.name for path in self.folder.glob("cdi/*"))


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences) -> Bench:
    """A node with two cards of 16 GiB, and nothing on it."""
    return Bench(tmp_path, fences)


def env(device: dict[str, Any]) -> dict[str, str]:
    """The environment that a device brings."""
    return dict(variable.split("=", 1) for variable in device["containerEdits"]["env"])


async def test_a_container_gets_the_cards_that_it_was_granted(
    bench: Bench, root: roots.Root
) -> None:
    """By the pod's grant alone: the variables of its family, its fence, and whom it is for."""
    bench.add(agent_node.pod("train", {MEMORY: 2}, 1))
    device = await bench.start()

    assert env(device) == {
        "NVIDIA_VISIBLE_DEVICES": agent_node.uuid(1),
        "ALIYUN_COM_GPU_MEM_IDX": "1",
        "ALIYUN_COM_GPU_MEM_DEV": "16",
        "ALIYUN_COM_GPU_MEM_POD": "2",
        "ALIYUN_COM_GPU_MEM_CONTAINER": "2",
    }
    [held] = tenants.read(root, "uid-train.main").limits.cards
    assert (held.uuid, held.memory_bytes) == (agent_node.uuid(1), 2048 * MIB)
    places = {mount["containerPath"] for mount in device["containerEdits"]["mounts"]}
    assert "/etc/partage/fence/limits" in places
    [(grant, began)] = bench.begun
    assert grant.pod == grants.Pod("uid-train", "lab", "train")
    assert began == cdi.Started(
        uid="uid-train",
        container="main",
        resource=MEMORY,
        fence="hook",
        tenant="uid-train.main",
        device=cdi.device(MEMORY, P0),
        grant=msgspec.json.encode(grant).decode(),
    )
    assert bench.starter.started == {began.device: began}


async def test_contexts_count_what_they_cost(bench: Bench, root: roots.Root) -> None:
    """The fence cannot ask the driver for it; the agent has measured it."""
    bench.state.context_bytes = {agent_node.uuid(0): 300 * MIB}
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    await bench.start()
    assert tenants.read(root, "uid-train.main").limits.cards[0].context_bytes == 300 * MIB


async def test_the_labels_of_the_node_decide_what_is_held(bench: Bench, root: roots.Root) -> None:
    """On a node where sharing is a promise among users, memory is not limited."""
    bench.state.set_labels({"ack.node.gpu.schedule": "share"})
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    await bench.start()
    [held] = tenants.read(root, "uid-train.main").limits.cards
    assert held.memory_bytes == limits.NO_QUOTA


async def test_a_whole_card_has_no_fence(bench: Bench) -> None:
    """And says so."""
    bench.add(agent_node.pod("train", {agent_node.WHOLE: 1}, 1), resource=agent_node.WHOLE)
    device = await bench.start(resource=agent_node.WHOLE)
    assert device["annotations"]["partage.dev/fence"] == "none"
    assert env(device) == {"NVIDIA_VISIBLE_DEVICES": agent_node.uuid(1)}
    assert bench.fences.names() == []


async def test_a_record_does_not_say_as_whom_a_pod_speaks(bench: Bench) -> None:
    """That follows from what the pod asks for, which nobody can edit."""
    bench.add(recorded(agent_node.pod("sly", {MEMORY: 2}), '"dialect":"aliyun"', '"dialect":"t9k"'))
    assert env(await bench.start())["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"


async def test_allocate_takes_an_old_specification_away(bench: Bench) -> None:
    """A container with IDs that another had must not start with what was the other's."""
    bench.add(agent_node.pod("first", {MEMORY: 2}))
    await bench.start()
    assert bench.starter.allocated(MEMORY, P0) == f"partage.dev/share={cdi.device(MEMORY, P0)}"
    assert bench.written() == []
    assert bench.starter.started == {}


async def test_allocate_never_fails(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """A pod whose Allocate failed is lost for good; what is wrong is in the log."""
    bench.path().mkdir(parents=True)
    assert bench.starter.allocated(MEMORY, P0) == cdi.qualified(cdi.device(MEMORY, P0))
    assert "cannot be removed" in caplog.text


async def test_the_next_agent_knows_what_was_started(bench: Bench) -> None:
    """Its memory is in the specifications."""
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    await bench.start()
    assert bench.agent().started == bench.starter.started != {}


async def test_a_container_that_starts_again_is_no_conflict_with_itself(bench: Bench) -> None:
    """Its pod has most of the card, once."""
    bench.add(agent_node.pod("train", {MEMORY: 12}))
    first = await bench.start()
    await bench.starter.starting(MEMORY, P0)  # the kubelet allocates once for the life of a pod
    assert bench.spec() == first


async def test_a_container_of_the_plugin_before_us_starts_as_that_one_wanted(bench: Bench) -> None:
    """Its IDs are not ours, and nothing of ours is in what the kubelet kept for it."""
    await bench.starter.starting(MEMORY, frozenset({"GPU-1-_-0", "GPU-1-_-1"}))
    assert not bench.begun
    assert not list((bench.folder / "cdi").glob("*"))


class TestRefusals:
    """What cannot be is said, and nothing is written."""

    async def refused(self, bench: Bench, kind: type[errors.PartageError]) -> errors.PartageError:
        """Why the container does not start; nothing is there that could be started with."""
        with pytest.raises(kind) as caught:
            await bench.start()
        assert bench.written() == []
        assert bench.begun == []
        assert bench.starter.started == {}
        assert caught.value.instead
        return caught.value

    async def test_a_pod_without_a_grant(self, bench: Bench) -> None:
        """Somebody bound it without asking; two cards, and nobody knows which."""
        bench.add(agent_node.unplaced("stray", {MEMORY: 2}))
        error = await self.refused(bench, gate.NotGranted)
        assert "pod lab/stray has no grant for a card on node gpu-1" in error.what
        assert "managedResources" in error.instead
        assert bench.fences.names() == []

    async def test_a_grant_of_another_pod(self, bench: Bench) -> None:
        """A manifest was copied with its annotations."""
        pod = agent_node.pod("copy", {MEMORY: 2})
        text = pod.metadata.annotations[grant_record.GRANT].replace("uid-copy", "uid-of-another")
        bench.add(edited(pod, {grant_record.GRANT: text}))
        error = await self.refused(bench, gate.NotGranted)
        assert "it belongs to another pod, 'uid-of-another'" in error.what

    async def test_a_grant_that_was_edited(self, bench: Bench) -> None:
        """Owners of the pod can write its annotations, and get no more by it."""
        pod = agent_node.pod("greedy", {MEMORY: 2})
        text = pod.metadata.annotations[grant_record.GRANT].replace("2048", "8192")
        bench.add(edited(pod, {grant_record.GRANT: text}))
        error = await self.refused(bench, gate.NotGranted)
        assert "container 'main' asks for something else" in error.what

    async def test_a_grant_for_another_node(self, bench: Bench) -> None:
        """It was moved by somebody who knew better."""
        pod = agent_node.pod("moved", {MEMORY: 2})
        text = pod.metadata.annotations[grant_record.GRANT].replace('"gpu-1"', '"gpu-2"')
        bench.add(edited(pod, {grant_record.GRANT: text}))
        assert "another node" in (await self.refused(bench, gate.NotGranted)).what

    async def test_a_fence_that_the_node_does_not_have(self, bench: Bench) -> None:
        """The pod asks for one at least, by its annotation."""
        bench.add(agent_node.pod("safe", {MEMORY: 2}, annotations={native.FENCE: "driver"}))
        error = await self.refused(bench, errors.FenceError)
        assert "the fence driver is requested" in error.what

    async def test_a_card_without_driver_files(self, bench: Bench) -> None:
        """NVIDIA's specification is older than the card."""
        bench.files = driver_files.DriverFiles([bench.folder / "nowhere"])
        bench.starter = bench.agent()
        bench.add(agent_node.pod("train", {MEMORY: 2}))
        error = await self.refused(bench, errors.FenceError)
        assert "nvidia-ctk cdi generate" in error.instead

    async def test_a_set_that_two_pods_have(self, bench: Bench) -> None:
        """A kubelet's mistake is not guessed away."""
        bench.add(agent_node.pod("one", {MEMORY: 2}))
        bench.add(agent_node.pod("two", {MEMORY: 2}))
        error = await self.refused(bench, identity.Unidentified)
        assert "pod lab/one, pod lab/two" in error.what

    async def test_a_set_that_nobody_has(self, bench: Bench) -> None:
        """Neither record of the kubelet knows it: the second is not there at all."""
        bench.add(agent_node.pod("train", {MEMORY: 2}), frozenset({"p0", "p1"}))
        error = await self.refused(bench, kubelet_errors.Absent)
        assert "cannot find out which pod holds which devices" in error.what

    async def test_a_folder_that_cannot_be_written_to(self, bench: Bench) -> None:
        """The disk of the node is full, or something lies in the way."""
        bench.add(agent_node.pod("train", {MEMORY: 2}))
        bench.path().mkdir(parents=True)
        with pytest.raises(errors.FenceError, match="specification cannot be written to"):
            await bench.start()
        assert bench.begun == []
        assert bench.starter.started == {}


def recorded(pod: pods.Pod, old: str, new: str) -> pods.Pod:
    """The pod with an edited record."""
    text = pod.metadata.annotations[grant_record.GRANT]
    assert old in text
    return edited(pod, {grant_record.GRANT: text.replace(old, new)})


def edited(pod: pods.Pod, annotations: dict[str, str]) -> pods.Pod:
    """The pod with other annotations."""
    replace = msgspec.structs.replace
    merged = {**pod.metadata.annotations, **annotations}
    return replace(pod, metadata=replace(pod.metadata, annotations=merged))


class TestWatchLag:
    """The kubelet may be ahead of what we were told of pods."""

    async def test_a_pod_that_is_not_known_yet_is_listed_once(self, bench: Bench) -> None:
        """And then it starts."""
        bench.add(agent_node.pod("train", {MEMORY: 2}))
        bench.pods.late = list(bench.pods.by_uid.values())
        bench.pods.by_uid.clear()
        await bench.start()
        assert bench.pods.caught_up == 1

    async def test_a_pod_that_is_known_costs_no_list(self, bench: Bench) -> None:
        """Hundreds start at once."""
        bench.add(agent_node.pod("train", {MEMORY: 2}))
        await bench.start()
        assert bench.pods.caught_up == 0

    async def test_a_pod_that_nobody_knows_is_listed_once_and_refused(self, bench: Bench) -> None:
        """The kubelet tries again by itself."""
        bench.add(agent_node.pod("train", {MEMORY: 2}))
        bench.pods.by_uid.clear()
        with pytest.raises(identity.Unidentified, match="no pod of this node holds the devices"):
            await bench.start()
        assert bench.pods.caught_up == 1


@pytest.fixture
def socket() -> Iterator[Path]:
    """A socket with a short path."""
    with tempfile.TemporaryDirectory(prefix="kubelet-") as folder:
        yield Path(folder) / "kubelet.sock"


@pytest.mark.parametrize("damaged", [False, True])
async def test_the_kubelet_is_asked_where_its_checkpoint_does_not_tell(
    bench: Bench, socket: Path, damaged: bool
) -> None:
    """It knows names only, so pods are listed first."""
    answer = pod_resources_pb2.ListPodResourcesResponse()
    container = answer.pod_resources.add(name="train", namespace="lab").containers.add(name="main")
    container.devices.add(resource_name=MEMORY, device_ids=["p0"])
    lister = fake_kubelet.FakeLister(answer)
    bench.pod_resources = socket
    bench.starter = bench.agent()
    bench.pods.late = [agent_node.pod("train", {MEMORY: 2}, 1)]
    if damaged:
        (bench.folder / "kubelet_internal_checkpoint").write_text("{")
    async with lister.serving(socket):
        device = await bench.start()
    assert env(device)["NVIDIA_VISIBLE_DEVICES"] == agent_node.uuid(1)
    assert (lister.questions, bench.pods.caught_up) == (1, 1)


async def test_the_kubelet_is_not_asked_where_its_checkpoint_tells(
    bench: Bench, socket: Path
) -> None:
    """A List in the midst of an allocation can make it hand out the same IDs twice."""
    lister = fake_kubelet.FakeLister(pod_resources_pb2.ListPodResourcesResponse())
    lister.refusals = [grpc.StatusCode.INTERNAL]
    bench.pod_resources = socket
    bench.starter = bench.agent()
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    async with lister.serving(socket):
        await bench.start()
    assert lister.questions == 0


class TestSeveralResources:
    """A container with two resources has two devices, and each of them is all of it."""

    @pytest.fixture
    def with_hooks(self, bench: Bench) -> Bench:
        """A node with NVIDIA's specification, and a container that asks for two resources."""
        names = [card.uuid for card in bench.state.node.cards]
        hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}
        devices = [{"name": name, "containerEdits": {"hooks": [hook]}} for name in names]
        content = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices}
        (bench.folder / "nvidia.json").write_bytes(msgspec.json.encode(content))
        bench.files = driver_files.DriverFiles([bench.folder])
        pod = agent_node.pod("train", {MEMORY: 2, CORE: 30})
        bench.add(pod, P0, MEMORY)
        bench.add(pod, frozenset({"p3", "p4"}), CORE)
        bench.starter = bench.agent()
        return bench

    async def test_hooks_come_once(self, with_hooks: Bench) -> None:
        """All else may come twice: the same file or variable is put in once."""
        core = await with_hooks.start(frozenset({"p3", "p4"}), CORE)
        memory = await with_hooks.start(P0, MEMORY)

        assert CORE < MEMORY
        assert "hooks" not in memory["containerEdits"]
        assert len(core["containerEdits"].pop("hooks")) == 1
        assert core["containerEdits"] == memory["containerEdits"]
        assert with_hooks.fences.names() == ["uid-train.main"]

    async def test_hooks_come_with_a_resource_that_is_served(self, with_hooks: Bench) -> None:
        """For one that nobody serves here there is no call, and no device."""
        with_hooks.state.served = frozenset({MEMORY})
        memory = await with_hooks.start(P0, MEMORY)
        assert len(memory["containerEdits"]["hooks"]) == 1


class TestConflicts:
    """What was granted is compared with what runs."""

    async def test_a_card_is_not_promised_twice(self, bench: Bench) -> None:
        """The second pod was bound by somebody who did not count; it waits until there is room."""
        first = agent_node.pod("first", {MEMORY: 10})
        bench.add(first)
        bench.add(agent_node.pod("second", {MEMORY: 7}), frozenset({"p1"}))
        await bench.start()
        with pytest.raises(gate.NotGranted) as caught:
            await bench.start(frozenset({"p1"}))
        assert (
            f"card {agent_node.uuid(0)}: 7168 MiB are granted in addition to 10240"
            in caught.value.what
        )
        assert caught.value.instead == "delete the pod so that it is placed again"
        assert len(bench.written()) == 1
        assert bench.fences.names() == ["uid-first.main"]

        bench.pods.add(agent_node.ended(first))
        await bench.start(frozenset({"p1"}))

    async def test_another_card_is_no_conflict(self, bench: Bench) -> None:
        """Nor is a pod that was never started here."""
        bench.add(agent_node.pod("first", {MEMORY: 10}))
        bench.add(agent_node.pod("second", {MEMORY: 10}, 1), frozenset({"p1"}))
        bench.add(agent_node.pod("third", {MEMORY: 10}), frozenset({"p2"}))
        await bench.start(frozenset({"p1"}))
        await bench.start(frozenset({"p2"}))
        with pytest.raises(gate.NotGranted):
            await bench.start()

    async def test_what_the_agent_itself_records_moves_nothing(self, bench: Bench) -> None:
        """The second container of a pod starts when the fence of the first was written down."""
        pod = agent_node.pod(
            "job",
            {OWN_CARDS: 1, OWN_MEMORY: 100},
            more=[agent_node.container("b", {OWN_CARDS: 1, OWN_MEMORY: 100})],
        )
        bench.add(pod, P0, OWN_CARDS)
        bench.add(pod, frozenset({"p1"}), OWN_CARDS, "b")
        await bench.start(P0, OWN_CARDS)
        bench.pods.add(recorded(pod, '"fence":""', '"fence":"hook"'))
        await bench.start(frozenset({"p1"}), OWN_CARDS)

    async def test_an_unhealthy_card_concerns_nobody_on_another(self, bench: Bench) -> None:
        """They start as ever."""
        bench.add(agent_node.pod("train", {MEMORY: 1}, 1))
        bench.state.set_unhealthy({agent_node.uuid(0): "lost"})
        await bench.start()

    async def test_the_next_agent_compares_with_what_ran_before(self, bench: Bench) -> None:
        """It was killed, and containers ran on."""
        bench.add(agent_node.pod("first", {MEMORY: 10}))
        bench.add(agent_node.pod("second", {MEMORY: 7}), frozenset({"p1"}))
        await bench.start()
        bench.starter = bench.agent()
        with pytest.raises(gate.NotGranted):
            await bench.start(frozenset({"p1"}))


def ids_of(number: int) -> frozenset[str]:
    """A set of four IDs that nobody else has, as the kubelet deals them: not in a row."""
    return frozenset(f"p{number + 100 * step}" for step in range(4))


async def test_fifty_containers_of_one_size_start_at_once(
    tmp_path: Path, fences: container_fence.Fences, root: roots.Root
) -> None:
    """Each gets what its own pod was granted, though only the IDs tell them apart."""
    bench = Bench(tmp_path, fences, *[64 * GIB] * 4)
    for number in range(50):
        where = bench.state.node
        pod = agent_node.pod(f"job-{number}", {MEMORY: 4}, number % 4, where=where)
        bench.add(pod, ids_of(number))
    await asyncio.gather(*(bench.start(ids_of(number)) for number in reversed(range(50))))

    for number in range(50):
        device = bench.spec(ids_of(number))
        uid = f"uid-job-{number}"
        assert device["annotations"]["partage.dev/uid"] == uid
        assert env(device)["NVIDIA_VISIBLE_DEVICES"] == agent_node.uuid(number % 4)
        mounted = {m["containerPath"]: m["hostPath"] for m in device["containerEdits"]["mounts"]}
        limits_path = tenants.read(root, f"{uid}.main").limits_path
        assert mounted["/etc/partage/fence/limits"] == str(limits_path)
    assert len(bench.written()) == len(bench.begun) == 50
    taken = {tuple(tenants.read(root, name).seats) for name in fences.names()}
    assert len(taken) == 13  # seats 0 to 12 at each of four cards, fifty in all


async def test_containers_that_start_at_once_do_not_oversell_a_card(
    tmp_path: Path, fences: container_fence.Fences
) -> None:
    """Thirty were granted a tenth each by somebody who did not count: ten start."""
    bench = Bench(tmp_path, fences, 10 * GIB)
    for number in range(30):
        pod = agent_node.pod(f"job-{number}", {MEMORY: 1}, where=bench.state.node)
        bench.add(pod, ids_of(number))
    starts = (bench.start(ids_of(number)) for number in range(30))
    done = await asyncio.gather(*starts, return_exceptions=True)

    refused = [answer for answer in done if isinstance(answer, gate.NotGranted)]
    assert (len(refused), len(bench.written()), len(fences.names())) == (20, 10, 10)


RUNNING = {"prepare": identity.Status("prepare", pods.State(running={}))}
DONE = {"prepare": identity.Status("prepare", pods.State(terminated={"exitCode": 0}))}


class TestTwins:
    """An init container and an app may have the very same IDs."""

    @pytest.fixture
    def twins(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
        """A pod whose two containers were granted different amounts, and have the same set."""
        monkeypatch.setattr(container_start, "_AGAIN_S", 0.001)
        monkeypatch.setattr(container_start, "_TURN_S", 0.02)
        prepare = agent_node.container("prepare", {OWN_CARDS: 1, OWN_MEMORY: 1024})
        pod = agent_node.pod("job", {OWN_CARDS: 1, OWN_MEMORY: 2048}, init=[prepare])
        bench.add(pod, P0, OWN_CARDS, "prepare")
        bench.add(pod, P0, OWN_CARDS, "main")
        return bench

    async def container(self, bench: Bench) -> str:
        """The container that is started."""
        await bench.starter.starting(OWN_CARDS, P0)
        return bench.begun[-1][1].container

    async def test_the_api_server_tells_whose_turn_it_is(
        self, twins: Bench, root: roots.Root
    ) -> None:
        """The init container first, with its own share; then, when it has ended, the app."""
        twins.pods.answers = [{}]
        assert await self.container(twins) == "prepare"
        twins.pods.answers = [{}, RUNNING, RUNNING, DONE]
        assert await self.container(twins) == "main"
        assert twins.pods.answers == [DONE]
        sizes = [tenants.read(root, name).limits.cards[0].memory_bytes for name in
                 ("uid-job.prepare", "uid-job.main")]  # fmt: skip
        assert sizes == [1024 * MIB, 2048 * MIB]

    async def test_the_next_agent_waits_for_news_as_well(self, twins: Bench) -> None:
        """It knows by the specification that the init container had its turn."""
        twins.pods.answers = [{}]
        await self.container(twins)
        twins.starter = twins.agent()
        twins.pods.answers = [{}, DONE]
        assert await self.container(twins) == "main"

    async def test_without_news_nothing_is_guessed(self, twins: Bench) -> None:
        """The kubelet tries again."""
        twins.pods.answers = [{}]
        await self.container(twins)
        with pytest.raises(identity.Unidentified, match="whether container prepare or main starts"):
            await self.container(twins)
        assert len(twins.begun) == 1

    async def test_twins_that_are_alike_need_no_news(self, bench: Bench) -> None:
        """Whatever starts gets the same."""
        prepare = agent_node.container("prepare", {OWN_CARDS: 1, OWN_MEMORY: 2048})
        pod = agent_node.pod("job", {OWN_CARDS: 1, OWN_MEMORY: 2048}, init=[prepare])
        for name in ("prepare", "main"):
            bench.add(pod, P0, OWN_CARDS, name)
        device = await bench.start(P0, OWN_CARDS)
        assert env(device)["NVIDIA_VISIBLE_DEVICES"] == agent_node.uuid(0)


class TestSweeping:
    """What containers left behind goes when they are gone for good."""

    async def test_what_has_ended_or_vanished_is_removed(self, bench: Bench) -> None:
        """Its specification and its fence; containers that run keep theirs."""
        made = {name: agent_node.pod(name, {MEMORY: 2}) for name in ("runs", "ended", "gone")}
        for number, pod in enumerate(made.values()):
            bench.add(pod, frozenset({f"p{number}"}))
            await bench.start(frozenset({f"p{number}"}))
        bench.pods.add(agent_node.ended(made["ended"]))
        del bench.pods.by_uid["uid-gone"]
        cleanup.Sweeper(bench.starter, bench.fences, bench.pods).sweep()

        assert bench.written() == [bench.path().name]
        assert [started.uid for started in bench.starter.started.values()] == ["uid-runs"]
        assert bench.fences.names() == ["uid-runs.main"]

    async def test_a_fence_without_a_specification_goes_as_well(self, bench: Bench) -> None:
        """The agent was killed between the two, or Allocate took the IDs for another pod."""
        bench.add(agent_node.pod("gone", {MEMORY: 2}))
        await bench.start()
        bench.starter.allocated(MEMORY, P0)
        bench.pods.by_uid.clear()
        cleanup.Sweeper(bench.starter, bench.fences, bench.pods).sweep()
        assert bench.fences.names() == []


class TestForcedDeletion:
    """A pod that was deleted by force runs on, and nobody is told when it ends."""

    async def test_what_it_uses_is_not_given_away(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As long as a process of it has a card; then it is swept away, and its room is free."""
        big = agent_node.pod("big", {MEMORY: 12})
        bench.add(big, P0)
        await bench.start(P0)
        monkeypatch.setattr(bench.fences, "is_busy", lambda name: name.startswith("uid-big"))
        bench.pods.by_uid.clear()
        sweeper = cleanup.Sweeper(bench.starter, bench.fences, bench.pods)
        sweeper.release("uid-big")
        other = frozenset({"p1"})
        bench.add(agent_node.pod("next", {MEMORY: 12}), other)
        with pytest.raises(gate.NotGranted, match="in addition to 12288 MiB of running pods"):
            await bench.start(other)
        monkeypatch.undo()
        sweeper.release("uid-big")
        await bench.start(other)
