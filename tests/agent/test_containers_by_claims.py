"""A container that has its cards by a claim has what the claim's object has, or waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from partage.agent.containers import claim_check, cleanup, container_fence, gate, time_limits
from partage.core import demands, grants
from partage.dialects import grant_record, pods
from partage.dialects.claims import objects
from partage.fence.store import limits, roots, tenants
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from tests.agent import agent_node
from tests.agent.agent_node import GIB, MEMORY
from tests.agent.test_containers_are_started import P0, Bench, env

CLAIM = "partage.dev/claim"
NAMES = "elasticgpu.io/egpuc-main"
P1 = frozenset({"p1"})
PATH = "/apis/elasticgpu.io/v1alpha1/elasticgpus/"
FIXED = demands.ComputeMode.FIXED


class Server(kube.Api):
    """An API server with ElasticGPUs."""

    def __init__(self) -> None:
        """Nothing is connected."""
        self.objects: dict[str, Any] = {}
        self.reads: list[str] = []
        self.error: Exception | None = None

    async def get(self, path: str, form: Any, query: Any = None) -> Any:
        """One object."""
        name = path.removeprefix(PATH)
        self.reads.append(name)
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if name not in self.objects:
            raise kube_errors.NotFound(404, "NotFound", name)
        return msgspec.convert(self.objects[name], form)


def share(
    memory_mib: int = 4 * GIB, percent: int = 30, index: int = 0, **more: Any
) -> grants.Share:
    """A part of a card."""
    return agent_node.share(index, memory_mib, compute_percent=percent, **more)


def container(name: str, *shares: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What a container has."""
    return grants.ContainerGrant(name=name, shares=shares, **{"compute_mode": FIXED, **more})


def elastic_gpu(name: str, *shares: grants.Share, claim: str = "lab/big", **more: Any) -> Any:
    """An ElasticGPU, with the record of its own share; ``more`` changes the record."""
    namespace, _, claim_name = claim.partition("/")
    grant = grants.Grant(
        pod=grants.Pod(f"elasticgpu/{name}", namespace, claim_name),
        node=more.pop("node", agent_node.NODE),
        containers=(container("main", *(shares or (share(),)), **more),),
    )
    made = {
        "metadata": {"name": name},
        "spec": {"claimRef": {"namespace": namespace, "name": claim_name, "uid": "u"}},
    }
    written = objects.allocated(msgspec.convert(made, objects.ElasticGPU), grant)
    return {part: made[part] | written[part] for part in made}


def pod(
    name: str, *shares: grants.Share, claim: str = "big", egpu: str = "egpu-1", **more: Any
) -> pods.Pod:
    """A pod that is bound, with its cards by a claim."""
    made = agent_node.unplaced(name, {CLAIM: 1})
    given = grants.Grant(
        pod=made.identity,
        node=agent_node.NODE,
        containers=(container("main", *(shares or (share(),)), elastic_gpu=egpu, **more),),
        dialect="claims",
    )
    notes = {NAMES: claim, grant_record.GRANT: grant_record.encode(given)}
    meta = msgspec.structs.replace(made.metadata, annotations=notes)
    return msgspec.structs.replace(made, metadata=meta)


@pytest.fixture
def server() -> Server:
    """With one ElasticGPU, of claim lab/big."""
    made = Server()
    made.objects["egpu-1"] = elastic_gpu("egpu-1")
    return made


@pytest.fixture
def bench(tmp_path: Path, fences: container_fence.Fences, server: Server) -> Bench:
    """A node with two cards of 16 GiB that asks this server."""
    made = Bench(tmp_path, fences)
    made.api = server  # type: ignore[assignment]
    made.state.served |= {CLAIM}
    made.starter = made.agent()
    return made


async def test_it_has_what_the_object_has(bench: Bench, server: Server, root: roots.Root) -> None:
    """Its cards and its fence, whose tenant is that of the ElasticGPU."""
    bench.add(pod("train"), resource=CLAIM)
    device = await bench.start(resource=CLAIM)
    assert env(device)["NVIDIA_VISIBLE_DEVICES"] == agent_node.uuid(0)
    [held] = tenants.read(root, "elasticgpu.egpu-1").limits.cards
    assert held.memory_bytes == 4 * GIB << 20
    assert held.time.share_millionths == 30 * limits.MILLIONTHS_PER_PERCENT
    assert server.reads == ["egpu-1"]


async def test_cards_that_were_not_named_yet_are_known_by_their_index(
    bench: Bench, server: Server
) -> None:
    """Both records are older than the names of the node's cards."""
    unnamed = msgspec.structs.replace(share(), uuid="index-0")
    server.objects["egpu-1"] = elastic_gpu("egpu-1", unnamed)
    bench.add(pod("early", unnamed), resource=CLAIM)
    device = await bench.start(resource=CLAIM)
    assert env(device)["NVIDIA_VISIBLE_DEVICES"] == agent_node.uuid(0)


async def test_what_the_node_decides_is_decided_for_both(bench: Bench, server: Server) -> None:
    """The record leaves to the node how time is divided."""
    by_node = demands.ComputeMode.NODE
    server.objects["egpu-1"] = elastic_gpu("egpu-1", compute_mode=by_node)
    bench.add(pod("train", compute_mode=by_node), resource=CLAIM)
    await bench.start(resource=CLAIM)


async def test_others_are_not_asked_about(bench: Bench, server: Server) -> None:
    """They start while the API server is away."""
    server.error = kube_errors.Unreachable("away", sent=False)
    bench.add(agent_node.pod("train", {MEMORY: 2}))
    await bench.start()
    assert server.reads == []


class TestRefusals:
    """What differs is told, and nothing is started."""

    async def refused(self, bench: Bench, made: pods.Pod) -> gate.NotGranted:
        """Why the container does not start."""
        bench.add(made, resource=CLAIM)
        with pytest.raises(gate.NotGranted) as caught:
            await bench.start(resource=CLAIM)
        assert bench.written() == []
        assert bench.fences.names() == []
        assert caught.value.instead
        return caught.value

    async def test_a_record_with_a_larger_share(self, bench: Bench) -> None:
        """Whoever may edit the pod may edit its record, and gets no more by it."""
        error = await self.refused(bench, pod("greedy", share(8 * GIB)))
        assert "container main of pod lab/greedy" in error.what
        assert "it has 4096 MiB and 30 % of card" in error.what
        assert "the pod's record says 8192 MiB" in error.what
        assert error.instead == "delete the pod so that it is placed again"

    async def test_a_record_with_another_card(self, bench: Bench) -> None:
        """Each share is compared."""
        error = await self.refused(bench, pod("sly", share(index=1)))
        assert f"the pod's record says 4096 MiB and 30 % of card {agent_node.uuid(1)}" in error.what

    async def test_a_record_that_is_held_more_loosely(self, bench: Bench) -> None:
        """How it is held is the object's as well."""
        error = await self.refused(bench, pod("loose", memory_enforced=False))
        assert "held in another way" in error.what

    async def test_an_object_of_another_claim(self, bench: Bench) -> None:
        """A pod has what its own claim has."""
        error = await self.refused(bench, pod("thief", claim="small"))
        assert "it belongs to claim lab/big, and the pod names claim lab/small" in error.what

    async def test_an_object_of_another_namespace(self, bench: Bench, server: Server) -> None:
        """Names of claims are those of a namespace."""
        server.objects["egpu-1"] = elastic_gpu("egpu-1", claim="other/big")
        error = await self.refused(bench, pod("thief"))
        assert "it belongs to claim other/big" in error.what

    async def test_an_object_of_nobody(self, bench: Bench, server: Server) -> None:
        """Its claim was deleted."""
        server.objects["egpu-1"]["spec"] = {}
        assert "belongs to no claim" in (await self.refused(bench, pod("late"))).what

    async def test_an_object_on_another_node(self, bench: Bench, server: Server) -> None:
        """It is there that the pod should be."""
        server.objects["egpu-1"] = elastic_gpu("egpu-1", node="gpu-2")
        error = await self.refused(bench, pod("moved"))
        assert "it is on node gpu-2, and the pod is on gpu-1" in error.what

    @pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 2}'])
    async def test_an_object_without_a_record(
        self, bench: Bench, server: Server, text: str
    ) -> None:
        """Or with one that cannot be read."""
        server.objects["egpu-1"]["metadata"]["annotations"] = {grant_record.GRANT: text}
        assert "not the record of its own share" in (await self.refused(bench, pod("p"))).what

    async def test_an_object_with_the_record_of_another(self, bench: Bench, server: Server) -> None:
        """A copied record counts for nobody."""
        copied = elastic_gpu("egpu-2")["metadata"]["annotations"]
        server.objects["egpu-1"]["metadata"]["annotations"] = copied
        assert "not the record of its own share" in (await self.refused(bench, pod("p"))).what

    @pytest.mark.parametrize("name", ["../../../api/v1/nodes/n", "a/status", "a?b=c", "A"])
    async def test_a_name_that_is_a_path(self, bench: Bench, server: Server, name: str) -> None:
        """The agent's rights are not lent to whoever edits a record."""
        error = await self.refused(bench, pod("sly", egpu=name))
        assert "that is not the name of an object" in error.what
        assert server.reads == []

    async def test_an_object_that_is_gone(self, bench: Bench, server: Server) -> None:
        """What it had may be somebody's by now."""
        server.objects.clear()
        assert "ElasticGPU egpu-1 is gone" in (await self.refused(bench, pod("p"))).what

    async def test_a_server_that_does_not_answer(self, bench: Bench, server: Server) -> None:
        """The container waits, and starts when it does."""
        server.error = kube_errors.Unreachable("no connection", sent=False)
        error = await self.refused(bench, pod("p"))
        assert "has to wait" in error.what
        assert "no connection" in error.what
        server.error = None
        await bench.start(resource=CLAIM)

    async def test_a_right_that_is_missing(self, bench: Bench, server: Server) -> None:
        """The administrator is told which."""
        server.error = kube_errors.Forbidden(403, "Forbidden", "no")
        assert "deploy/agent.yaml" in (await self.refused(bench, pod("p"))).instead

    async def test_a_server_that_is_silent(
        self, bench: Bench, server: Server, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The kubelet's time is not used up by it."""
        monkeypatch.setattr(claim_check, "_PATIENCE_S", 0.01)

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(server, "get", never)
        assert "no answer within" in (await self.refused(bench, pod("p"))).what


@pytest.mark.parametrize("egpu", ["egpu-1", "egpu-2"])
async def test_a_record_edited_later_changes_nothing(bench: Bench, egpu: str) -> None:
    """What was compared when the container started goes on."""
    bench.add(pod("train"), resource=CLAIM)
    await bench.start(resource=CLAIM)
    best_effort = demands.ComputeMode.BEST_EFFORT
    bench.pods.add(pod("train", share(8 * GIB, 90), egpu=egpu, compute_mode=best_effort))
    grant = bench.starter.enforced(bench.pods.by_uid["uid-train"])
    assert isinstance(grant, grants.Grant)
    [held] = grant.containers
    assert (held.shares, held.compute_mode) == ((share(),), FIXED)


class TestTheGate:
    """What a claim has is counted once, and is not free for others."""

    async def test_it_is_in_the_way_of_others(self, bench: Bench, server: Server) -> None:
        """A pod that was bound without counting it waits."""
        server.objects["egpu-1"] = elastic_gpu("egpu-1", share(10 * GIB))
        bench.add(pod("claimed", share(10 * GIB)), resource=CLAIM)
        bench.add(agent_node.pod("plain", {MEMORY: 7}), P1)
        await bench.start(resource=CLAIM)
        with pytest.raises(gate.NotGranted, match="7168 MiB are granted in addition to 10240"):
            await bench.start(P1)

    async def test_others_are_in_its_way(self, bench: Bench, server: Server) -> None:
        """The other way round."""
        server.objects["egpu-1"] = elastic_gpu("egpu-1", share(10 * GIB))
        bench.add(agent_node.pod("plain", {MEMORY: 7}))
        bench.add(pod("claimed", share(10 * GIB)), P1, CLAIM)
        await bench.start()
        with pytest.raises(gate.NotGranted, match="10240 MiB are granted in addition to 7168"):
            await bench.start(P1, CLAIM)

    async def test_two_pods_of_one_claim_count_once(self, bench: Bench, server: Server) -> None:
        """Together they have 10 GiB of 16, and a third pod has the rest."""
        server.objects["egpu-1"] = elastic_gpu("egpu-1", share(10 * GIB))
        for name, ids in (("a", P0), ("b", P1)):
            bench.add(pod(name, share(10 * GIB)), ids, CLAIM)
            await bench.start(ids, CLAIM)
        third = frozenset({"p2"})
        bench.add(agent_node.pod("plain", {MEMORY: 6}), third)
        await bench.start(third)


class TestOneTenant:
    """Containers that share an ElasticGPU have one quota together."""

    @pytest.fixture
    async def shared(self, bench: Bench) -> Bench:
        """Two pods that use one claim."""
        for name, ids in (("a", P0), ("b", P1)):
            bench.add(pod(name), ids, CLAIM)
        await asyncio.gather(bench.start(P0, CLAIM), bench.start(P1, CLAIM))
        return bench

    def limits_path(self, bench: Bench, ids: frozenset[str]) -> str:
        """The file that a container is held by."""
        mounts = bench.spec(ids, CLAIM)["containerEdits"]["mounts"]
        by_place = {mount["containerPath"]: mount["hostPath"] for mount in mounts}
        return str(by_place["/etc/partage/fence/limits"])

    async def test_they_are_held_by_the_same_files(self, shared: Bench) -> None:
        """Also if they start at the same moment."""
        assert shared.fences.names() == ["elasticgpu.egpu-1"]
        assert self.limits_path(shared, P0) == self.limits_path(shared, P1)

    async def test_the_tenant_stays_while_one_of_them_does(self, shared: Bench) -> None:
        """And goes with the last one."""
        for name, left in (("a", ["elasticgpu.egpu-1"]), ("b", [])):
            del shared.pods.by_uid[f"uid-{name}"]
            shared.sweeper().release(f"uid-{name}")
            assert shared.fences.names() == left
        assert shared.starter.started == {}
        assert shared.written() == []

    async def test_the_busy_one_does_not_keep_the_other(
        self, shared: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """What is left of a pod that is gone goes, though the tenant is in use."""
        monkeypatch.setattr(shared.fences, "is_busy", bool)
        del shared.pods.by_uid["uid-a"]
        shared.sweeper().sweep()
        assert [started.uid for started in shared.starter.started.values()] == ["uid-b"]
        assert shared.fences.names() == ["elasticgpu.egpu-1"]
        del shared.pods.by_uid["uid-b"]
        shared.sweeper().sweep()
        assert [started.uid for started in shared.starter.started.values()] == ["uid-b"]
        monkeypatch.undo()
        shared.sweeper().sweep()
        assert shared.fences.names() == []

    async def test_a_tenant_that_nobody_has_is_swept_away(self, shared: Bench) -> None:
        """The agent was killed between two steps."""
        shared.starter.started.clear()
        cleanup.Sweeper(shared.starter, shared.fences, shared.pods).sweep()
        assert shared.fences.names() == []

    async def test_one_that_is_being_put_up_is_not_swept_away(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A sweep may come in the midst of a start."""
        bench.add(pod("a"), P0, CLAIM)
        put = bench.fences.around

        def swept(*words: Any) -> Any:
            bench.sweeper().sweep()
            return put(*words)

        monkeypatch.setattr(bench.fences, "around", swept)
        await bench.start(P0, CLAIM)
        assert bench.fences.names() == ["elasticgpu.egpu-1"]

    @pytest.mark.parametrize("gone", ["a", "b"])
    async def test_it_has_its_time_while_one_of_them_goes_on(
        self, shared: Bench, root: roots.Root, gone: str
    ) -> None:
        """Whichever of them ended, one speaks for both, and they have one part together."""
        shared.state.set_labels({"partage.dev/compute-policy": "equal"})
        shared.pods.add(agent_node.ended(shared.pods.by_uid[f"uid-{gone}"]))
        divided = time_limits.TimeLimits(
            root,
            shared.state,
            shared.pods,
            shared.starter.started,
            enforced=shared.starter.enforced,
            classes={},
            tell=lambda _pod, _text: None,
        )
        assert await divided.divide() == {}
        [card] = tenants.read(root, "elasticgpu.egpu-1").limits.cards
        assert card.time.share_millionths == 1_000_000

    async def test_the_next_agent_knows_who_shares(self, shared: Bench) -> None:
        """By the specifications."""
        assert {s.elastic_gpu for s in shared.agent().started.values()} == {"egpu-1"}


def test_names_of_tenants_are_never_too_long() -> None:
    """Objects may have names of 253 characters, and two of those are two tenants."""
    names = [
        container_fence.tenant_name("uid", "main", f"{'x' * 250}{number}") for number in range(2)
    ]
    assert len(set(names)) == 2
    assert all(len(name) <= 128 and container_fence.is_shared(name) for name in names)
