"""Whatever happens to a fleet, in whatever order, it stays exact."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
from hypothesis import stateful
from hypothesis import strategies as st

from partage.core import cards, demands, grants, inventory, refusals
from partage.core import fleet as fleets
from partage.core.placement import rooms
from partage.core.policies import binpack, contention, contract, priced, prices, spread, stranding
from tests import examples, strategies

_NODE_NAMES = [f"n{i}" for i in range(4)]
_POLICIES = ["priced", "binpack", "spread"]


def _policies(lesson: priced.Lesson) -> list[contract.Policy[Any]]:
    return [priced.Priced(lesson), binpack.Binpack(), spread.Spread()]


class FleetMachine(stateful.RuleBasedStateMachine):
    """Nodes come, go and change; pods are held, moved, confirmed, released and expire."""

    def __init__(self) -> None:
        super().__init__()
        self.lesson = priced.Lesson()
        self.fleet = fleets.Fleet(*_policies(self.lesson))
        self.nodes: dict[str, cards.Node] = {}
        self.pod_demands: list[demands.PodDemand] = []
        self.expiries: dict[str, float] = {}
        self.confirmed: set[str] = set()
        self.granted: dict[str, grants.Grant] = {}
        self.now = 0.0
        self.pods = 0

    @stateful.initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """Three nodes with cards, so that there is something to share."""
        for name in _NODE_NAMES[:3]:
            self.nodes[name] = data.draw(strategies.nodes(name, fewest_cards=1))
            self.fleet.set_node(self.nodes[name])

    @stateful.rule(data=st.data(), name=st.sampled_from(_NODE_NAMES))
    def set_node(self, data: st.DataObject, name: str) -> None:
        """A node appears, or all its facts change: cards added, removed, resized, their health."""
        self.nodes[name] = data.draw(strategies.nodes(name))
        self.fleet.set_node(self.nodes[name])

    @stateful.rule(name=st.sampled_from(_NODE_NAMES[2:]))
    def remove_node(self, name: str) -> None:
        """A node vanishes."""
        self.nodes.pop(name, None)
        self.fleet.remove_node(name)

    @stateful.rule(name=st.sampled_from(_NODE_NAMES), which=st.integers(0, 3))
    def card_falls_unhealthy_or_recovers(self, name: str, which: int) -> None:
        """One card changes its health; everything else stays."""
        node = self.nodes.get(name)
        if node is None or which >= len(node.cards):
            return
        card = msgspec.structs.replace(node.cards[which], healthy=not node.cards[which].healthy)
        changed = (*node.cards[:which], card, *node.cards[which + 1 :])
        self.nodes[name] = msgspec.structs.replace(node, cards=changed)
        self.fleet.set_node(self.nodes[name])

    @stateful.rule(name=st.sampled_from(_NODE_NAMES), which=st.integers(0, 3))
    def card_is_cordoned_or_opened(self, name: str, which: int) -> None:
        """Somebody closes a card to newcomers, or opens it."""
        node = self.nodes.get(name)
        if node is not None:
            uuid = f"{name}/{which}"
            cordons = {u: why for u, why in node.cordons.items() if u != uuid}
            cordons |= {} if uuid in node.cordons else {uuid: ""}
            self.nodes[name] = msgspec.structs.replace(node, cordons=cordons)
            self.fleet.set_node(self.nodes[name])

    @stateful.rule(
        name=st.sampled_from(_NODE_NAMES), which=st.integers(0, 3), memory_mib=st.integers(0, 30)
    )
    def strangers_come_or_go(self, name: str, which: int, memory_mib: int) -> None:
        """Processes outside Partage use another amount of a card, granted or not."""
        node = self.nodes.get(name)
        if node is None or which >= len(node.cards):
            return
        card = msgspec.structs.replace(node.cards[which], foreign_memory_mib=memory_mib)
        changed = (*node.cards[:which], card, *node.cards[which + 1 :])
        self.nodes[name] = msgspec.structs.replace(node, cards=changed)
        self.fleet.set_node(self.nodes[name])

    @stateful.rule(data=st.data(), name=st.sampled_from(_NODE_NAMES))
    def labels_change(self, data: st.DataObject, name: str) -> None:
        """A node's mode or placement changes, its cards do not."""
        if name in self.nodes:
            other = data.draw(strategies.nodes(name))
            self.nodes[name] = msgspec.structs.replace(
                self.nodes[name], traits=other.traits, cards_by=other.cards_by
            )
            self.fleet.set_node(self.nodes[name])

    @stateful.rule(name=st.sampled_from(_NODE_NAMES), cpu=st.integers(0, 64000))
    def cpu_changes(self, name: str, cpu: int) -> None:
        """Only what is around the cards changes."""
        if name in self.nodes:
            self.nodes[name] = msgspec.structs.replace(self.nodes[name], free_cpu_milli=cpu)
            self.fleet.set_node(self.nodes[name])

    @stateful.rule(
        pod=strategies.pods(), policy=st.sampled_from(_POLICIES), lasts=st.integers(0, 3)
    )
    def place_new(self, pod: demands.PodDemand, policy: str, lasts: int) -> None:
        """A pod of a shape that may be new goes to the best node."""
        self.pod_demands.append(msgspec.structs.replace(pod, nodes_by=policy))
        self._place(self.pod_demands[-1], lasts=lasts, which=0)

    @stateful.precondition(lambda self: self.pod_demands)
    @stateful.rule(data=st.data(), lasts=st.integers(0, 3), which=st.integers(0, 3))
    def place_known(self, data: st.DataObject, lasts: int, which: int) -> None:
        """A pod of a shape that was asked about before goes to one of the nodes that fit."""
        self._place(data.draw(st.sampled_from(self.pod_demands)), lasts=lasts, which=which)

    @stateful.precondition(lambda self: self.pod_demands)
    @stateful.rule(data=st.data(), name=st.sampled_from(_NODE_NAMES))
    def place_anywhere(self, data: st.DataObject, name: str) -> None:
        """The fleet says no exactly if the node is not among those that fit."""
        pod = data.draw(st.sampled_from(self.pod_demands))
        fits = name in self.fleet.best(pod, limit=0)
        self.pods += 1
        self._hold(f"p{self.pods}", pod, name, lasts=2, fits=fits)

    @stateful.precondition(lambda self: self.expiries)
    @stateful.rule(data=st.data(), name=st.sampled_from(_NODE_NAMES))
    def move(self, data: st.DataObject, name: str) -> None:
        """A held pod is held elsewhere, perhaps for another demand; else it stays as it was."""
        uid = data.draw(st.sampled_from(sorted(self.expiries)))
        self._hold(uid, data.draw(st.sampled_from(self.pod_demands)), name, lasts=2, fits=None)

    @stateful.precondition(lambda self: self.expiries)
    @stateful.rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        """A hold becomes a grant."""
        uid = data.draw(st.sampled_from(sorted(self.expiries)))
        assert self.fleet.confirm(uid) == self.granted[uid]
        del self.expiries[uid]
        self.confirmed.add(uid)

    @stateful.rule(step=st.integers(0, 3))
    def time_passes(self, step: int) -> None:
        """Holds end, and only those whose time has come."""
        self.now += step
        due = {uid for uid, at in self.expiries.items() if at <= self.now}
        ended = self.fleet.expire(self.now)
        assert {grant.pod.uid for grant in ended} == due
        for uid in due:
            del self.expiries[uid], self.granted[uid]

    @stateful.precondition(lambda self: self.granted)
    @stateful.rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A release gives back exactly what was taken."""
        uid = data.draw(st.sampled_from(sorted(self.granted)))
        before = self._uses()
        grant = self.fleet.release(uid)
        assert grant == self.granted.pop(uid)
        self.expiries.pop(uid, None)
        self.confirmed.discard(uid)
        self.fleet.admit(grant)
        assert self._uses() == before
        self.fleet.release(uid)

    @stateful.rule(pod=strategies.pods(), name=st.sampled_from(_NODE_NAMES))
    def somebody_else_binds(self, pod: demands.PodDemand, name: str) -> None:
        """A pod that another scheduler placed counts, even where it does not fit."""
        node = self.nodes.get(name)
        if node is None or not node.cards:
            return
        self.pods += 1
        grant = _foreign_grant(f"f{self.pods}", node, pod)
        self.fleet.admit(grant)
        self.granted[grant.pod.uid] = grant
        self.confirmed.add(grant.pod.uid)

    @stateful.rule(sizes=st.dictionaries(st.integers(1, 100), st.integers(1, 9), max_size=4))
    def prices_change(self, sizes: dict[int, int]) -> None:
        """The policy learns something new."""
        values = prices.values({size: float(count) for size, count in sizes.items()})
        cpu = stranding.CpuDemand(8000.0, 1e7)
        rivals = [(1.0, 8000, 5), (0.0, 4000, 9)] if 50 in sizes or len(sizes) > 2 else []
        contended = contention.learn(rivals, [(4.0, 30_000)])
        self.lesson = priced.Lesson({10: values, 24: values}, cpu, {"T4": 0.5}, contended)
        for place, _ in enumerate(self.fleet.set_policy(priced.Priced(self.lesson))):
            if place == 1:
                break  # nobody has to wait until all ranks are made anew

    @stateful.invariant()
    def sums_are_those_of_the_grants(self) -> None:
        """A fleet rebuilt from its grants equals the living one."""
        reborn = fleets.Fleet(binpack.Binpack())
        for grant in self.fleet.all_grants():
            reborn.admit(grant)
        for node in self.nodes.values():
            reborn.set_node(node)
        assert _uses(reborn) == self._uses()
        assert {g.pod.uid: g for g in self.fleet.all_grants()} == self.granted

    @stateful.invariant()
    def kept_answers_equal_fresh_ones(self) -> None:
        """The cached answer equals that of a fleet which was never asked before."""
        fresh = fleets.Fleet(*_policies(self.lesson))
        ordinals = _inventory(self.fleet).names
        for name in ordinals:
            if name:
                fresh.set_node(self.nodes[name])
        for grant in self.granted.values():
            fresh.admit(grant)
        for pod in self.pod_demands[-6:]:
            kept = self.fleet.best(pod, limit=0)
            assert set(kept) == set(fresh.best(pod, limit=0))
            for name in kept:
                assert self.fleet.place(pod, name) == fresh.place(pod, name)
            assert _keys(self.fleet, pod) == _keys(fresh, pod)

    @stateful.invariant()
    def refused_exactly_where_it_does_not_fit(self) -> None:
        """Every node either fits or has a refusal, and never both."""
        for pod in self.pod_demands[-2:]:
            fits = set(self.fleet.best(pod, limit=0))
            refused = {refusal.node for refusal in self.fleet.refuse(pod)}
            assert fits | refused == set(self.nodes)
            assert not fits & refused

    def _place(self, pod: demands.PodDemand, *, lasts: int, which: int) -> None:
        fits = self.fleet.best(pod, limit=0)
        if fits:
            self.pods += 1
            name = fits[which % len(fits)]
            self._hold(f"p{self.pods}", pod, name, lasts=lasts, fits=True)

    def _hold(
        self, uid: str, pod: demands.PodDemand, name: str, *, lasts: int, fits: bool | None
    ) -> None:
        before = self.granted.get(uid)
        others = {u: g for u, g in self.granted.items() if u != uid}
        answer = self.fleet.hold(grants.Pod(uid), pod, name, expires_at=self.now + lasts)
        if fits is not None:
            assert isinstance(answer, fleets.Hold) == fits
        if isinstance(answer, refusals.Refusal):
            assert self.fleet.grant_of(uid) == before
            return
        self.granted[uid] = answer.grant
        self.expiries[uid] = self.now + lasts
        _assert_within(self.nodes[name], answer.grant, others)
        _assert_as_asked(self.nodes[name], answer.grant, pod)

    def _uses(self) -> dict[str, tuple[int, ...]]:
        return _uses(self.fleet)


def _assert_within(
    node: cards.Node, decided: grants.Grant, others: dict[str, grants.Grant]
) -> None:
    """Count from scratch, with the plainest means: no touched card is over anything."""
    granted = [g for g in others.values() if g.node == node.name] + [decided]
    for card in node.cards:
        touched = card.uuid in grants.takings(decided)
        if not touched:
            continue
        takings = [
            (g, grants.takings(g)[card.uuid]) for g in granted if card.uuid in grants.takings(g)
        ]
        assert card.healthy
        assert card.uuid not in node.cordons
        assert sum(t.memory_mib for _, t in takings) + card.foreign_memory_mib <= card.memory_mib
        busy = sum(t.compute_percent for g, t in takings if g.qos is not demands.Qos.OFFLINE)
        lazy = sum(t.compute_percent for g, t in takings if g.qos is demands.Qos.OFFLINE)
        if decided.qos is demands.Qos.OFFLINE:
            assert lazy <= 100
        elif grants.takings(decided)[card.uuid].compute_percent:
            assert busy + card.foreign_compute_percent <= 100
        assert sum(t.tenants for _, t in takings) <= card.max_tenants
        assert len(takings) == 1 or not any(t.exclusive for _, t in takings)
        mates = [g for g, _ in takings if g.spread_group == decided.spread_group]
        assert not decided.spread_group or mates == [decided]
        assert not (grants.takings(decided)[card.uuid].exclusive and card.foreign_memory_mib)
    assert not any(g.exclusive_node for g in granted) or len(granted) == 1


def _assert_as_asked(node: cards.Node, decided: grants.Grant, pod: demands.PodDemand) -> None:
    """Every container got as many cards, and as much of each, as it asked for."""
    sizes = {card.uuid: card.memory_mib for card in node.cards}
    for container, got in zip(pod.containers, decided.containers, strict=True):
        demand = container.demand
        assert len({share.uuid for share in got.shares}) == (demand.cards or len(node.cards))
        for share in got.shares:
            whole = sizes[share.uuid] if demand.whole else 0
            percent = sizes[share.uuid] * demand.memory_percent // 100
            assert share.memory_mib == max(whole, percent, demand.memory_mib)
    if pod.together:
        assert len({tuple(s.uuid for s in c.shares) for c in decided.containers}) == 1


def _foreign_grant(uid: str, node: cards.Node, pod: demands.PodDemand) -> grants.Grant:
    card = node.cards[0]
    share = grants.Share(uuid=card.uuid, index=0, memory_mib=7, compute_percent=40)
    container = grants.ContainerGrant(name="x", shares=(share,), role=pod.containers[0].role)
    return grants.Grant(
        pod=grants.Pod(uid),
        node=node.name,
        containers=(container,),
        qos=pod.qos,
        tag=pod.tag,
        spread_group=pod.spread_group,
    )


def _uses(fleet: fleets.Fleet) -> dict[str, tuple[int, ...]]:
    return {uuid: _numbers(use) for state in fleet.states() for uuid, use in state.uses.items()}


def _numbers(use: rooms.Use) -> tuple[int, ...]:
    sums = (getattr(use, name) for name in rooms.Use.__slots__ if name != "pods")
    return (*sums, *use.pods.values())


def _inventory(fleet: fleets.Fleet) -> inventory.Inventory:
    return fleet._inventory


def _keys(fleet: fleets.Fleet, pod: demands.PodDemand) -> dict[str, int]:
    """What the policy says of each node that fits, without the order in which nodes came."""
    rank = fleet._ranks.rank(pod)
    return {
        name: key >> 20
        for name, ordinal in _inventory(fleet).ordinals.items()
        if (key := rank._keys[ordinal]) is not None
    }


FleetMachine.TestCase.settings = hypothesis.settings(
    max_examples=examples.many(150), stateful_step_count=40, deadline=None
)
TestFleet = FleetMachine.TestCase
