"""A grant is let in exactly if its cards have room beside what runs there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import hypothesis
from hypothesis import strategies as st

from partage.agent.containers import compatibility
from partage.core import cards, grants
from partage.core.demands import Role
from tests.agent import agent_node

CARDS = range(3)  # the last is sometimes not there


@st.composite
def granted(draw: st.DrawFn, uid: str = "uid-new") -> grants.Grant:
    """A pod of up to three containers, each with a share of up to two cards."""
    containers = [
        grants.ContainerGrant(
            name=f"c{number}",
            role=draw(st.sampled_from(list(Role))),
            shares=tuple(
                agent_node.share(
                    index, draw(st.integers(0, 6)), exclusive=draw(st.integers(0, 7)) == 0
                )
                for index in draw(st.sets(st.sampled_from(CARDS), min_size=1, max_size=2))
            ),
        )
        for number in range(draw(st.integers(1, 3)))
    ]
    return grants.Grant(pod=grants.Pod(uid), node="n", containers=tuple(containers))


def moments(grant: grants.Grant) -> Iterator[list[grants.ContainerGrant]]:
    """Which containers run beside each other, by walking through the life of the pod."""
    sidecars: list[grants.ContainerGrant] = []
    for container in grant.containers:
        if container.role is Role.INIT:
            yield [*sidecars, container]
        elif container.role is Role.SIDECAR:
            sidecars.append(container)
    yield [c for c in grant.containers if c.role is not Role.INIT]


def most_mib(grant: grants.Grant, uuid: str) -> int:
    """What a pod has on a card at its worst moment."""
    return max(
        sum(share.memory_mib for c in running for share in c.shares if share.uuid == uuid)
        for running in moments(grant)
    )


def on_card(grant: grants.Grant, uuid: str) -> list[grants.Share]:
    """All shares of a card."""
    return [share for c in grant.containers for share in c.shares if share.uuid == uuid]


def fits(grant: grants.Grant, others: Sequence[grants.Grant], sizes: dict[str, int]) -> bool:
    """Whether each of the grant's cards is there, has the memory, and is shared by all on it."""
    for uuid in {share.uuid for c in grant.containers for share in c.shares}:
        on_it = [other for other in (grant, *others) if on_card(other, uuid)]
        alone = any(share.exclusive for other in on_it for share in on_card(other, uuid))
        sum_mib = sum(most_mib(other, uuid) for other in on_it)
        if uuid not in sizes or sum_mib > sizes[uuid] or (alone and len(on_it) > 1):
            return False
    return True


@hypothesis.settings(max_examples=400)
@hypothesis.given(
    granted(),
    st.lists(granted("uid-old"), max_size=3),
    st.lists(st.integers(1, 14), min_size=2, max_size=3),
)
def test_a_grant_is_refused_exactly_if_it_does_not_fit(
    grant: grants.Grant, others: list[grants.Grant], sizes_mib: list[int]
) -> None:
    """No card is promised twice, and nothing that fits is refused."""
    node = cards.Node(
        name="n",
        cards=tuple(
            cards.Card(uuid=agent_node.uuid(i), index=i, memory_mib=size)
            for i, size in enumerate(sizes_mib)
        ),
    )
    problem = compatibility.conflict(grant, iter(others), node)

    sizes = {agent_node.uuid(i): size for i, size in enumerate(sizes_mib)}
    assert (problem == "") == fits(grant, others, sizes)


def one(index: int, memory_mib: int, **more: bool) -> grants.Grant:
    """A grant of one container."""
    container = grants.ContainerGrant(
        name="c", shares=(agent_node.share(index, memory_mib, **more),)
    )
    return grants.Grant(pod=grants.Pod("uid"), node=agent_node.NODE, containers=(container,))


def test_the_reason_names_the_card_and_the_numbers() -> None:
    """Whoever reads the pod's event can see what is wrong."""
    node = agent_node.facts(4096).node
    problem = compatibility.conflict(one(0, 3000), [one(0, 1000), one(0, 97)], node)
    assert problem == (
        f"card {agent_node.uuid(0)}: 3000 MiB are granted in addition to 1097 MiB of running pods, "
        "but the card has 4096 MiB"
    )
    problem = compatibility.conflict(one(0, 1), [one(0, 1, exclusive=True)], node)
    assert problem.startswith(f"card {agent_node.uuid(0)}: one of its pods has exclusive use of it")
    assert (
        compatibility.conflict(one(7, 1), [], node)
        == f"node gpu-1 has no card {agent_node.uuid(7)}"
    )


def by_claim(uid: str, name: str, memory_mib: int) -> grants.Grant:
    """What one container of a pod has of the first card by an ElasticGPU."""
    container = grants.ContainerGrant(
        name="c", shares=(agent_node.share(0, memory_mib),), elastic_gpu=name
    )
    return grants.Grant(pod=grants.Pod(uid), node=agent_node.NODE, containers=(container,))


@hypothesis.given(
    st.lists(st.sampled_from("abc"), min_size=1, max_size=5),
    st.fixed_dictionaries({name: st.integers(1, 6) for name in "abc"}),
    st.integers(0, 6),
)
def test_what_a_claim_has_counts_once_however_many_pods_use_it(
    users: list[str], sizes_mib: dict[str, int], plain_mib: int
) -> None:
    """The last pod fits exactly if all ElasticGPUs in use fit beside each other and the rest."""
    node = agent_node.facts(10).node
    *others, last = [by_claim(f"uid-{i}", n, sizes_mib[n]) for i, n in enumerate(users)]
    problem = compatibility.conflict(last, [*others, one(0, plain_mib)], node)
    in_use_mib = sum(sizes_mib[name] for name in set(users)) + plain_mib
    assert (problem == "") == (in_use_mib <= 10)
