"""A set of device IDs belongs to one pod, exactly, or to nobody."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.agent.pods import identity
from partage.core import demands, grants
from partage.dialects import pods
from partage.kubelet import checkpoint, pod_resources
from tests.agent import agent_node

R1, R2 = agent_node.MEMORY, agent_node.CORE
IDS = st.frozensets(st.sampled_from(["p0", "p1", "p2"]))
NAMES = st.sampled_from(["a", "b", "c"])
Claims = tuple[identity.Claim, ...]


def pairs(claims: Claims) -> list[tuple[str, str]]:
    """Claims taken apart."""
    return [(claim.uid, container) for claim in claims for container in claim.containers]


@hypothesis.given(
    st.lists(
        st.builds(checkpoint.Holding, NAMES, NAMES, st.sampled_from([R1, R2]), IDS), unique=True
    ),
    st.sampled_from([R1, R2]),
    IDS,
)
def test_only_the_very_set_of_ids_matches(
    holdings: list[checkpoint.Holding], resource: str, ids: frozenset[str]
) -> None:
    """Not a part of it, nor more, nor the same IDs of another resource; one claim for each pod."""
    claims = identity.held(holdings, resource, sorted(ids))

    expected = [
        (h.pod_uid, h.container) for h in holdings if (h.resource, h.ids) == (resource, ids)
    ]
    assert sorted(pairs(claims)) == sorted(expected)
    assert len({claim.uid for claim in claims}) == len(claims)


@hypothesis.given(
    st.lists(
        st.builds(
            pod_resources.Listed,
            st.just("lab"),
            NAMES,
            NAMES,
            st.sampled_from([R1, R2]),
            IDS,
        ),
        unique=True,
    ),
    st.sampled_from([R1, R2]),
    IDS,
    st.frozensets(NAMES),
)
def test_what_the_kubelet_lists_is_matched_the_same_way(
    entries: list[pod_resources.Listed],
    resource: str,
    ids: frozenset[str],
    known_names: frozenset[str],
) -> None:
    """By names; pods that we do not know are nobody's claim."""

    def uid_of(namespace: str, name: str) -> str:
        return f"uid-{namespace}-{name}" if name in known_names else ""

    claims = identity.listed(entries, resource, ids, uid_of)

    expected = [
        (f"uid-lab-{listed.pod}", listed.container)
        for listed in entries
        if (listed.resource, listed.ids) == (resource, ids) and listed.pod in known_names
    ]
    assert sorted(pairs(claims)) == sorted(expected)


@hypothesis.given(st.frozensets(NAMES), st.frozensets(NAMES), st.frozensets(NAMES))
def test_one_living_pod_or_none(
    claiming: frozenset[str], pod_names: frozenset[str], over: frozenset[str]
) -> None:
    """The claim of the only pod that lives; anything else is refused."""
    claims = [identity.Claim(f"uid-{name}", ("main",)) for name in sorted(claiming)]
    made = {name: agent_node.unplaced(name, {R1: 1}) for name in pod_names}
    pods_by_uid = {
        pod.metadata.uid: agent_node.ended(pod) if name in over else pod
        for name, pod in made.items()
    }
    living = [c for c in claims if c.uid in {f"uid-{name}" for name in pod_names - over}]

    if len(living) == 1:
        assert identity.only(claims, pods_by_uid) == living[0]
    else:
        with pytest.raises(identity.Unidentified):
            identity.only(claims, pods_by_uid)


def test_two_living_pods_with_one_set_are_named() -> None:
    """People who read the event must know which pods to look at, and what to do."""
    living = {f"uid-{name}": agent_node.unplaced(name, {R1: 1}) for name in ("a", "b", "c")}
    claims = [identity.Claim("uid-a", ("main",)), identity.Claim("uid-b", ("main",))]
    with pytest.raises(identity.Unidentified) as caught:
        identity.only(claims, living)

    assert "several pods (pod lab/a, pod lab/b)" in caught.value.what
    assert caught.value.instead == "delete all but one of them"


def test_a_pod_that_is_being_deleted_still_counts() -> None:
    """It runs on through its grace period; only what has ended is over."""
    pod = agent_node.unplaced("a", {R1: 1})
    going = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    claim = identity.Claim("uid-a", ("main",))
    assert identity.only([claim], {"uid-a": pods.Pod(going, pod.spec)}) == claim


def granted(*containers: grants.ContainerGrant) -> grants.Grant:
    """A grant of these containers."""
    return grants.Grant(pod=grants.Pod("uid-a"), node=agent_node.NODE, containers=containers)


def init(name: str = "prepare", *shares: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What an init container was granted."""
    given = shares or (agent_node.share(),)
    return grants.ContainerGrant(name=name, shares=given, role=demands.Role.INIT, **more)


def app(name: str = "main", *shares: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What an app was granted."""
    return grants.ContainerGrant(name=name, shares=shares or (agent_node.share(),), **more)


TWINS = identity.Claim("uid-a", ("prepare", "main"))


def test_twins_that_were_granted_the_same_need_not_be_told_apart() -> None:
    """Name, role and the fence of before make no difference to what is put into a container."""
    grant = granted(init(fence="hook"), app())
    assert identity.candidates(TWINS, grant) == [grant.containers[1]]


@pytest.mark.parametrize(
    "other",
    [
        app("main", agent_node.share(1)),
        app("main", agent_node.share(0, 2048)),
        app("main", agent_node.share(0), agent_node.share(1)),
        app("main", agent_node.share(0, compute_percent=5)),
        app("main", compute_ceiling_percent=50),
        app("main", compute_mode=demands.ComputeMode.FIXED),
        app("main", memory_enforced=False),
    ],
    ids=["card", "memory", "cards", "compute", "ceiling", "mode", "enforced"],
)
def test_twins_that_differ_are_candidates_both(other: grants.ContainerGrant) -> None:
    """In the order in which they start."""
    assert identity.candidates(TWINS, granted(init(), other)) == [init(), other]


def test_only_containers_with_the_set_are_candidates() -> None:
    """Others of the pod have other IDs."""
    grant = granted(init(), app(), app("second", agent_node.share(1)))
    claim = identity.Claim("uid-a", ("second",))
    assert [candidate.name for candidate in identity.candidates(claim, grant)] == ["second"]


def test_a_container_that_was_granted_nothing_is_refused() -> None:
    """Its IDs came from a demand that the grant does not have."""
    with pytest.raises(identity.Unidentified, match="nothing for container x or y; delete the pod"):
        identity.candidates(identity.Claim("uid-a", ("x", "y")), granted(app()))


def status(name: str = "prepare", **states: Any) -> dict[str, identity.Status]:
    """What the kubelet said of an init container, as the API server has it."""
    written = {"name": name, **states}
    return {name: msgspec.convert(written, identity.Status)}


WAITS = status(state={"waiting": {"reason": "PodInitializing"}})
RUNS = status(state={"running": {}})
DONE = status(state={"terminated": {"exitCode": 0}})
FAILED = status(state={"terminated": {"exitCode": 1}})
BACKS_OFF = status(state={"waiting": {}}, lastState={"terminated": {"exitCode": 1}})
RUNS_AGAIN = status(state={"running": {}}, lastState={"terminated": {"exitCode": 1}})
CANDIDATES = [init(), app("main", agent_node.share(1))]


@pytest.mark.parametrize(
    ("statuses", "last", "turn"),
    [
        ({}, "", "prepare"),
        (WAITS, "", "prepare"),
        (WAITS, "main", "prepare"),
        (WAITS, "prepare", None),
        (RUNS, "prepare", None),
        (RUNS, "", None),
        (FAILED, "prepare", "prepare"),
        (BACKS_OFF, "prepare", "prepare"),
        (RUNS_AGAIN, "prepare", None),
        (DONE, "prepare", "main"),
        (DONE, "main", "main"),
        (DONE, "", "main"),
    ],
)
def test_whose_turn_it_is_follows_from_what_ran(
    statuses: dict[str, identity.Status], last: str, turn: str | None
) -> None:
    """Init containers run until they end well, and apps after them; old news are no answer."""
    container = identity.starting_now(CANDIDATES, statuses, last)
    assert (container.name if container else None) == turn


def test_init_containers_take_turns() -> None:
    """The second starts when the first has ended, and not before."""
    second = init("second", agent_node.share(1))
    order = [init(), second, app()]
    assert identity.starting_now(order, DONE, "prepare") == second
    assert (
        identity.starting_now(order, DONE | status("second", state={"running": {}}), "prepare")
        is None
    )
    done = DONE | status("second", state={"terminated": {"exitCode": 0}})
    assert identity.starting_now(order, done, "second") == app()
