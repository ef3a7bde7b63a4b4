"""Containers: together or apart, and not all at the same time."""

from __future__ import annotations

import itertools

from hypothesis import given, settings

from partage.core import cards, demands, grants, refusals
from partage.core.placement import arrangement, fitting, plans
from partage.core.placement.rooms import NodeState, Room
from partage.core.policies import binpack
from tests import strategies
from tests.core.small_fleets import GIB, fleet_of, grant, node, places, pod, share, whole

APP, INIT, SIDECAR = demands.Role.APP, demands.Role.INIT, demands.Role.SIDECAR


def _pod(*parts: tuple[demands.Role, demands.Demand], **terms: object) -> demands.PodDemand:
    containers = tuple(
        demands.ContainerDemand(f"c{i}", demand, role) for i, (role, demand) in enumerate(parts)
    )
    return demands.PodDemand(containers=containers, **terms)  # type: ignore[arg-type]


def test_containers_together_need_their_sum_on_one_card() -> None:
    """gpushare puts the whole pod on one card."""
    fleet = fleet_of(node("n0", 8, 8))

    assert fleet.best(pod(share(5), share(5), together=True)) == []
    assert places(grant(fleet, "a", pod(share(5), share(3), together=True))) == [[0], [0]]


def test_containers_apart_may_be_on_two_cards() -> None:
    """What does not fit on one card fits on two."""
    granted = grant(fleet_of(node("n0", 8, 8)), "a", pod(share(5), share(5)))

    assert sorted(places(granted)) == [[0], [1]]


def test_an_arrangement_is_found_where_the_first_idea_fails() -> None:
    """5+3 and 4+4 fill two cards of 8; filling greedily in the order of the pod would not."""
    demand = pod(share(4), share(3), share(5), share(4))

    granted = grant(fleet_of(node("n0", 8, 8)), "a", demand)

    sums = [0, 0]
    for container in granted.containers:
        sums[container.shares[0].index] += container.shares[0].memory_mib
    assert sums == [8, 8]


def test_init_containers_use_the_room_of_the_apps_after_them() -> None:
    """One init at a time, or all apps: the larger counts."""
    fleet = fleet_of(node("n0", 10))
    demand = _pod((INIT, share(9)), (INIT, share(8)), (APP, share(4)), (APP, share(5)))

    grant(fleet, "a", demand)

    assert fleet.best(pod(share(1))) == ["n0"]
    assert fleet.best(pod(share(2))) == []


def test_sidecars_run_beside_the_apps_and_later_inits() -> None:
    """A sidecar adds to the sum, and to the init containers after it, not to those before."""
    fleet = fleet_of(node("n0", 10))

    assert fleet.best(_pod((INIT, share(10)), (SIDECAR, share(3)), (APP, share(7)))) == ["n0"]
    assert fleet.best(_pod((SIDECAR, share(3)), (INIT, share(8)), (APP, share(1)))) == []
    assert fleet.best(_pod((INIT, share(1)), (SIDECAR, share(3)), (APP, share(8)))) == []


def test_a_whole_card_for_the_init_container_serves_the_app_too() -> None:
    """They are never there at the same time."""
    demand = _pod((INIT, whole()), (APP, whole()))

    assert places(grant(fleet_of(node("n0", 4)), "a", demand)) == [[0], [0]]


def test_a_share_that_rounds_to_nothing_is_not_put_on_a_card_taken_whole() -> None:
    """One percent of ten MiB needs no memory, but a card of its own is a card of its own."""
    demand = pod(whole(), demands.Demand(memory_percent=1))

    assert fleet_of(node("n0", 10)).best(demand) == []
    assert fleet_of(node("n0", 10, 10)).best(demand) == ["n0"]


def test_init_containers_together_with_apps_count_as_the_larger() -> None:
    """The rule holds for pods on one card as well."""
    fleet = fleet_of(node("n0", 10))
    demand = _pod((INIT, share(8)), (APP, share(4)), (APP, share(4)), together=True)
    grant(fleet, "a", demand)

    assert fleet.best(pod(share(2))) == ["n0"]
    assert fleet.best(pod(share(3))) == []


def test_an_overfull_card_does_not_keep_containers_from_the_others() -> None:
    """Its lack is its own, not the node's."""
    full = cards.Card(uuid="a", index=0, memory_mib=10, foreign_memory_mib=30)
    free = cards.Card(uuid="b", index=1, memory_mib=10)
    fleet = fleet_of(cards.Node(name="n0", cards=(full, free)))

    assert fleet.best(pod(share(4), share(4))) == ["n0"]


def test_few_candidates_are_served_first() -> None:
    """One card alone has time left, and six cards have to be found beside it."""
    fleet = fleet_of(
        cards.Node(
            name="n0",
            cards=(
                *(
                    cards.Card(uuid=f"g{i}", index=i, memory_mib=80, foreign_memory_mib=55 - i)
                    for i in range(6)
                ),
                cards.Card(uuid="g6", index=6, memory_mib=80, foreign_compute_percent=90),
            ),
        )
    )

    assert fleet.best(pod(share(20), share(10, cards=6, compute_percent=50))) == ["n0"]


def test_who_takes_no_memory_stands_beside_a_container_that_takes_all_of_it() -> None:
    """Full is a card that strangers fill; what a pod does with its own is its own affair."""
    demand = pod(share(GIB), demands.Demand(compute_percent=30))
    fleet = fleet_of(node("n0", GIB))

    assert places(grant(fleet, "a", demand)) == [[0], [0]]
    assert fleet.best(demand) == []


def test_many_equal_containers_are_no_search() -> None:
    """However many there are, each is found at once; but there is a limit to how many."""
    fleet = fleet_of(node("n0", *[100] * 8))

    assert fleet.best(pod(*[share(1)] * arrangement.MOST_SLOTS)) == ["n0"]
    too_many = pod(*[share(1)] * (arrangement.MOST_SLOTS + 1))
    assert fleet.best(too_many) == []
    (refused,) = fleet.refuse(too_many)
    assert refused.code is refusals.Code.NOT_FOUND


def test_a_pod_made_to_be_searched_for_ever_is_given_up() -> None:
    """Dozens of unequal containers that almost fit end in a refusal, soon."""
    demand = pod(*(share(50 + i) for i in range(24)))
    fleet = fleet_of(node("n0", *[184] * 8))

    assert fleet.best(demand) == []


@settings(max_examples=300, deadline=None)
@given(strategies.nodes(fewest_cards=1), strategies.pods())
def test_a_pod_is_placed_if_and_only_if_an_arrangement_exists(
    where: cards.Node, demand: demands.PodDemand
) -> None:
    """Trying every arrangement comes to the same verdict."""
    state = NodeState(where)
    chosen = fitting.place(state, plans.Plan(demand), binpack.Binpack())

    assert (chosen is not None) == _possible(state, demand)


def _possible(state: NodeState, demand: demands.PodDemand) -> bool:
    if any(trait in state.node.traits for trait in demand.refused_by):
        return False
    count = len(state.rooms)
    ways = []
    for container in demand.containers:
        cards_needed = container.demand.cards or count
        ways.append(list(itertools.combinations(range(count), cards_needed)))
    return any(
        _works(state, demand, chosen)
        for chosen in itertools.product(*ways)
        if not demand.together or len(set(chosen)) == 1
    )


def _works(
    state: NodeState, demand: demands.PodDemand, chosen: tuple[tuple[int, ...], ...]
) -> bool:
    accepted = all(
        plans.model_accepted(container.demand, state.rooms[i].card.model)
        for container, positions in zip(demand.containers, chosen, strict=True)
        for i in positions
    )
    decided = fitting.grant(state, demand, chosen, pod=grants.Pod("x"), policy="")
    by_uuid = {room.card.uuid: room for room in state.rooms}
    return (
        accepted
        and all(
            uuid not in state.node.cordons and _holds(by_uuid[uuid], taking, demand)
            for uuid, taking in grants.takings(decided).items()
        )
        and _alone(demand, decided)
    )


def _holds(room: Room, taking: grants.Taking, demand: demands.PodDemand) -> bool:
    card = room.card
    foreign = card.foreign_memory_mib or card.foreign_compute_percent
    busy = 0 if demand.qos is demands.Qos.OFFLINE else card.foreign_compute_percent
    caps = [c.demand.max_tenants for c in demand.containers if c.demand.max_tenants]
    limits = [card.max_tenants, *caps]
    return (
        card.healthy
        and max(1, taking.memory_mib) + card.foreign_memory_mib <= card.memory_mib
        and taking.compute_percent + busy <= 100
        and taking.tenants <= min(limits)
        and not (taking.exclusive and foreign)
    )


def _alone(demand: demands.PodDemand, decided: grants.Grant) -> bool:
    """A container with a whole card shares it with no container that runs at the same time."""
    for moment in grants.moments([c.role for c in decided.containers]):
        shares = [s for i in moment for s in decided.containers[i].shares]
        for share_ in shares:
            if share_.exclusive and sum(s.uuid == share_.uuid for s in shares) > 1:
                return False
    return True
