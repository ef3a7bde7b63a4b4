"""A leader that goes, or loses the lease for a while, leaves nothing under way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from partage.scheduler.claims import claims_service, lifecycle
from tests.scheduler import small_cluster
from tests.scheduler.claims import claim_server, test_claims_step_by_step

Story = test_claims_step_by_step.Story


def _with_an_empty_object() -> Story:
    """A claim, and what was made for it, without shares."""
    story = Story()
    story.claim("c", 2)
    while not story.names():
        story.replica.read()
        story.replica.work()
    story.replica.read()
    return story


def _finish(story: Story) -> bool:
    return asyncio.run(story.replica.controller.finish())


def test_the_lease_is_given_back_when_nothing_can_happen_any_more() -> None:
    """Shares without an answer are looked after first, as nobody else will."""
    story = _with_an_empty_object()
    story.fates = [claim_server.LATE]
    story.replica.work()
    [late] = story.server.late
    assert _finish(story)
    with pytest.raises(kube_errors.Conflict):
        late()


def test_the_lease_is_kept_while_that_is_not_known() -> None:
    """The API server does not answer: who leads next has to look."""
    story = _with_an_empty_object()
    story.fates = [claim_server.LATE]
    story.replica.work()
    story.fates = [claim_server.REFUSE]
    assert not _finish(story)


def test_a_write_that_a_signal_breaks_off_is_looked_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was sent, and its answer is not waited for."""
    story = _with_an_empty_object()
    replica = story.replica

    async def break_off() -> None:
        began = asyncio.Event()

        async def patch(_path: str, _body: Any) -> bytes:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        monkeypatch.setattr(replica.api, "patch", patch)
        working = asyncio.create_task(replica.all_due())
        await began.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working

    asyncio.run(break_off())
    monkeypatch.undo()
    [name] = story.names()
    seen = story.made(name).metadata.resource_version
    assert _finish(story)
    assert story.made(name).metadata.resource_version != seen


def test_what_was_due_when_the_lease_was_short_is_due_afterwards() -> None:
    """The term goes on, so nothing is read anew, and no event may come."""
    story = _with_an_empty_object()
    story.replica.leading = False
    story.replica.work()
    story.replica.leading = True
    for _ in range(6):
        story.replica.work()
    [name] = story.names()
    assert objects.recorded(story.made(name)) is not None


def test_in_a_new_term_claims_wait_for_their_pods_again() -> None:
    """Who asked in the term before may be gone, or may go elsewhere."""
    story = Story()
    story.claim("c", 2, "later")
    story.rest()
    cluster = small_cluster.Cluster()
    claims = claims_service.Claims(
        None,  # type: ignore[arg-type]
        cluster.mirror,
        may_write=lambda: True,
        wake_all=lambda: None,
    )
    for sink, plural in (
        (claims.store.classes, "elasticgpuclasses"),
        (claims.store.claims, "elasticgpuclaims"),
    ):
        for item in story.server.listed(plural):
            sink.put(item)
    [claim] = claims.store.claims.by_uid.values()
    claims.store.want(claim, ["n1"])
    view = claims.store.claim_view(claim.metadata.uid)
    assert view is not None
    assert isinstance(lifecycle.next_for_claim(view), lifecycle.Create)
    claims.begin_term()
    view = claims.store.claim_view(claim.metadata.uid)
    assert view is not None
    assert lifecycle.next_for_claim(view) is None
