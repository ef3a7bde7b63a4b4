"""A namespace with a total never has more, and its account is always the sum of its grants."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import stateful
from hypothesis import strategies as st

from partage.core import demands, grants, refusals, totals
from partage.core import fleet as fleets
from tests import examples, strategies
from tests.core.small_fleets import GIB, fleet_of, node, pod, share, whole

LAB = "lab"


def _pod(uid: str, namespace: str = LAB) -> grants.Pod:
    return grants.Pod(uid, namespace, uid)


def _hold(
    fleet: fleets.Fleet, uid: str, demand: demands.PodDemand, where: str = "n0"
) -> fleets.Hold | refusals.Refusal:
    return fleet.hold(_pod(uid), demand, where, expires_at=10)


def _used(fleet: fleets.Fleet) -> totals.Sums:
    account = fleet.account(LAB)
    assert account is not None
    return account.used


def test_holds_and_grants_count_until_they_end() -> None:
    """Held or confirmed, moved or released: the account has what the namespace has."""
    fleet = fleet_of(node("n0", 16 * GIB, 16 * GIB), node("n1", 16 * GIB))
    fleet.set_total(LAB, totals.Total(memory_mib=20 * GIB))
    _hold(fleet, "a", pod(share(8 * GIB, compute_percent=20)))
    _hold(fleet, "a", pod(share(8 * GIB, compute_percent=20)), "n1")
    assert _used(fleet) == totals.Sums(1, 8 * GIB, 20)

    fleet.confirm("a")
    _hold(fleet, "b", pod(share(4 * GIB, cards=2)))
    assert _used(fleet) == totals.Sums(3, 16 * GIB, 20)

    fleet.expire(10)
    assert _used(fleet) == totals.Sums(1, 8 * GIB, 20)
    fleet.release("a")
    assert _used(fleet) == totals.NOTHING


def test_a_whole_card_counts_with_all_it_has() -> None:
    """Where it lands decides: so the smaller card may do, and the larger one not."""
    fleet = fleet_of(node("small", 16 * GIB), node("large", 80 * GIB))
    fleet.set_total(LAB, totals.Total(memory_mib=20 * GIB, compute_percent=100))

    assert set(fleet.best(pod(whole()), limit=0)) == {"small", "large"}
    assert fleet.best(pod(whole()), limit=0, namespace=LAB) == ["small"]
    assert fleet.best(pod(whole()), namespace=LAB, among={"large"}) == []
    assert isinstance(_hold(fleet, "a", pod(whole()), "large"), refusals.Refusal)
    assert isinstance(_hold(fleet, "a", pod(whole()), "small"), fleets.Hold)
    assert _used(fleet) == totals.Sums(1, 16 * GIB, 100)


def test_the_best_that_are_too_dear_do_not_hide_the_others() -> None:
    """The first node by the policy may be the one whose cards are too large."""
    fleet = fleet_of(node("large", 80 * GIB), node("small", 16 * GIB), default="spread")
    half = pod(demands.Demand(memory_percent=50))
    fleet.set_total(LAB, totals.Total(memory_mib=10 * GIB))

    assert fleet.best(half, limit=1) == ["large"]
    assert fleet.best(half, limit=1, namespace=LAB) == ["small"]


def test_containers_on_the_same_card_count_at_their_worst_moment() -> None:
    """As they count on the card."""
    fleet = fleet_of(node("n0", 16 * GIB))
    fleet.set_total(LAB, totals.Total(memory_mib=8 * GIB))
    containers = (
        demands.ContainerDemand("init", share(8 * GIB), demands.Role.INIT),
        demands.ContainerDemand("main", share(6 * GIB)),
    )
    _hold(fleet, "a", demands.PodDemand(containers=containers))

    assert _used(fleet) == totals.Sums(1, 8 * GIB, 0)


def test_grants_that_were_there_before_the_total_count() -> None:
    """Those on nodes that are gone, too; what is granted stays, even beyond the total."""
    fleet = fleet_of(node("n0", 16 * GIB), node("n1", 16 * GIB))
    for uid, where in (("a", "n0"), ("b", "n1")):
        _hold(fleet, uid, pod(share(8 * GIB)), where)
        fleet.confirm(uid)
    fleet.hold(_pod("other", "elsewhere"), pod(share(GIB)), "n0", expires_at=10)
    fleet.remove_node("n1")
    fleet.set_total(LAB, totals.Total(memory_mib=10 * GIB))

    assert _used(fleet) == totals.Sums(2, 16 * GIB, 0)
    assert len(list(fleet.all_grants())) == 3
    refusal = _hold(fleet, "c", pod(share(GIB)))
    assert isinstance(refusal, refusals.Refusal)
    assert refusal.code is refusals.Code.NAMESPACE_FULL


def test_a_hold_that_is_refused_leaves_the_one_before() -> None:
    """As where a card has no room."""
    fleet = fleet_of(node("n0", 16 * GIB), node("n1", 80 * GIB))
    fleet.set_total(LAB, totals.Total(memory_mib=16 * GIB))
    before = _hold(fleet, "a", pod(whole()))

    assert isinstance(_hold(fleet, "a", pod(whole()), "n1"), refusals.Refusal)
    assert fleet.hold_of("a") == before
    assert _used(fleet) == totals.Sums(1, 16 * GIB, 100)


def test_other_namespaces_and_those_without_a_total_are_free() -> None:
    """A total is of one namespace, and can be taken away again."""
    fleet = fleet_of(node("n0", 16 * GIB))
    fleet.set_total(LAB, totals.Total(cards=0))

    assert fleet.best(pod(share(GIB)), namespace=LAB) == []
    assert fleet.best(pod(share(GIB)), namespace="elsewhere") == ["n0"]
    fleet.set_total(LAB, None)
    assert fleet.best(pod(share(GIB)), namespace=LAB) == ["n0"]
    assert fleet.account(LAB) is None


def test_nothing_of_a_kind_is_not_held_up_by_its_total() -> None:
    """A share without compute stands beside a compute total that is used up."""
    fleet = fleet_of(node("n0", 16 * GIB))
    fleet.set_total(LAB, totals.Total(compute_percent=0))

    assert fleet.best(pod(share(GIB)), namespace=LAB) == ["n0"]
    assert fleet.best(pod(share(GIB, compute_percent=1)), namespace=LAB) == []


def test_a_total_that_cannot_be_read_gives_nothing_more() -> None:
    """What was meant is not known, and no limit is the one thing that was not meant."""
    fleet = fleet_of(node("n0", 16 * GIB))
    fleet.set_total(LAB, totals.Total(problem="most-memory: '64GB' is not a quantity"))

    refusal = _hold(fleet, "a", pod(share(GIB)))
    assert isinstance(refusal, refusals.Refusal)
    assert (refusal.code, refusal.never) == (refusals.Code.NAMESPACE_FULL, False)
    said = "namespace lab gets no more cards: most-memory: '64GB' is not a quantity"
    assert refusal.text == said


@pytest.mark.parametrize(
    ("total", "used", "charge", "text"),
    [
        (
            totals.Total(memory_mib=64 * GIB),
            totals.Sums(memory_mib=60 * GIB),
            totals.Sums(1, 8 * GIB),
            "namespace lab may have 64 GiB of card memory and has 60 GiB; this pod asks for 8 GiB",
        ),
        (
            totals.Total(memory_mib=99),
            totals.Sums(memory_mib=90),
            totals.Sums(1, 20),
            "namespace lab may have 99 MiB of card memory and has 90 MiB; this pod asks for 20 MiB",
        ),
        (
            totals.Total(compute_percent=400),
            totals.Sums(compute_percent=350),
            totals.Sums(compute_percent=100),
            "namespace lab may have 400 % of compute and has 350 %; this pod asks for 100 %",
        ),
        (
            totals.Total(cards=1),
            totals.Sums(cards=1),
            totals.Sums(cards=1),
            "namespace lab may have 1 card and has 1; this pod asks for 1",
        ),
        (
            totals.Total(cards=4, memory_mib=8 * GIB),
            totals.Sums(cards=4),
            totals.Sums(1, 16 * GIB),
            "namespace lab may have 8 GiB of card memory; this pod alone asks for 16 GiB",
        ),
        (
            totals.Total(cards=4, memory_mib=8 * GIB),
            totals.Sums(memory_mib=8 * GIB),
            totals.Sums(5, 8 * GIB),
            "namespace lab may have 4 cards; this pod alone asks for 5",
        ),
    ],
)
def test_the_text_has_the_numbers(
    total: totals.Total, used: totals.Sums, charge: totals.Sums, text: str
) -> None:
    """What it may have, what it has, what is asked for; what can never be comes first."""
    excess = totals.excess(LAB, total, used, charge)

    assert excess is not None
    assert excess.text == text
    assert excess.never == ("alone" in text)


_NODES = ("n0", "n1", "n2")
_SPACES = ("lab", "team", "free")
_LIMITS = st.none() | st.builds(
    totals.Total,
    cards=st.none() | st.integers(0, 5),
    memory_mib=st.none() | st.integers(0, 40),
    compute_percent=st.none() | st.integers(0, 200),
)


class TotalsMachine(stateful.RuleBasedStateMachine):
    """Totals come, go and change, while pods of three namespaces do all that pods do."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = fleets.standard("binpack")
        self.nodes: set[str] = set()
        self.totals: dict[str, totals.Total | None] = {}
        self.now = 0
        self.pods = 0

    @stateful.initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        """A node with cards, and a namespace with a total."""
        self.fleet.set_node(data.draw(strategies.nodes("n0", fewest_cards=2)))
        self.set_total(_SPACES[0], totals.Total(memory_mib=12))

    @stateful.rule(space=st.sampled_from(_SPACES[:2]), total=_LIMITS)
    def set_total(self, space: str, total: totals.Total | None) -> None:
        """Somebody writes on a namespace."""
        self.totals[space] = total
        self.fleet.set_total(space, total)

    @stateful.rule(data=st.data(), name=st.sampled_from(_NODES))
    def set_node(self, data: st.DataObject, name: str) -> None:
        """A node comes, or has other cards."""
        self.fleet.set_node(data.draw(strategies.nodes(name)))

    @stateful.rule(name=st.sampled_from(_NODES[1:]))
    def remove_node(self, name: str) -> None:
        """A node vanishes; its grants wait."""
        self.fleet.remove_node(name)

    @stateful.rule(demand=strategies.pods(), space=st.sampled_from(_SPACES), again=st.booleans())
    def place(self, demand: demands.PodDemand, space: str, again: bool) -> None:
        """A pod is held where it may be, and nowhere else; or one that holds is held again."""
        holding = [g.pod for g in self._grants() if self.fleet.hold_of(g.pod.uid)]
        self.pods += 1
        pod = holding[0] if again and holding else grants.Pod(f"p{self.pods}", space)
        mine = self.fleet.hold_of(pod.uid)
        if mine is not None:
            self.fleet.release(pod.uid)
        fits = self.fleet.best(demand, limit=0, namespace=pod.namespace)
        beyond = self.fleet.beyond(demand, pod.namespace)
        assert {*fits, *beyond} == set(self.fleet.best(demand, limit=0))
        assert not beyond.keys() & set(fits)
        assert self.fleet.best(demand, namespace=pod.namespace) == fits[:1]
        for name in _NODES:
            held = self.fleet.hold(pod, demand, name, expires_at=self.now + 2)
            assert isinstance(held, fleets.Hold) == (name in fits)
            if isinstance(held, fleets.Hold):
                self._assert_within(pod.namespace, held.grant)
                break
            assert (name in beyond) == held.code.value.startswith("namespace-")

    @stateful.rule(choice=st.integers(0, 99), what=st.sampled_from(["confirm", "release", "wait"]))
    def go_on(self, choice: int, what: str) -> None:
        """What was placed is bound, ends, or expires."""
        uids = sorted(self.fleet.uids())
        if what == "wait":
            self.now += 1
            self.fleet.expire(self.now)
        elif uids:
            uid = uids[choice % len(uids)]
            (self.fleet.confirm if what == "confirm" else self.fleet.release)(uid)

    @stateful.rule(space=st.sampled_from(_SPACES), mib=st.integers(1, 20))
    def somebody_else_binds(self, space: str, mib: int) -> None:
        """It counts, although it may be too much."""
        self.pods += 1
        taken = grants.Share(uuid="n0/0", index=0, memory_mib=mib)
        container = grants.ContainerGrant(name="c", shares=(taken,))
        pod = grants.Pod(f"f{self.pods}", space)
        self.fleet.admit(grants.Grant(pod=pod, node="n0", containers=(container,)))

    @stateful.invariant()
    def accounts_are_the_sums_of_the_grants(self) -> None:
        """Counted from scratch, with the plainest means."""
        limited = {space for space, total in self.totals.items() if total is not None}
        assert {space for space, _ in self.fleet.limited_namespaces()} == limited
        for space, account in self.fleet.limited_namespaces():
            assert account.used == self._sums(space)
            assert account.total == self.totals[space]

    def _grants(self) -> list[grants.Grant]:
        return sorted(self.fleet.all_grants(), key=lambda grant: grant.pod.uid)

    def _sums(self, space: str) -> totals.Sums:
        takings = [
            taking
            for grant in self._grants()
            if grant.pod.namespace == space
            for taking in grants.takings(grant).values()
        ]
        memory_mib = sum(taking.memory_mib for taking in takings)
        return totals.Sums(len(takings), memory_mib, sum(t.compute_percent for t in takings))

    def _assert_within(self, space: str, decided: grants.Grant) -> None:
        total, sums = self.totals.get(space), self._sums(space)
        takings = grants.takings(decided).values()
        if total is None:
            return
        assert total.cards is None or sums.cards <= total.cards
        for most, has, adds in (
            (total.memory_mib, sums.memory_mib, sum(t.memory_mib for t in takings)),
            (total.compute_percent, sums.compute_percent, sum(t.compute_percent for t in takings)),
        ):
            assert most is None or not adds or has <= most


TotalsMachine.TestCase.settings = hypothesis.settings(
    max_examples=examples.many(100), stateful_step_count=40, deadline=None
)
TestTotals = TotalsMachine.TestCase
