"""Verdicts on cards, for any course of events: who is unhealthy, until when, and why."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.devices import health_rules
from partage.devices.health_rules import Look, Patience, Verdict

PATIENCE = Patience(quiet_s=60.0, settle_s=2.0)
XID = health_rules.xid_reason(79)

WELL = Look(action=0, uncorrected=0)
SILENT = Look()  # a card of an older driver, without ECC
COUNTING = Look(uncorrected=0)  # with it

Course = Sequence[tuple[float, Look | str]]

looks = st.builds(
    Look,
    problem=st.sampled_from(["", "", "NVML: Unknown Error"]),
    lost=st.sampled_from([False, False, True]),
    action=st.sampled_from([None, 0, 1, 99]),
    uncorrected=st.sampled_from([None, 0, 1, 2]),
    rows_pending=st.booleans(),
    rows_failed=st.booleans(),
    context=st.sampled_from([None, False, True]),
)
steps = st.lists(
    st.tuples(st.integers(0, 200), st.one_of(looks, st.sampled_from([XID, health_rules.MEMORY]))),
    max_size=12,
)


def judged(course: Course) -> Verdict:
    """After a course of looks and incidents, each so many seconds after the one before."""
    verdict, now_s = Verdict(), 0.0
    for after_s, step in course:
        now_s += after_s
        if isinstance(step, str):
            verdict = health_rules.struck(verdict, step, now_s)
        else:
            verdict = health_rules.looked(verdict, step, now_s, PATIENCE)
    return verdict


@given(steps)
def test_a_card_is_unhealthy_from_the_moment_of_an_incident(course: Course) -> None:
    """Whatever came before."""
    assert judged([*course, (0.0, XID)]).reason == XID


@given(steps, looks)
def test_a_card_that_shows_something_wrong_is_unhealthy(course: Course, look: Look) -> None:
    """By the look alone."""
    wrong = look.problem or look.lost or look.action or look.rows_pending or look.rows_failed
    if wrong:
        assert judged([*course, (0.0, look)]).reason


@given(steps)
def test_a_card_becomes_well_where_the_driver_says_so(course: Course) -> None:
    """For any past: a little later, two looks without new errors end all."""
    assert judged([*course, (0.0, WELL), (PATIENCE.settle_s, WELL)]).reason == ""


@given(steps)
def test_a_card_becomes_well_by_a_context(course: Course) -> None:
    """For any past, if nothing is told and the card was quiet."""
    proof = msgspec.structs.replace(SILENT, context=True)
    assert judged([*course, (PATIENCE.quiet_s, proof)]).reason == ""


@given(steps)
def test_a_card_becomes_well_by_a_reset(course: Course) -> None:
    """For any past: counters that begin anew, or a return from being lost."""
    verdict = judged([*course, (0.0, Look(uncorrected=9)), (0.0, XID), (0.0, COUNTING)])
    assert verdict.reason == ""
    verdict = judged([*course, (0.0, XID), (0.0, Look(lost=True)), (0.0, SILENT)])
    assert verdict.reason == ""


@given(st.lists(st.tuples(st.integers(0, 200), st.sampled_from([SILENT, COUNTING])), max_size=12))
def test_an_incident_does_not_end_by_itself(course: Course) -> None:
    """Time and looks that show nothing are no proof."""
    assert judged([(0.0, SILENT), (0.0, XID), *course]).reason == XID


@given(st.lists(st.integers(0, 200), max_size=8))
def test_a_card_to_which_nothing_happens_is_well(waits: list[int]) -> None:
    """Whichever driver it has, and whatever it counted before."""
    for look in (WELL, SILENT, COUNTING, Look(uncorrected=5)):
        assert judged([(wait, look) for wait in waits]).reason == ""


@given(steps)
def test_a_context_is_tried_only_where_it_could_end_the_incident(
    course: Course,
) -> None:
    """If one is asked for and made, the card is well; then none is asked for."""
    verdict = judged(course)
    now_s = sum(after_s for after_s, _ in course) + 1.0
    for look in (SILENT, COUNTING, WELL, Look(action=1), Look(lost=True), Look(problem="?")):
        if health_rules.wants_context(verdict, look, now_s, PATIENCE):
            proof = msgspec.structs.replace(look, context=True)
            after = health_rules.looked(verdict, proof, now_s, PATIENCE)
            assert after.incident is None
            assert not health_rules.wants_context(after, look, now_s, PATIENCE)


def test_a_context_is_asked_for_after_a_quiet_time() -> None:
    """Counted from the last incident, and from the last try in vain."""
    struck = judged([(0.0, XID), (30.0, XID)])
    wants = [health_rules.wants_context(struck, SILENT, at_s, PATIENCE) for at_s in (89.9, 90.0)]
    assert wants == [False, True]

    tried = health_rules.looked(struck, Look(context=False), 90.0, PATIENCE)
    assert tried.reason == XID
    wants = [health_rules.wants_context(tried, SILENT, at_s, PATIENCE) for at_s in (149.9, 150.0)]
    assert wants == [False, True]


def test_a_context_made_before_the_card_was_quiet_is_no_proof() -> None:
    """A further incident came while it was tried."""
    proof = Look(context=True)
    assert judged([(0.0, XID), (59.9, proof)]).reason == XID
    assert judged([(0.0, XID), (60.0, proof)]).reason == ""
    assert judged([(0.0, XID), (50.0, XID), (10.0, proof)]).reason == XID


def test_what_the_driver_says_is_believed_when_the_incident_has_settled() -> None:
    """And a context does not overrule it."""
    assert judged([(0.0, XID), (1.9, WELL)]).reason == XID
    assert judged([(0.0, XID), (2.0, WELL)]).reason == ""
    look = Look(action=1, context=True)
    assert judged([(0.0, XID), (999.0, look)]).reason == XID


def test_new_errors_of_memory_make_a_card_unhealthy() -> None:
    """If there are more of them than at the look before."""
    assert (
        judged([(0.0, Look(uncorrected=2)), (1.0, Look(uncorrected=3))]).reason
        == health_rules.MEMORY
    )
    told_again: Course = [(0.0, Look(uncorrected=2)), (1.0, SILENT), (1.0, Look(uncorrected=3))]
    assert judged(told_again).reason == health_rules.MEMORY


def test_errors_of_memory_that_are_counted_end_by_a_reset_only() -> None:
    """Not by a context; where they are not counted, that is all there is."""
    made = msgspec.structs.replace(COUNTING, context=True)
    for strikes in ([health_rules.MEMORY], [health_rules.MEMORY, XID]):
        course: list[tuple[float, Look | str]] = [(0.0, COUNTING)]
        course += [(0.0, reason) for reason in strikes]
        verdict = judged(course)
        assert not health_rules.wants_context(verdict, COUNTING, 999.0, PATIENCE)
        assert health_rules.looked(verdict, made, 999.0, PATIENCE).reason == strikes[-1]
    assert judged([(0.0, health_rules.MEMORY), (60.0, Look(context=True))]).reason == ""


def test_a_driver_that_went_away_resets_no_card() -> None:
    """Only a card that was lost and is back was reset for sure."""
    gone = Look(problem="NVML: Driver Not Loaded")
    assert judged([(0.0, gone)]).reason == gone.problem
    assert judged([(0.0, XID), (1.0, gone), (1.0, SILENT)]).reason == XID
    lost_before: Course = [(0.0, XID), (1.0, Look(lost=True)), (1.0, gone), (1.0, SILENT)]
    assert judged(lost_before).reason == ""


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109, 154])
def test_xids_of_applications_are_none_of_the_card(code: int) -> None:
    """As NVIDIA's plugin has it; and one that only announces what is looked at anyway."""
    assert health_rules.xid_reason(code) == ""


def test_xids_are_told_in_words_where_there_are_some() -> None:
    """And by their number otherwise; anybody may ignore more of them."""
    assert health_rules.xid_reason(79) == "Xid 79: fallen off the bus"
    assert health_rules.xid_reason(1234) == "Xid 1234"
    assert health_rules.xid_reason(79, frozenset({79})) == ""
