"""`kubectl get gpu` shows the cards and their tenants as the fleet has them, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.core import cards, demands, fleet, grants
from partage.dialects import contract, memory_units
from partage.kube import errors as kube_errors
from partage.scheduler.gpu_objects import (
    card_objects,
    definition,
    keeper,
    stored_objects,
    write_queue,
    writer,
)
from partage.scheduler.mirror import mirror as mirrors
from tests import examples
from tests.kube import api_clients, scripted_server
from tests.scheduler import gpu_object_server
from tests.scheduler.gpu_object_server import Server

CORE, MEMORY = card_objects.CORE, card_objects.MEMORY
AWAY = kube_errors.Unreachable("away", sent=True)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test needs the pauses."""
    for name in ("_LOOK_S", "_PAUSE_S"):
        monkeypatch.setattr(keeper, name, 0.001)
    monkeypatch.setattr(keeper, "MOST_PER_S", 1e6)


def node(name: str = "n1", count: int = 2, **changes: Any) -> cards.Node:
    """A node with cards of 1000 MiB."""
    made = tuple(
        cards.Card(uuid=f"GPU-{name}-{i}", index=i, memory_mib=1000, model="T4", minor=i)
        for i in range(count)
    )
    return cards.Node(name=name, **{"cards": made, **changes})


def grant(uid: str, *shares: grants.Share, node: str = "n1", egpu: str = "") -> grants.Grant:
    """What one container of a pod has."""
    container = grants.ContainerGrant(name="main", shares=shares, elastic_gpu=egpu or msgspec.UNSET)
    return grants.Grant(pod=grants.Pod(uid, "lab", uid), node=node, containers=(container,))


def share(index: int = 0, memory_mib: int = 300, percent: int = 0, **more: Any) -> grants.Share:
    """A share of a card of n1."""
    return grants.Share(
        uuid=f"GPU-n1-{index}", index=index, memory_mib=memory_mib, compute_percent=percent, **more
    )


def mirror() -> mirrors.Mirror:
    """Of an empty cluster."""
    return mirrors.Mirror(fleet.standard(), memory_units.Unit(contract.Settings(), fixed=True))


def held(state_of: fleet.Fleet, name: str) -> frozenset[str]:
    """The pods on a node whose grants are not bound yet."""
    state = state_of.state(name)
    return frozenset(uid for uid in (state.grants if state else ()) if state_of.hold_of(uid))


def objects(state_of: fleet.Fleet) -> dict[str, card_objects.CardObject]:
    """What should be stored."""
    return {
        card.name: card
        for state in state_of.states()
        for card in card_objects.of_node(state, held(state_of, state.node.name))
    }


class TestOneCard:
    """What its object says."""

    def status(self, *given: grants.Grant, **changes: Any) -> card_objects.Status:
        """Of the first card."""
        standard = fleet.standard()
        standard.set_node(node(**changes))
        for each_grant in given:
            standard.admit(each_grant)
        return objects(standard)["n1-00"].status

    def test_the_card_is_described(self) -> None:
        """With a name and a label by which one finds it."""
        standard = fleet.standard()
        standard.set_node(node(count=11))
        card = objects(standard)["n1-10"]
        assert card.labels == {"elasticgpu.io/node": "n1", **gpu_object_server.MARK}
        assert card.spec == card_objects.Spec(
            10, "GPU-n1-10", "T4", "/dev/nvidia10", 1000 << 20, "n1"
        )

    def test_an_empty_card_is_all_allocatable(self) -> None:
        """And nobody has it."""
        full = {CORE: "100", MEMORY: "1000"}
        assert self.status() == card_objects.Status("Healthy", full, full)

    def test_a_share_is_listed_with_its_container(self) -> None:
        """And is not allocatable any more."""
        status = self.status(grant("a", share(0, 300, 20)), grant("b", share(1)))
        row = card_objects.Container("main", {CORE: "20", MEMORY: "300"})
        assert status.allocated == {"a": card_objects.Tenant("lab", "a", (row,))}
        assert status.allocatable == {CORE: "80", MEMORY: "700"}
        assert status.tenants == 1

    def test_a_whole_card_is_a_hundred_percent(self) -> None:
        """And nothing of it is left."""
        status = self.status(grant("a", share(0, 1000, exclusive=True)))
        assert status.allocated["a"].containers[0].resource == {CORE: "100"}
        assert status.allocatable == {CORE: "0", MEMORY: "0"}

    def test_an_elastic_gpu_without_a_pod_is_listed(self) -> None:
        """It has its share."""
        status = self.status(grant("elasticgpu/big", share(0, 600)))
        assert list(status.allocated) == ["elasticgpu/big"]
        assert status.tenants == 1
        assert status.allocatable[MEMORY] == "400"

    def test_pods_that_use_an_elastic_gpu_are_not_counted_again(self) -> None:
        """They are listed, and the amounts stand with the ElasticGPU."""
        users = [grant(uid, share(0, 600), egpu="big") for uid in ("a", "b")]
        status = self.status(grant("elasticgpu/big", share(0, 600)), *users)
        assert status.allocated["a"].containers == (
            card_objects.Container("main", {}, elastic_gpu="big"),
        )
        rows = [row for tenant in status.allocated.values() for row in tenant.containers]
        assert sum(int(row.resource.get(MEMORY, 0)) for row in rows) == 600
        assert status.tenants == 2
        assert status.allocatable[MEMORY] == "400"

    def test_a_card_that_takes_nothing_new_says_so(self) -> None:
        """And has nothing allocatable."""
        [first, second] = node().cards
        unhealthy = msgspec.structs.replace(first, healthy=False)
        nothing = {CORE: "0", MEMORY: "0"}
        for status, state in (
            (self.status(cards=(unhealthy, second)), "Unhealthy"),
            (self.status(cordons={first.uuid: "fan"}), "Cordoned"),
        ):
            assert (status.state, status.allocatable) == (state, nothing)

    def test_loads_and_holds_change_nothing(self) -> None:
        """They come and go without a tenant or the health changing."""
        standard = fleet.standard()
        standard.set_node(node())
        standard.admit(grant("a", share()))
        before = objects(standard)
        busy = [msgspec.structs.replace(card, foreign_memory_mib=50) for card in node().cards]
        standard.set_node(node(cards=tuple(busy), free_cpu_milli=7))
        asks = demands.PodDemand(
            containers=(demands.ContainerDemand("main", demands.Demand(memory_mib=100)),)
        )
        standard.hold(grants.Pod("b"), asks, "n1", expires_at=1.0)
        assert objects(standard) == before
        standard.confirm("b")
        assert objects(standard) != before

    def test_a_card_of_which_nothing_is_known_but_its_number(self) -> None:
        """It has no memory to tell of, and no uuid."""
        card = cards.Card(uuid="index-0", index=0, memory_mib=0, whole_only=True)
        standard = fleet.standard()
        standard.set_node(node(cards=(card,)))
        made = objects(standard)["n1-00"]
        assert msgspec.to_builtins(made.spec) == {"index": 0, "nodeName": "n1"}
        assert made.status.capacity == {CORE: "100"}

    def test_a_node_whose_name_is_too_long_for_a_label(self) -> None:
        """Its objects have none; their spec names the node."""
        standard = fleet.standard()
        standard.set_node(node("n" * 64))
        assert {card.labels.get("elasticgpu.io/node") for card in objects(standard).values()} == {
            None
        }


class TestTheQueue:
    """Who is written next."""

    async def test_nodes_come_in_turn_and_each_object_once(self) -> None:
        """However often an object changed, and however many a node has."""
        queue = write_queue.WriteQueue()
        for name in ("a-00", "a-01", "a-00", "a-02", "b-00", "c-00"):
            queue.add(name)
        assert len(queue) == 5
        order = []
        while queue:
            order.append(await queue.next())
            queue.done(order[-1])
        assert order == ["a-00", "b-00", "c-00", "a-01", "a-02"]

    async def test_one_object_of_a_node_is_under_way_at_a_time(self) -> None:
        """One that changes while it is written is written again, after that."""
        queue = write_queue.WriteQueue()
        queue.add("a-00")
        assert await queue.next() == "a-00"
        queue.add("a-00")
        waiting = asyncio.ensure_future(queue.next())
        await asyncio.sleep(0)
        assert not waiting.done()
        queue.done("a-00")
        assert await waiting == "a-00"


class Kept:
    """A fleet whose objects are kept, by a replica that leads or not."""

    def __init__(self, server: Server, mirror: mirrors.Mirror) -> None:
        self.server = server
        self.mirror = mirror
        self.fleet = mirror.fleet
        self.leads = True
        self.keeper = keeper.Keeper(server, mirror, ready=lambda: self.leads)

    def is_settled(self) -> bool:
        """Whether the objects are what the fleet says."""
        stored = {name: gpu.digest for name, gpu in self.server.read().items() if gpu.is_ours}
        return stored == {name: card.digest for name, card in objects(self.fleet).items()}

    async def settled(self) -> None:
        """Wait for it."""
        await scripted_server.until(self.is_settled)

    async def looked(self) -> None:
        """Wait until the keeper has compared everything that is so far."""
        before = self.keeper._moment
        self.fleet.set_node(node("marker", count=0))
        await scripted_server.until(lambda: self.keeper._moment != before)
        await scripted_server.until(
            lambda: not self.keeper.waiting and self.keeper._due <= self._held_nodes()
        )

    def _held_nodes(self) -> set[str]:
        """Those with a hold are due at all times."""
        return {
            grant.node
            for grant in self.fleet.all_grants()
            if self.fleet.hold_of(grant.pod.uid) is not None
        }


@contextlib.asynccontextmanager
async def kept(server: Server | None = None) -> AsyncIterator[Kept]:
    """Somebody keeps the objects of a fleet with one node."""
    made = Kept(server or Server(), mirror())
    made.fleet.set_node(node())
    async with api_clients.running(made.keeper.run()):
        yield made


class TestKeeping:
    """The objects follow the fleet."""

    @pytest.mark.parametrize("status_apart", [False, True])
    async def test_pods_come_and_go(self, status_apart: bool) -> None:
        """In one write for each change of a card, wherever the status is written."""
        async with kept(Server(status_apart=status_apart)) as made:
            await made.settled()
            made.server.writes.clear()
            made.fleet.admit(grant("a", share()))
            await made.settled()
            made.fleet.release("a")
            await made.settled()
        assert made.server.writes == [f"patch n1-00{'/status' * status_apart}"] * 2

    async def test_a_node_that_is_gone_takes_its_objects_with_it(self) -> None:
        """And so does a card; others stay."""
        async with kept() as made:
            made.fleet.set_node(node("n2"))
            await made.settled()
            made.fleet.remove_node("n2")
            await made.settled()
            assert list(made.server.objects) == ["n1-00", "n1-01"]
            made.fleet.set_node(node(count=1))
            await made.settled()
            assert list(made.server.objects) == ["n1-00"]

    async def test_a_hold_that_is_confirmed_is_shown(self) -> None:
        """Though for the fleet nothing changes by that."""
        asks = demands.PodDemand(
            containers=(demands.ContainerDemand("main", demands.Demand(memory_mib=100)),)
        )
        async with kept() as made:
            await made.settled()
            made.fleet.hold(grants.Pod("b"), asks, "n1", expires_at=1.0)
            await scripted_server.until(lambda: "n1" in made.keeper._due)
            made.fleet.confirm("b")
            await made.settled()
            assert any("b" in gpu.status.allocated for gpu in made.server.read().values())

    async def test_heartbeats_and_loads_write_nothing(self) -> None:
        """A node changes all the time, and its cards do not."""
        async with kept() as made:
            await made.settled()
            made.server.writes.clear()
            for used in range(5):
                made.fleet.set_node(node(free_cpu_milli=used))
                await made.looked()
        assert made.server.writes == []

    async def test_the_next_leader_goes_on_where_the_last_was_killed(self) -> None:
        """It reads what is there, and writes only what differs."""
        async with kept() as first:
            await first.settled()
        server = first.server
        server.writes.clear()
        second = Kept(server, mirror())
        second.fleet.set_node(node())
        second.fleet.admit(grant("a", share(1)))
        async with api_clients.running(second.keeper.run()):
            await second.settled()
            await second.looked()
        assert server.writes == ["patch n1-01"]

    async def test_a_deletion_that_comes_late_removes_nothing(self) -> None:
        """The card is back by now, and the next leader has written its object."""
        server, of_cards = Server(), mirror()
        of_cards.fleet.set_node(node(count=1))
        [card] = objects(of_cards.fleet).values()
        stored = stored_objects.StoredObjects(lambda _node: None)
        hand = writer.Writer(server, definition.Definition(status_apart=False), stored)
        await hand.write(card.name, card)
        now = server.store(copy.deepcopy(server.objects[card.name]))
        with pytest.raises(kube_errors.Conflict):
            await hand.write(card.name, None)
        assert list(server.objects) == [card.name]
        seen = stored.get(card.name)
        assert seen is not None
        assert seen.version == now["metadata"]["resourceVersion"]
        await hand.write(card.name, None)
        assert not server.objects

    async def test_who_does_not_lead_writes_nothing(self) -> None:
        """Until it leads again, and then it writes what it missed."""
        async with kept() as made:
            await made.settled()
            made.leads = False
            made.server.writes.clear()
            made.fleet.admit(grant("a", share()))
            await scripted_server.until(lambda: made.keeper._moment is None)
            assert made.server.writes == []
            made.leads = True
            await made.settled()

    async def test_what_people_do_to_our_objects_is_undone(self) -> None:
        """An edit and a deletion."""
        async with kept() as made:
            await made.settled()
            edited = copy.deepcopy(made.server.objects["n1-00"])
            edited["status"]["state"] = "Wonderful"
            edited["metadata"]["annotations"] = {"note": "mine"}
            made.server.store(edited)
            await made.settled()
            assert made.server.objects["n1-00"]["metadata"]["annotations"] == {"note": "mine"}
            made.server.remove("n1-01")
            await made.settled()

    async def test_foreign_objects_stay_as_they_are(self) -> None:
        """Of any name; one in the place of ours is a problem that people are told."""
        server = Server()
        foreign = {"metadata": {"name": "n1-00"}, "spec": {"index": 7}}
        server.store(copy.deepcopy(foreign))
        server.store({"metadata": {"name": "x-05"}, "spec": {"index": 5}})
        async with kept(server) as made:
            await scripted_server.until(lambda: len(made.mirror.problems))
            await scripted_server.until(lambda: "n1-01" in server.objects)
            await made.looked()
            assert server.objects["n1-00"]["spec"] == {"index": 7}
            assert "x-05" in server.objects
            [(what, text)] = made.mirror.problems
            assert what == "GPU object n1-00"
            assert "kubectl delete gpu n1-00" in text
            server.remove("n1-00")
            made.fleet.admit(grant("a", share()))
            await scripted_server.until(lambda: not len(made.mirror.problems))

    async def test_a_problem_goes_with_its_card(self) -> None:
        """The object in its place is still somebody else's, and that matters to nobody."""
        server = Server()
        server.store({"metadata": {"name": "n1-01"}, "spec": {"index": 7}})
        async with kept(server) as made:
            await scripted_server.until(lambda: len(made.mirror.problems))
            made.fleet.set_node(node(count=1))
            await scripted_server.until(lambda: not len(made.mirror.problems))
            assert "n1-01" in server.objects

    async def test_without_the_definition_nothing_is_tried(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is told once, and looked for now and then."""
        monkeypatch.setattr(keeper, "_SWEEP_S", 0.001)
        caplog.set_level("INFO")
        server = Server()
        server.installed = False
        async with kept(server) as made:
            await scripted_server.until(lambda: server.questions > 3)
            assert server.writes == []
            assert not len(made.mirror.problems)
            server.installed = True
            await made.settled()
        assert caplog.text.count("their definition is not installed") == 1

    async def test_a_definition_that_is_removed_and_comes_back(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With it go the objects, and then they are made again."""
        monkeypatch.setattr(keeper, "_SWEEP_S", 0.001)
        async with kept() as made:
            await made.settled()
            made.server.installed = False
            for name in list(made.server.objects):
                made.server.remove(name)
            questions = made.server.questions
            await scripted_server.until(lambda: made.server.questions > questions + 1)
            made.server.installed = True
            await made.settled()

    async def test_a_missing_right_is_a_problem(self) -> None:
        """With the words that help, until it is there."""
        server = Server()
        server.answers = [kube_errors.Forbidden(403, "Forbidden", "no")] * 2
        async with kept(server) as made:
            await scripted_server.until(lambda: not server.answers)
            await scripted_server.until(lambda: len(made.mirror.problems))
            assert "deploy/extender.yaml" in next(iter(made.mirror.problems))[1]
            made.fleet.admit(grant("a", share()))
            await made.settled()
            assert not len(made.mirror.problems)

    async def test_where_objects_cannot_even_be_listed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing is tried but that, now and then; a role of gpushare's has no such right."""
        monkeypatch.setattr(keeper, "_SWEEP_S", 0.001)
        server = Server()
        server.forbidden = True
        async with kept(server) as made:
            await scripted_server.until(lambda: server.questions > 3)
            assert server.writes == []
            assert [what for what, _ in made.mirror.problems] == ["GPU objects"]
            server.forbidden = False
            await made.settled()
            assert not len(made.mirror.problems)

    async def test_a_definition_that_drops_fields_is_not_written_to_for_ever(self) -> None:
        """What was written counts as written."""
        async with kept(Server(prunes=True)) as made:
            await scripted_server.until(lambda: len(made.server.objects) == 2)
            await made.looked()
            assert made.server.writes == ["create n1-00", "create n1-01"]
            made.fleet.admit(grant("a", share()))
            await scripted_server.until(lambda: len(made.server.writes) == 3)
            await made.looked()
            assert made.server.writes[2:] == ["patch n1-00"]


class TestTheRate:
    """However many objects wait, few are written at a time."""

    @pytest.mark.parametrize(("binds_each", "pause_s"), [(0, 0.04), (1, 0.08), (50, 0.2)])
    async def test_bindings_and_writes_share_it(
        self, monkeypatch: pytest.MonkeyPatch, binds_each: int, pause_s: float
    ) -> None:
        """Each of four writers pauses after a write; longer, where Bindings were sent meanwhile."""
        monkeypatch.setattr(keeper, "MOST_PER_S", 100.0)
        monkeypatch.setattr(keeper, "_WRITERS", 4)
        pauses: list[float] = []

        async def sleep(delay_s: float) -> None:
            pauses.append(round(delay_s, 3))
            await asyncio.sleep(0)

        server, cluster = Server(), mirror()
        for number in range(10):
            cluster.fleet.set_node(node(f"n{number}"))
        kept_objects = keeper.Keeper(
            server,
            cluster,
            ready=lambda: True,
            binds=lambda: binds_each * len(server.writes),
            clock=lambda: 0.0,
            sleep=sleep,
        )
        async with api_clients.running(kept_objects.run()):
            await scripted_server.until(lambda: kept_objects.written == 20)
            await scripted_server.until(lambda: sum(pause > 0.01 for pause in pauses) == 20)
        after_writes = [pause for pause in pauses if pause > 0.01]
        assert sum(after_writes) / 20 == pytest.approx(pause_s)


CHANGES = st.one_of(
    st.tuples(st.just("admit"), st.integers(0, 4), st.sampled_from(["n1", "n2"]),
              st.integers(0, 2), st.booleans()),
    st.tuples(st.just("release"), st.integers(0, 4)),
    st.tuples(st.just("hold"), st.integers(0, 4), st.sampled_from(["n1", "n2"])),
    st.tuples(st.just("confirm"), st.integers(0, 4)),
    st.tuples(st.just("node"), st.sampled_from(["n1", "n2"]), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("remove"), st.sampled_from(["n1", "n2"])),
    st.tuples(st.just("lead"), st.booleans()),
    st.tuples(st.just("restart")),
    st.tuples(st.just("wait")),
)  # fmt: skip
FAULTS = st.one_of(
    st.tuples(st.just("fail")), st.tuples(st.just("lose")), st.tuples(st.just("edit"))
)


class Story:
    """What happens to a fleet, step by step."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.made = Kept(server, mirror())
        self._running: asyncio.Task[Any] | None = None

    async def run(self, changes: list[tuple[Any, ...]]) -> None:
        """All of it; at the end the objects are what the fleet says, and nobody writes any more."""
        await self.restart()
        for name, *words in changes:
            answer = getattr(self, name)(*words)
            if answer is not None:
                await answer
        self.made.leads = True
        await self.made.settled()
        await self.made.looked()
        assert self.made.is_settled()
        assert self._running is not None
        self._running.cancel()

    def admit(self, uid: int, name: str, index: int, elastic: bool) -> None:
        """A pod is bound."""
        uuid = f"GPU-{name}-{index}"
        given = grants.Share(uuid=uuid, index=index, memory_mib=100 + uid)
        self.made.fleet.admit(grant(str(uid), given, node=name, egpu="x" if elastic else ""))

    def release(self, uid: int) -> None:
        """A pod ends."""
        self.made.fleet.release(str(uid))

    def hold(self, uid: int, name: str) -> None:
        """A pod is about to be bound."""
        asks = demands.Demand(memory_mib=50)
        pod = demands.PodDemand(containers=(demands.ContainerDemand("main", asks),))
        if self.made.fleet.grant_of(str(uid)) is None:
            self.made.fleet.hold(grants.Pod(str(uid)), pod, name, expires_at=1.0)

    def confirm(self, uid: int) -> None:
        """It is."""
        if self.made.fleet.hold_of(str(uid)):
            self.made.fleet.confirm(str(uid))

    def node(self, name: str, count: int, unhealthy: int) -> None:
        """A node comes, or its cards change."""
        made = node(name, count)
        judged = [msgspec.structs.replace(c, healthy=c.index != unhealthy) for c in made.cards]
        self.made.fleet.set_node(node(name, cards=tuple(judged)))

    def remove(self, name: str) -> None:
        """A node goes."""
        self.made.fleet.remove_node(name)

    def lead(self, leads: bool) -> None:
        """The lease is lost, or got again."""
        self.made.leads = leads

    async def restart(self) -> None:
        """The extender is killed and another one reads the same cluster."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
        self.made = Kept(self.server, self.made.mirror)
        self._running = asyncio.ensure_future(self.made.keeper.run())

    async def wait(self) -> None:
        """Time passes."""
        for _ in range(20):
            await asyncio.sleep(0)

    def fail(self) -> None:
        """A request fails, and nothing has happened."""
        self.server.answers.append(AWAY)

    def lose(self) -> None:
        """An answer is lost, and it has happened."""
        self.server.lost.append(AWAY)

    def edit(self) -> None:
        """Somebody changes one of our objects."""
        for gpu in list(self.server.objects.values())[:1]:
            changed = copy.deepcopy(gpu)
            changed["spec"]["model"] = "other"
            self.server.store(changed)


def tell(changes: list[tuple[Any, ...]], **form: bool) -> Server:
    """Let a story happen."""
    server = Server(**form)

    async def whole() -> None:
        await Story(server).run(changes)

    asyncio.run(whole())
    return server


@pytest.mark.usefixtures("quick")
class TestAnyStory:
    """For any sequence of grants, releases, changes of nodes and health, leaders and restarts."""

    @hypothesis.settings(
        max_examples=examples.many(200),
        suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
    )
    @hypothesis.given(changes=st.lists(CHANGES, max_size=25), apart=st.booleans())
    def test_the_objects_are_in_the_end_what_the_fleet_says(
        self, changes: list[tuple[Any, ...]], apart: bool
    ) -> None:
        """And nothing was written that was written already."""
        assert tell(changes, status_apart=apart).idle_writes == []

    @hypothesis.settings(
        max_examples=examples.many(200),
        suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
    )
    @hypothesis.given(changes=st.lists(CHANGES | FAULTS, max_size=25), apart=st.booleans())
    def test_failures_and_lost_answers_and_edits_do_not_matter(
        self, changes: list[tuple[Any, ...]], apart: bool
    ) -> None:
        """They are tried again, read again and undone."""
        tell(changes, status_apart=apart)
