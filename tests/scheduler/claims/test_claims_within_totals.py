"""The total of a namespace holds for shares that are there as it does for those that are made."""

from __future__ import annotations

from typing import Any

import pytest

from partage.core import totals
from partage.dialects.claims import objects
from partage.kube import errors as kube_errors
from tests.scheduler.claims import claim_server, test_claims_step_by_step

OVER = "namespace default may have 4 GiB of card memory and has 3 GiB; this claim asks for 2 GiB"
Story = test_claims_step_by_step.Story
CLAIMS = test_claims_step_by_step.CLAIMS


def _story(gib: int = 4) -> Story:
    """The namespace of all claims may have so much."""
    story = Story()
    _limit(story, gib)
    return story


def _limit(story: Story, gib: int) -> None:
    story.replica.fleet.set_total("default", totals.Total(memory_mib=gib << 10))


def _used_gib(story: Story) -> int:
    account = story.replica.fleet.account("default")
    assert account is not None
    return account.used.memory_mib >> 10


def _bound(story: Story, *names: str) -> list[str]:
    return [name for name in names if story.said(name) == ("Bound", "Bound")]


@pytest.mark.parametrize("spec", [{}, {"elasticGPUName": "there"}], ids=["by size", "by name"])
def test_what_an_administrator_wrote_counts(spec: dict[str, Any]) -> None:
    """A claim that takes it is told the numbers, until there is room in the total."""
    story = _story()
    story.by_hand("there", 2, gpu_class="")
    story.claim("first", 3)
    story.rest()
    story.claim("c", 2, gpu_class="", **spec)
    story.rest()
    assert (story.said("c"), story.message("c")) == (("Pending", "NoRoom"), OVER)
    assert story.made("there").status.phase is objects.Phase.AVAILABLE
    _limit(story, 5)
    story.replica.store.look_again()
    story.replica.work()  # it is due by itself: nothing was read
    story.rest()
    assert (story.has("c"), story.said("c")) == ("there", ("Bound", "Bound"))
    assert _used_gib(story) == 5


def test_what_was_released_and_is_available_again_counts() -> None:
    """It left the total with the claim that had it, and comes back with the next one."""
    story = _story()
    story.claim("before", 2)
    story.rest()
    freed = story.has("before")
    story.server.patch(objects.elastic_gpu_path(freed), {"spec": {"reclaimPolicy": "Retain"}})
    story.server.delete(f"{CLAIMS}/before")
    story.rest()
    assert _used_gib(story) == 2
    story.server.patch(objects.elastic_gpu_path(freed), {"spec": {"claimRef": None}})
    story.rest()
    assert _used_gib(story) == 0
    story.claim("first", 3)
    story.rest()
    story.claim("c", 2)
    story.rest()
    assert (story.said("c"), story.message("c")) == (("Pending", "NoRoom"), OVER)
    assert story.made(freed).status.phase is objects.Phase.AVAILABLE


def test_a_smaller_share_is_made_where_the_available_one_is_too_large() -> None:
    """As long as its class can make one."""
    story = _story()
    story.by_hand("large", 6)
    story.rest()
    story.claim("c", 2)
    story.rest()
    assert story.has("c") == objects.elastic_gpu_name(story.uid("c"))


def test_of_two_claims_at_once_one_stays_within_the_total() -> None:
    """What is being written counts before the API server has answered."""
    story = _story()
    for name in ("one", "two"):
        story.by_hand(name, 3)
    story.rest()
    for name in ("a", "b"):
        story.claim(name, 3)
    story.rest()
    assert len(_bound(story, "a", "b")) == 1
    assert _used_gib(story) == 3


@pytest.mark.parametrize("fate", [claim_server.LATE, claim_server.LOSE_ANSWER])
def test_a_share_that_was_given_without_an_answer_counts_until_that_is_known(fate: str) -> None:
    """No other claim of the namespace gets what it may have taken."""
    story = _story()
    for name in ("one", "two"):
        story.by_hand(name, 3, gpu_class="")
    story.rest()
    for name in ("a", "b"):
        story.claim(name, 3, gpu_class="")
    story.replica.read()
    story.replica.work()  # both are protected
    story.replica.read()
    story.fates = [fate]
    story.replica.work()
    assert _used_gib(story) == 3
    story.rest()
    assert len(_bound(story, "a", "b")) == 1
    assert _used_gib(story) == 3
    for write in story.server.late:
        with pytest.raises(kube_errors.Conflict):
            write()


def test_a_new_leader_lets_no_older_gift_through() -> None:
    """What its predecessor was giving away may be too much by now."""
    story = _story()
    story.by_hand("there", 3)
    story.rest()
    seen = story.server.get(objects.elastic_gpu_path("there"))["metadata"]["resourceVersion"]
    story.replica = story.leader()
    now = story.server.get(objects.elastic_gpu_path("there"))["metadata"]["resourceVersion"]
    assert now != seen
