"""A holder stops leading in time, by its own clock, whether or not the server can tell it."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from partage.kube import lease
from tests.kube import api_clients, lease_candidates, scripted_server
from tests.kube.lease_candidates import leads

NAMES = ("a", "b", "c")


async def test_time_counts_from_before_the_request(stage: lease_candidates.Stage) -> None:
    """The others may have seen the renewal as soon as it was sent."""

    def slow(request: scripted_server.Request) -> scripted_server.Step:
        stage.time.now_s += 3.0
        return stage.keeper.respond(request)

    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        assert a.left_s() == 15.0
        stage.server.respond = slow
        await stage.time.pass_s(2.0)
        assert a.left_s() == 12.0


@pytest.mark.parametrize(
    "outage",
    [
        scripted_server.Hangup(),
        scripted_server.refusal(503, "Unavailable"),
        scripted_server.refusal(401, "Unauthorized"),
    ],
    ids=["gone", "503", "401"],
)
async def test_renewals_fail(stage: lease_candidates.Stage, outage: scripted_server.Step) -> None:
    """It leads for the duration after the last one that succeeded, and then no more."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(4.0)
        stage.keeper.outage = outage
        await stage.time.pass_s(14.9)
        assert leads(a)
        assert a.left_s() == pytest.approx(0.1)
        await stage.time.pass_s(0.2)
        assert not leads(a)
        assert a.left_s() < 0


async def test_the_loss_is_told_before_the_next_try(stage: lease_candidates.Stage) -> None:
    """Which may take long: nobody shall wait for it to learn that time is up."""
    agreed: list[bool] = []

    def respond(_: scripted_server.Request) -> scripted_server.Step:
        agreed.append(a.acquired.is_set() == a.leading)
        return scripted_server.refusal(503, "Unavailable")

    async with stage.competing("a") as a:
        stage.server.respond = respond
        await stage.time.pass_s(30.0)

    assert len(agreed) == 15
    assert all(agreed)


async def test_an_outage_is_survived(stage: lease_candidates.Stage) -> None:
    """When the server is back and nobody else has it, it leads again, as the same holder."""
    async with stage.competing("a") as a:
        stage.keeper.outage = scripted_server.Hangup()
        await stage.time.pass_s(20.0)
        assert not leads(a)
        stage.keeper.outage = None
        await stage.time.pass_s(2.0)
        assert leads(a)
        assert a.term == 2

    assert stage.keeper.spec["leaseTransitions"] == 0


async def test_a_holder_is_cut_off(stage: lease_candidates.Stage) -> None:
    """It stops before the other begins, and learns of the other when it is back."""
    async with stage.competing("a") as a, stage.competing("b") as b:
        await stage.time.pass_s(4.0)
        stage.keeper.cut_off.add("a")
        while leads(a):
            assert not leads(b)
            await stage.time.pass_s(0.5)
        await stage.time.pass_s(5.0)
        assert leads(b)
        stage.keeper.cut_off.clear()
        await stage.time.pass_s(30.0)
        assert leads(b)
        assert not leads(a)


async def test_a_request_hangs(server: scripted_server.Server) -> None:
    """A renewal that gets no answer does not hide that time is up."""
    keeper = lease_candidates.Keeper()
    server.respond = keeper.respond
    async with api_clients.connected(server) as client:
        a = lease.Lease(client, namespace="n", name="l", identity="a", duration_s=0.3, renew_s=0.02)
        async with api_clients.running(a.run()):
            await scripted_server.until(a.acquired.is_set)
            keeper.outage = scripted_server.Silence()
            await scripted_server.until(lambda: not a.acquired.is_set())
            assert -2 < a.left_s() <= 0  # long before the request gives up
            keeper.outage = None
            await scripted_server.until(a.acquired.is_set)


async def test_somebody_else_holds_it(stage: lease_candidates.Stage) -> None:
    """Whoever wrote that, it is true at once."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        stolen = {"holderIdentity": "b", "leaseDurationSeconds": 15, "leaseTransitions": 7}
        stage.keeper.store({"metadata": {"name": "scheduler"}, "spec": stolen})
        await stage.time.pass_s(2.0)
        assert not leads(a)

    assert stage.keeper.spec == stolen


async def test_the_lease_is_deleted(stage: lease_candidates.Stage) -> None:
    """It is made anew with the next renewal, for another term: somebody may have led meanwhile."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        stage.keeper.stored = None
        await stage.time.pass_s(2.0)
        assert leads(a)
        assert a.term == 2

    assert stage.keeper.spec["holderIdentity"] == "a"


async def test_a_deleted_lease_is_not_taken_while_its_holder_may_lead(
    stage: lease_candidates.Stage,
) -> None:
    """It may not have noticed yet."""
    async with stage.competing("a") as a, stage.competing("b") as b:
        await stage.time.pass_s(2.0)
        assert (leads(a), leads(b)) == (True, False)
        stage.keeper.stored = None
        for _ in range(40):
            await stage.time.pass_s(0.25)
            assert not (leads(a) and leads(b))


async def test_an_answer_is_lost(stage: lease_candidates.Stage) -> None:
    """A renewal whose outcome is unknown counts for nothing, and the next one finds out."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        stage.keeper.loses_answers = True
        await stage.time.pass_s(2.0)
        assert a.left_s() == 13.0
        stage.keeper.loses_answers = False
        await stage.time.pass_s(2.0)
        assert a.left_s() == 15.0

    assert stage.keeper.spec["leaseTransitions"] == 0


async def test_an_answer_to_the_first_try_is_lost(stage: lease_candidates.Stage) -> None:
    """It does not lead before it knows."""
    stage.keeper.loses_answers = True
    async with stage.competing("a") as a:
        assert stage.keeper.spec["holderIdentity"] == "a"
        assert not leads(a)
        stage.keeper.loses_answers = False
        await stage.time.pass_s(2.0)
        assert leads(a)


async def test_a_conflict_of_no_consequence(stage: lease_candidates.Stage) -> None:
    """Somebody put a label on the lease: it is read again and renewed, in the same try."""
    async with stage.competing("a") as a:
        await stage.time.pass_s(2.0)
        assert stage.keeper.stored is not None
        stage.keeper.store(stage.keeper.stored)
        await stage.time.pass_s(2.0)
        assert a.left_s() == 15.0


DEEDS = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([0.5, 1.0, 2.0, 5.0, 14.0, 16.0])),
    st.tuples(st.just("cut off"), st.integers(min_value=0, max_value=2)),
    st.tuples(st.just("release"), st.integers(min_value=0, max_value=2)),
    st.tuples(st.sampled_from(["outage", "lose", "mend"]), st.just(0)),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(DEEDS, max_size=15))
def test_there_are_never_two(deeds: list[tuple[str, float]]) -> None:
    """Whatever happens to three candidates and their server; and one leads in the end."""
    asyncio.run(_play(deeds))


async def _play(deeds: list[tuple[str, float]]) -> None:
    async with scripted_server.Server() as server, lease_candidates.Stage(server) as stage:
        crowd = [await stage.candidate(name) for name in NAMES]
        async with stage.running(*crowd):
            for deed, amount in deeds:
                await _do(deed, amount, stage, crowd)
                assert sum(map(leads, crowd)) <= 1
            await _do("mend", 0, stage, crowd)
            await stage.time.pass_s(20.0)
            assert sum(map(leads, crowd)) == 1


async def _do(
    deed: str, amount: float, stage: lease_candidates.Stage, crowd: list[lease.Lease]
) -> None:
    keeper = stage.keeper
    match deed:
        case "pass":
            await stage.time.pass_s(amount)
        case "cut off":
            keeper.cut_off.add(NAMES[int(amount)])
        case "release":
            await crowd[int(amount)].release()
        case "outage":
            keeper.outage = scripted_server.Hangup()
        case "lose":
            keeper.loses_answers = True
        case "mend":
            keeper.outage, keeper.loses_answers, keeper.cut_off = None, False, set()
