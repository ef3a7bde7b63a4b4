"""Of several candidates one holds the lease, by client-go's rules."""

from __future__ import annotations

import pytest

from tests.kube import lease_candidates, scripted_server
from tests.kube.lease_candidates import leads

HELD_BY_ANOTHER = {
    "holderIdentity": "another",
    "leaseDurationSeconds": 15,
    "acquireTime": "2020-01-01T00:00:00.000000Z",
    "renewTime": "2020-01-01T00:00:00.000000Z",
    "leaseTransitions": 3,
}


def lease_of(spec: dict[str, object]) -> dict[str, object]:
    """A Lease as the server has it."""
    return {"metadata": {"name": "scheduler", "labels": {"app": "x"}}, "spec": dict(spec)}


async def test_the_first_makes_the_lease(stage: lease_candidates.Stage) -> None:
    """With all that other programs expect in it."""
    async with stage.competing("a") as a:
        assert leads(a)

    assert stage.keeper.stored == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": "gpu-system", "name": "scheduler", "resourceVersion": "1"},
        "spec": {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-05-01T12:00:00.000005Z",
            "renewTime": "2026-05-01T12:00:00.000005Z",
            "leaseTransitions": 0,
        },
    }
    assert [(request.verb, request.path) for request in stage.server.requests] == [
        ("GET", lease_candidates.PATH),
        ("POST", lease_candidates.FOLDER),
    ]


async def test_it_is_renewed_every_other_second(stage: lease_candidates.Stage) -> None:
    """With one request each, and without becoming another's."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        before = len(stage.server.requests)
        await stage.time.pass_s(58.0)
        assert leads(a)
        assert a.term == 1
        assert len(stage.server.requests) - before == 29

    assert stage.keeper.spec["renewTime"] == "2026-05-01T12:01:00.000005Z"
    assert stage.keeper.spec["acquireTime"] == "2026-05-01T12:00:00.000005Z"
    assert stage.keeper.spec["leaseTransitions"] == 0


async def test_others_wait_as_long_as_it_is_renewed(stage: lease_candidates.Stage) -> None:
    """For ever, if need be."""
    async with stage.competing("a") as a, stage.competing("b") as b:
        await stage.time.pass_s(120.0)
        assert leads(a)
        assert not leads(b)


async def test_a_lease_that_is_not_renewed_is_taken_over(stage: lease_candidates.Stage) -> None:
    """When it has been seen unchanged for its whole duration, and not a moment sooner."""
    b = await stage.candidate("b")
    async with stage.competing("a"):
        await stage.time.pass_s(1.0)
        async with stage.running(b):  # sees the record at 1 s, and its renewal at 3 s
            await stage.time.pass_s(2.0)
    async with stage.running(b):
        await stage.time.pass_s(14.9)
        assert not leads(b)
        await stage.time.pass_s(2.0)
        assert leads(b)

    assert stage.keeper.spec["holderIdentity"] == "b"
    assert stage.keeper.spec["leaseTransitions"] == 1
    assert stage.keeper.spec["acquireTime"] == stage.keeper.spec["renewTime"]


async def test_clocks_of_others_do_not_count(stage: lease_candidates.Stage) -> None:
    """A record that says it is years old may be of a holder whose clock is wrong."""
    stage.keeper.store(lease_of(HELD_BY_ANOTHER))
    async with stage.competing("a") as a:
        await stage.time.pass_s(14.0)
        assert not leads(a)
        await stage.time.pass_s(2.0)
        assert leads(a)

    assert stage.keeper.spec["leaseTransitions"] == 4


async def test_a_longer_duration_of_the_holder_counts(stage: lease_candidates.Stage) -> None:
    """The holder relies on what it wrote, not on our settings."""
    stage.keeper.store(lease_of({**HELD_BY_ANOTHER, "leaseDurationSeconds": 60}))
    async with stage.competing("a") as a:
        await stage.time.pass_s(59.0)
        assert not leads(a)
        await stage.time.pass_s(2.0)
        assert leads(a)


@pytest.mark.parametrize("spec", [{}, {"holderIdentity": ""}, {"holderIdentity": None}])
async def test_a_lease_of_nobody_is_taken_at_once(
    stage: lease_candidates.Stage, spec: dict[str, object]
) -> None:
    """However that is written."""
    stage.keeper.store(lease_of(spec))
    async with stage.competing("a") as a:
        assert leads(a)


async def test_a_lease_that_was_given_back_is_given(stage: lease_candidates.Stage) -> None:
    """All work of the holder before is done."""
    stage.keeper.store(lease_of({"holderIdentity": ""}))
    async with stage.competing("a") as a:
        assert a.given


async def test_a_lease_that_was_deleted_is_not_given(stage: lease_candidates.Stage) -> None:
    """Somebody may have led meanwhile, and their work may be under way."""
    stage.keeper.store(lease_of({"holderIdentity": ""}))
    async with stage.competing("a") as a:
        stage.keeper.stored = None
        await stage.time.pass_s(4.0)
        assert leads(a)
        assert not a.given


async def test_a_lease_that_others_gave_back_meanwhile_begins_a_new_term(
    stage: lease_candidates.Stage,
) -> None:
    """Somebody else may have led between two renewals: nothing is taken as read, or as done."""
    async with stage.competing("a") as a:
        assert (a.term, leads(a)) == (1, True)
        stage.keeper.store(lease_of({"holderIdentity": ""}))
        await stage.time.pass_s(2.0)
        assert leads(a)
        assert a.term == 2
        assert not a.given


async def test_a_lease_that_expired_is_not_given(stage: lease_candidates.Stage) -> None:
    """Its holder did not say that its work was done."""
    stage.keeper.store(lease_of(HELD_BY_ANOTHER))
    async with stage.competing("b") as b:
        await stage.time.pass_s(20.0)
        assert leads(b)
        assert not b.given


async def test_what_others_wrote_on_it_stays(stage: lease_candidates.Stage) -> None:
    """Labels are not ours to remove."""
    stage.keeper.store(lease_of({}))
    async with stage.competing("a"):
        await stage.time.pass_s(4.0)

    assert stage.keeper.stored is not None
    assert stage.keeper.stored["metadata"]["labels"] == {"app": "x"}


async def test_the_holder_tells_of_itself(stage: lease_candidates.Stage) -> None:
    """Its annotations are there from the first write on, and then those of who takes over."""
    async with stage.competing("a", version="1"):
        assert _annotations(stage) == {"version": "1"}
        await stage.time.pass_s(4.0)
        assert _annotations(stage) == {"version": "1"}
    async with stage.competing("b", version="2"):
        await stage.time.pass_s(20.0)
        assert stage.keeper.spec["holderIdentity"] == "b"
        assert _annotations(stage) == {"version": "2"}


async def test_what_others_annotated_stays(stage: lease_candidates.Stage) -> None:
    """Only what the holder tells is put in the place of what was told before."""
    metadata = {"name": "scheduler", "annotations": {"owner": "x", "version": "0"}}
    stage.keeper.store({"metadata": metadata, "spec": {}})
    async with stage.competing("a", version="1"):
        assert _annotations(stage) == {"owner": "x", "version": "1"}


def _annotations(stage: lease_candidates.Stage) -> dict[str, str]:
    assert stage.keeper.stored is not None
    annotations: dict[str, str] = stage.keeper.stored["metadata"]["annotations"]
    return annotations


async def test_of_many_at_once_one_wins(stage: lease_candidates.Stage) -> None:
    """The writes of the others carry a version that is gone."""
    stage.keeper.store(lease_of({}))
    crowd = [await stage.candidate(f"c{i}") for i in range(5)]
    async with stage.running(*crowd):
        assert sum(map(leads, crowd)) == 1
        await stage.time.pass_s(10.0)
        assert sum(map(leads, crowd)) == 1

    assert stage.keeper.spec["leaseTransitions"] == 1


class TestReleasing:
    """Who leaves in order gives the lease back."""

    async def test_another_takes_over_at_once(self, stage: lease_candidates.Stage) -> None:
        """Without waiting for the duration."""
        async with stage.competing("a") as a:
            await stage.time.pass_s(4.0)
        async with stage.competing("b") as b:
            await stage.time.pass_s(1.0)
            assert not leads(b)
            await a.release()
            assert stage.keeper.spec["holderIdentity"] == ""
            await stage.time.pass_s(2.0)
            assert leads(b)

    async def test_it_stops_leading_first(self, stage: lease_candidates.Stage) -> None:
        """Before the server hears of it, so that there are never two."""
        async with stage.competing("a") as a:
            pass
        seen: list[bool] = []

        def respond(request: scripted_server.Request) -> scripted_server.Step:
            seen.append(a.leading or a.acquired.is_set())
            return stage.keeper.respond(request)

        stage.server.respond = respond
        await a.release()
        assert seen == [False, False]

    async def test_what_is_anothers_is_left_alone(self, stage: lease_candidates.Stage) -> None:
        """A release that comes late gives back nothing."""
        async with stage.competing("a") as a:
            pass
        stage.keeper.store(lease_of(HELD_BY_ANOTHER))
        await a.release()
        assert stage.keeper.spec == HELD_BY_ANOTHER

    @pytest.mark.parametrize(
        "outage",
        [scripted_server.Hangup(), scripted_server.refusal(500, "InternalError")],
        ids=["gone", "500"],
    )
    async def test_it_does_not_fail(
        self,
        stage: lease_candidates.Stage,
        outage: scripted_server.Step,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """A shutdown goes on; the lease then expires by itself."""
        async with stage.competing("a") as a:
            pass
        stage.keeper.outage = outage
        await a.release()
        assert not leads(a)
        assert "was not given back, so it lasts until it expires" in caplog.text
