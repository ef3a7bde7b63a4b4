"""The time of a card is divided as the node's policy says, exactly, and nobody is left without."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.agent.containers import card_time
from partage.agent.containers.card_time import ClassRule, Tenant
from partage.core import demands
from partage.dialects import compute_policies
from partage.dialects.compute_policies import OfContainer, OfNode, Policy
from partage.fence.store import layout, limits
from partage.fence.store.limits import Mode

PERCENT = limits.MILLIONTHS_PER_PERCENT
ONLINE, OFFLINE = demands.Qos.ONLINE, demands.Qos.OFFLINE
FIXED, BURST = demands.ComputeMode.FIXED, demands.ComputeMode.BURST


def tenants(*percents: int, policy: Policy | None = None, **more: object) -> list[Tenant]:
    """Tenants with these shares, held to them unless a policy says otherwise."""
    facts: dict[str, object] = {"mode": FIXED, "policy": policy, **more}
    return [
        Tenant(name=f"no-{i}", seat=i, percent=percent, **facts)  # type: ignore[arg-type]
        for i, percent in enumerate(percents)
    ]


def divided(these: list[Tenant], **node: object) -> list[limits.Time]:
    """How they are limited, in their order."""
    times = card_time.rates(these, OfNode(**node))  # type: ignore[arg-type]
    return [times[tenant.name] for tenant in these]


def fixed(*millionths: int) -> list[limits.Time]:
    """Tenants that never get more than this."""
    return [limits.Time(mode=Mode.FIXED, share_millionths=share) for share in millionths]


class TestPolicies:
    """Each does what it says."""

    def test_without_a_policy_each_is_held_as_it_asks(self) -> None:
        """No share is no limit, and not even counted."""
        assert divided(tenants(30, 0)) == [*fixed(300_000), limits.Time()]

    def test_a_ceiling_is_kept(self) -> None:
        """Gaia's soft limit."""
        [time] = divided(tenants(30, mode=BURST, ceiling_percent=60))
        assert time == limits.Time(
            mode=Mode.BURST, share_millionths=300_000, ceiling_millionths=600_000
        )

    def test_best_effort_ignores_shares(self) -> None:
        """And counts."""
        time = limits.Time(mode=Mode.BEST_EFFORT)
        assert divided(tenants(30, 0, policy=Policy.BEST_EFFORT)) == [time, time]

    def test_fixed_ignores_ceilings(self) -> None:
        """Whoever was granted no share is not limited."""
        times = divided(tenants(30, 0, policy=Policy.FIXED, mode=BURST, ceiling_percent=60))
        assert times == [*fixed(300_000), limits.Time(mode=Mode.BEST_EFFORT)]

    @pytest.mark.parametrize(("ceiling", "most"), [(0, 1_000_000), (60, 600_000)])
    def test_burst_goes_up_to_the_ceiling(self, ceiling: int, most: int) -> None:
        """To the whole card, if the container says nothing."""
        [time] = divided(tenants(30, policy=Policy.BURST, ceiling_percent=ceiling))
        assert (time.mode, time.share_millionths, time.ceiling_millionths) == (
            Mode.BURST,
            300_000,
            most,
        )

    def test_equal_is_one_of_as_many_as_there_are(self) -> None:
        """Whatever they were granted."""
        assert divided(tenants(0, policy=Policy.EQUAL)) == fixed(1_000_000)
        assert divided(tenants(0, 80, 0, policy=Policy.EQUAL)) == fixed(333_333, 333_333, 333_333)

    def test_slots_have_one_size(self) -> None:
        """Also for a tenant that is alone; smaller only where there are more tenants than slots."""
        assert divided(tenants(0, policy=Policy.SLOTS), slots=8) == fixed(125_000)
        assert divided(tenants(*[0] * 10, policy=Policy.SLOTS), slots=8) == fixed(*[100_000] * 10)

    def test_weights(self) -> None:
        """1 : 2 is a third and two thirds."""
        one, two = tenants(0, 0, policy=Policy.WEIGHTED)
        heavy = Tenant(name=two.name, seat=1, policy=Policy.WEIGHTED, weight=2)
        assert divided([one, heavy]) == fixed(333_333, 666_666)

    def test_tenants_of_one_card_may_have_different_policies(self) -> None:
        """By their classes; those that divide count all."""
        free = Tenant(name="free", seat=9, policy=Policy.BEST_EFFORT)
        times = divided([*tenants(0, policy=Policy.EQUAL), free])
        assert times == [*fixed(500_000), limits.Time(mode=Mode.BEST_EFFORT)]


class TestOnlineBeforeOffline:
    """Offline tenants yield to the seats of online ones."""

    def test_offline_names_the_seats_that_go_first(self) -> None:
        """Both are counted, or the one could not see the other."""
        times = divided([*tenants(0, qos=ONLINE), Tenant(name="batch", seat=4, qos=OFFLINE)])
        assert times == [
            limits.Time(mode=Mode.BEST_EFFORT),
            limits.Time(mode=Mode.BEST_EFFORT, yields_to=frozenset({0})),
        ]

    @pytest.mark.parametrize("qos", [ONLINE, OFFLINE])
    def test_without_the_other_class_nothing_changes(self, qos: demands.Qos) -> None:
        """Nobody pays for what is not needed."""
        normal = Tenant(name="normal", seat=7)
        assert divided([*tenants(0, 0, qos=qos), normal]) == [limits.Time()] * 3

    def test_normal_tenants_yield_to_nobody(self) -> None:
        """They did not say that they can wait."""
        batch, normal = Tenant(name="batch", seat=4, qos=OFFLINE), Tenant(name="normal", seat=5)
        times = divided([*tenants(0, qos=ONLINE), batch, normal])
        assert times[2] == limits.Time()

    def test_the_policy_holds_besides(self) -> None:
        """An offline tenant with a share has that share of the time that is left to it."""
        batch = Tenant(name="batch", seat=1, qos=OFFLINE, percent=40, mode=FIXED)
        times = divided([*tenants(0, qos=ONLINE), batch])
        assert (times[1].mode, times[1].share_millionths) == (Mode.FIXED, 400_000)

    def test_online_is_no_way_around_the_policy(self) -> None:
        """Everybody can call a pod online."""
        [time, _] = divided(tenants(0, 0, policy=Policy.EQUAL, qos=ONLINE))
        assert time == fixed(500_000)[0]

    def test_seats_far_behind_share_a_place(self) -> None:
        """There are 32 places and 256 seats."""
        far = Tenant(name="far", seat=200, qos=ONLINE)
        batch = Tenant(name="batch", seat=0, qos=OFFLINE)
        assert divided([far, batch])[1].yields_to == {31}


class TestHighPriority:
    """cGPU's: up to a part of the card, and nothing of it while it is idle."""

    def test_it_has_its_part_and_the_others_what_is_left(self) -> None:
        """They may have all of their own share while it is idle."""
        high = Tenant(name="high", seat=9, high_priority=True)
        times = divided([*tenants(0, policy=Policy.EQUAL), high], priority_percent=70)
        assert times == [
            limits.Time(mode=Mode.BURST, share_millionths=300_000, ceiling_millionths=layout.WHOLE),
            *fixed(700_000),
        ]

    def test_several_share_that_part(self) -> None:
        """It is a part of the card, not of each."""
        high = tenants(0, 0, high_priority=True)
        assert divided(high, priority_percent=70) == fixed(350_000, 350_000)

    def test_it_counts_only_where_the_administrator_set_a_part_aside(self) -> None:
        """The variable is the pod's own."""
        [tenant] = tenants(0)
        said = OfContainer(high_priority=True)
        assert not card_time.ruled(tenant, OfNode(), ClassRule(), said).high_priority
        node = OfNode(priority_percent=50)
        assert card_time.ruled(tenant, node, ClassRule(), said).high_priority


class TestWhoseWordCounts:
    """The class before the node; the pod's own only where it is tighter."""

    @pytest.mark.parametrize(
        ("node", "of_class", "of_pod", "held"),
        [
            (None, None, None, None),
            (Policy.EQUAL, None, None, Policy.EQUAL),
            (Policy.EQUAL, Policy.BEST_EFFORT, None, Policy.BEST_EFFORT),
            (Policy.BEST_EFFORT, None, Policy.FIXED, Policy.FIXED),
            (Policy.BURST, None, Policy.FIXED, Policy.FIXED),
            (Policy.FIXED, None, Policy.BURST, Policy.FIXED),
            (Policy.EQUAL, None, Policy.FIXED, Policy.EQUAL),
            (None, None, Policy.BURST, None),  # it is fixed by its own request
            (None, Policy.FIXED, Policy.BURST, Policy.FIXED),
        ],
    )
    def test_the_policy(
        self,
        node: Policy | None,
        of_class: Policy | None,
        of_pod: Policy | None,
        held: Policy | None,
    ) -> None:
        """A pod never gets more time by its own word."""
        [tenant] = tenants(30)
        ruled = card_time.ruled(
            tenant, OfNode(policy=node), ClassRule(policy=of_class), OfContainer(policy=of_pod)
        )
        assert ruled.policy == held

    def test_the_weight_and_the_quality_of_a_class(self) -> None:
        """They replace the pod's."""
        [tenant] = tenants(30)
        rule = ClassRule(qos=OFFLINE, weight=2)
        ruled = card_time.ruled(tenant, OfNode(), rule, OfContainer(weight=25))
        assert (ruled.qos, ruled.weight) == (OFFLINE, 2)


DIVIDING = (Policy.EQUAL, Policy.SLOTS, Policy.WEIGHTED)


@st.composite
def crowds(draw: st.DrawFn) -> list[Tenant]:
    """Up to as many tenants as a card can have, under one policy that divides."""
    policy = draw(st.sampled_from(DIVIDING))
    weights = draw(st.lists(st.integers(1, compute_policies.WEIGHTS.most), max_size=layout.SEATS))
    return [
        Tenant(name=str(i), seat=i, policy=policy, weight=weight)
        for i, weight in enumerate(weights)
    ]


@given(crowds(), st.integers(1, 25))
def test_never_more_than_the_card_and_nobody_without(crowd: list[Tenant], slots: int) -> None:
    """To the millionth; and never less than the fence can hold."""
    times = divided(crowd, slots=slots)
    assert sum(time.share_millionths for time in times) <= layout.WHOLE
    assert all(time.share_millionths >= card_time.LEAST_MILLIONTHS for time in times)


@given(st.lists(st.integers(1, 25), min_size=1, max_size=39))
def test_weights_are_exact_to_the_millionth(weights: list[int]) -> None:
    """As long as nobody is below the least part."""
    crowd = [
        Tenant(name=str(i), seat=i, policy=Policy.WEIGHTED, weight=weight)
        for i, weight in enumerate(weights)
    ]
    for tenant, time in zip(crowd, divided(crowd), strict=True):
        assert time.share_millionths == layout.WHOLE * tenant.weight // sum(weights)


@given(crowds(), st.integers(20, 99))
def test_high_priority_leaves_everybody_something(crowd: list[Tenant], percent: int) -> None:
    """All that is guaranteed is no more than the card, but for the least parts."""
    high = Tenant(name="high", seat=0, high_priority=True)
    times = divided([*crowd, high], priority_percent=percent)
    least = card_time.LEAST_MILLIONTHS * len(crowd)
    assert sum(time.share_millionths for time in times) <= layout.WHOLE + least
    assert all(time.share_millionths >= card_time.LEAST_MILLIONTHS for time in times)
