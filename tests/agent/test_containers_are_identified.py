"""A set of device IDs belongs to one pod, exactly, or to nobody."""

from __future__ import annotations

from typing import Any

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from partage.agent import identity
from partage.core import demands, grants
from partage.dialects import pods
from partage.kubelet import checkpoint, pod_resources
from tests.agent import making

R1, R2 = making.MEMORY, making.CORE
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
    found: list[checkpoint.Holding], resource: str, ids: frozenset[str]
) -> None:
    """Not a part of it, nor more, nor the same IDs of another resource; one claim for each pod."""
    claims = identity.held(found, resource, sorted(ids))

    wanted = [(h.pod_uid, h.container) for h in found if (h.resource, h.ids) == (resource, ids)]
    assert sorted(pairs(claims)) == sorted(wanted)
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
    found: list[pod_resources.Listed], resource: str, ids: frozenset[str], known: frozenset[str]
) -> None:
    """By names; pods that we do not know are nobody's claim."""

    def uid_of(namespace: str, name: str) -> str:
        return f"uid-{namespace}-{name}" if name in known else ""

    claims = identity.listed(found, resource, ids, uid_of)

    wanted = [
        (f"uid-lab-{each.pod}", each.container)
        for each in found
        if (each.resource, each.ids) == (resource, ids) and each.pod in known
    ]
    assert sorted(pairs(claims)) == sorted(wanted)


@hypothesis.given(st.frozensets(NAMES), st.frozensets(NAMES), st.frozensets(NAMES))
def test_one_living_pod_or_none(
    claiming: frozenset[str], known: frozenset[str], over: frozenset[str]
) -> None:
    """The claim of the only pod that lives; anything else is refused."""
    claims = [identity.Claim(f"uid-{name}", ("main",)) for name in sorted(claiming)]
    made = {name: making.unplaced(name, {R1: 1}) for name in known}
    there = {
        pod.metadata.uid: making.ended(pod) if name in over else pod for name, pod in made.items()
    }
    living = [c for c in claims if c.uid in {f"uid-{name}" for name in known - over}]

    if len(living) == 1:
        assert identity.only(claims, there) == living[0]
    else:
        with pytest.raises(identity.Unidentified):
            identity.only(claims, there)


def test_two_living_pods_with_one_set_are_named() -> None:
    """Whoever reads the event must know which pods to look at, and what to do."""
    there = {f"uid-{name}": making.unplaced(name, {R1: 1}) for name in ("a", "b", "c")}
    claims = [identity.Claim("uid-a", ("main",)), identity.Claim("uid-b", ("main",))]
    with pytest.raises(identity.Unidentified) as caught:
        identity.only(claims, there)

    assert "several pods (pod lab/a, pod lab/b)" in caught.value.what
    assert caught.value.instead == "delete all but one of them"


def test_a_pod_that_is_being_deleted_still_counts() -> None:
    """It runs on through its grace period; only what has ended is over."""
    pod = making.unplaced("a", {R1: 1})
    going = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    claim = identity.Claim("uid-a", ("main",))
    assert identity.only([claim], {"uid-a": pods.Pod(going, pod.spec)}) == claim


def granted(*containers: grants.ContainerGrant) -> grants.Grant:
    """A grant of these containers."""
    return grants.Grant(pod=grants.Pod("uid-a"), node=making.NODE, containers=containers)


def init(name: str = "prepare", *shares: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What an init container was granted."""
    given = shares or (making.share(),)
    return grants.ContainerGrant(name=name, shares=given, role=demands.Role.INIT, **more)


def app(name: str = "main", *shares: grants.Share, **more: Any) -> grants.ContainerGrant:
    """What an app was granted."""
    return grants.ContainerGrant(name=name, shares=shares or (making.share(),), **more)


TWINS = identity.Claim("uid-a", ("prepare", "main"))


def test_twins_that_were_granted_the_same_need_not_be_told_apart() -> None:
    """Name, role and the fence of before make no difference to what is put into a container."""
    grant = granted(init(fence="hook"), app())
    assert identity.candidates(TWINS, grant) == [grant.containers[1]]


@pytest.mark.parametrize(
    "other",
    [
        app("main", making.share(1)),
        app("main", making.share(0, 2048)),
        app("main", making.share(0), making.share(1)),
        app("main", making.share(0, compute_percent=5)),
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
    grant = granted(init(), app(), app("second", making.share(1)))
    claim = identity.Claim("uid-a", ("second",))
    assert [each.name for each in identity.candidates(claim, grant)] == ["second"]


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
CANDIDATES = [init(), app("main", making.share(1))]


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
    found = identity.turn(CANDIDATES, statuses, last)
    assert (found.name if found else None) == turn


def test_init_containers_take_turns() -> None:
    """The second starts when the first has ended, and not before."""
    second = init("second", making.share(1))
    order = [init(), second, app()]
    assert identity.turn(order, DONE, "prepare") == second
    assert identity.turn(order, DONE | status("second", state={"running": {}}), "prepare") is None
    done = DONE | status("second", state={"terminated": {"exitCode": 0}})
    assert identity.turn(order, done, "second") == app()
