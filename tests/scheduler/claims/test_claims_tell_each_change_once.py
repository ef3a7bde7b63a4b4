"""Events of claims: one for each change, none for what is as it was, whoever leads."""

from __future__ import annotations

import datetime as dt

from partage.core import totals
from partage.dialects import grant_record
from partage.dialects.claims import objects
from partage.scheduler.claims import lifecycle
from tests.scheduler.claims import claim_replica, test_claims_step_by_step

CARD_GIB = test_claims_step_by_step.CARD_GIB
CLAIMS = test_claims_step_by_step.CLAIMS
Story = test_claims_step_by_step.Story


def _told(story: Story, name: str) -> list[str]:
    return [reason for about, reason in story.server.events if about == name]


def _full() -> Story:
    """Both cards are taken."""
    story = Story()
    for name in ("a", "b"):
        story.claim(name, CARD_GIB)
    story.rest()
    return story


def _time_passes(story: Story) -> None:
    """So much that whatever waited to be written is."""
    story.replica.now += dt.timedelta(minutes=5)
    story.rest()


def test_a_new_leader_tells_nothing_that_was_told() -> None:
    """Of claims that are bound, lost, without room or without a class, and of what they have."""
    story = _full()
    story.claim("waits", 2)
    story.claim("missing", 2, gpu_class="nobodys")
    story.by_hand("there", 9, gpu_class="")
    path = objects.elastic_gpu_path(story.has("a"))
    story.server.patch(path, {"metadata": {"annotations": {grant_record.GRANT: "edited"}}})
    story.rest()
    before = list(story.server.events)
    assert before
    for _ in range(3):
        story.replica = story.leader()
        story.rest()
        _time_passes(story)
    assert story.server.events == before


def test_a_pod_that_has_no_room_is_told_once() -> None:
    """A new leader does not know yet where it could be, and that is no news of the claim."""
    story = _full()
    story.claim("c", 2, "later")
    story.rest()
    story.replica.asks("default/c", claim_replica.NODES)
    story.rest()
    assert _told(story, "c")[-1] == "NoRoom"
    before = list(story.server.events)
    for _ in range(3):
        story.replica = story.leader()
        story.rest()
        story.replica.asks("default/c", claim_replica.NODES)
        story.rest()
    assert story.server.events == before
    story.server.delete(f"{CLAIMS}/a")
    story.rest()
    assert story.said("c") == ("Bound", "Bound")
    assert _told(story, "c")[-1] == "Bound"


def test_amounts_that_change_are_written_and_not_told() -> None:
    """There would be an event every half minute for each claim that waits."""
    story = Story()
    for name, gib in (("a", CARD_GIB), ("b", 4), ("waits", 7)):
        story.claim(name, gib)
        story.rest()
    first = story.message("waits")
    story.claim("c", 2)
    _time_passes(story)
    assert story.said("waits") == ("Pending", "NoRoom")
    assert story.message("waits") != first
    assert _told(story, "waits").count("NoRoom") == 1


def test_amounts_of_a_total_are_not_written_each_time_that_they_change() -> None:
    """Those of cards are not either; here the claim would take what is there already."""
    story = Story()
    story.replica.fleet.set_total("default", totals.Total(memory_mib=4 << 10))
    story.by_hand("there", 3, gpu_class="")
    story.claim("first", 2)
    story.rest()
    story.claim("c", 3, gpu_class="")
    story.rest()
    first = story.message("c")
    assert "has 2 GiB; this claim asks for 3 GiB" in first
    story.claim("second", 1)
    story.rest()
    assert story.message("c") == first
    _time_passes(story)
    assert "has 3 GiB; this claim asks for 3 GiB" in story.message("c")
    assert _told(story, "c") == ["NoRoom"]


def test_what_happens_twice_is_told_twice() -> None:
    """A claim that is lost again is news, in the same words."""
    story = Story()
    story.claim("c", 2)
    story.rest()
    path = objects.elastic_gpu_path(story.has("c"))
    record = story.server.get(path)["metadata"]["annotations"][grant_record.GRANT]
    for _ in range(2):
        for text in ("edited", record):
            annotations = {grant_record.GRANT: text}
            story.server.patch(path, {"metadata": {"annotations": annotations}})
            story.rest()
    reasons = [reason for reason in _told(story, "c") if reason in ("Unavailable", lifecycle.BOUND)]
    assert reasons == ["Bound", "Unavailable", "Bound", "Unavailable", "Bound"]
    assert _told(story, path.rpartition("/")[2]) == ["Damaged", "Damaged"]
