"""Hypothesis strategies for cards, nodes and demands, small enough for collisions to happen."""

from __future__ import annotations

from hypothesis import strategies as st

from partage.core import cards, demands

MODELS = ("A30", "T4")
_MODE_B = frozenset({"mode/b"})


@st.composite
def nodes(draw: st.DrawFn, name: str = "n0", *, fewest_cards: int = 0) -> cards.Node:
    """A node with cards of different sizes, models, health and limits."""
    count = draw(st.integers(fewest_cards, 4))
    return cards.Node(
        name=name,
        cards=tuple(draw(_cards(f"{name}/{i}", i)) for i in range(count)),
        traits=draw(st.sampled_from([frozenset(), frozenset(), frozenset({"mode/a"}), _MODE_B])),
        cards_by=draw(st.sampled_from(["", "spread"])),
        free_cpu_milli=draw(st.none() | st.integers(0, 64000)),
        cordons=draw(st.sampled_from([{}, {}, {}, {f"{name}/0": "fan"}])),
    )


@st.composite
def _cards(draw: st.DrawFn, uuid: str, index: int) -> cards.Card:
    return cards.Card(
        uuid=uuid,
        index=index,
        memory_mib=draw(st.sampled_from([10, 24, 24])),
        model=draw(st.sampled_from(MODELS)),
        healthy=draw(st.integers(0, 9)) != 0,
        max_tenants=draw(st.sampled_from([2, 5, 1024, 1024])),
        foreign_memory_mib=draw(st.sampled_from([0, 0, 0, 5])),
        foreign_compute_percent=draw(st.sampled_from([0, 0, 0, 30])),
    )


@st.composite
def container_demands(draw: st.DrawFn, *, cards_each: int | None = None) -> demands.Demand:
    """What one container may ask for."""
    count = draw(st.sampled_from([1, 1, 1, 1, 2, demands.ALL_CARDS]))
    count = count if cards_each is None else cards_each
    kind = draw(st.sampled_from(["mib", "mib", "mib", "percent", "compute", "whole"]))
    models = draw(st.sampled_from([(), (), (), ("a30",), ("t*", "A30")]))
    compute = draw(st.sampled_from([0, 0, 20, 55]))
    if kind == "whole" and cards_each is None:
        return demands.Demand(cards=count, exclusive=demands.Exclusive.CARD, models=models)
    if kind == "percent":
        return demands.Demand(
            cards=count, memory_percent=draw(st.integers(1, 60)), compute_percent=compute
        )
    if kind == "compute":
        return demands.Demand(cards=count, compute_percent=draw(st.integers(1, 100)))
    return demands.Demand(
        cards=count,
        memory_mib=draw(st.integers(1, 8)),
        compute_percent=compute,
        max_tenants=draw(st.sampled_from([0, 0, 2])),
        models=models,
    )


@st.composite
def pods(draw: st.DrawFn) -> demands.PodDemand:
    """A pod of one to three containers, apart or together, sometimes a whole node."""
    if draw(st.integers(0, 14)) == 0:
        whole = demands.Demand(cards=demands.ALL_CARDS, exclusive=demands.Exclusive.NODE)
        return demands.PodDemand(containers=(demands.ContainerDemand("all", whole),))
    together = draw(st.booleans())
    cards_each = draw(st.sampled_from([1, 2])) if together else None
    count = draw(st.sampled_from([1, 1, 2, 3]))
    roles = [draw(st.sampled_from(list(demands.Role))) for _ in range(count)]
    containers = tuple(
        demands.ContainerDemand(f"c{i}", draw(container_demands(cards_each=cards_each)), roles[i])
        for i in range(count)
    )
    return demands.PodDemand(
        containers=containers,
        together=together,
        qos=draw(st.sampled_from(list(demands.Qos))),
        refused_by=draw(st.sampled_from([(), ("mode/a",)])),
        tag=draw(st.sampled_from(["", "tag"])),
        apart_from=draw(st.sampled_from([(), (("mode/b", "tag"),)])),
        spread_group=draw(st.sampled_from(["", "", "lab/a", "lab/b"])),
        cpu_milli=draw(st.sampled_from([0, 4000])),
    )
