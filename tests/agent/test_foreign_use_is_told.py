"""What processes outside Partage hold: proven by two looks, and told in few and coarse steps."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Iterator, Mapping

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.agent import foreign_use
from partage.devices import nvml
from tests.agent import agent_node, orphans

STEP = foreign_use.STEP_MIB
MIB = 1 << 20
CARD, OTHER = agent_node.uuid(0), agent_node.uuid(1)


def card(
    held_mib: Mapping[int, int | None], used_mib: int | None = None, uuid: str = CARD
) -> nvml.Occupancy:
    """A card on which processes hold so much."""
    holders = tuple(
        nvml.Process(pid, None if mib is None else mib * MIB) for pid, mib in held_mib.items()
    )
    return nvml.Occupancy(uuid, None if used_mib is None else used_mib * MIB, holders)


def look(*cards: nvml.Occupancy, foreign: Mapping[int, int]) -> foreign_use.Look:
    """One by which these processes are foreign."""
    return foreign_use.Look(taken_s=0.0, cards=cards, foreign=foreign)


class TestProof:
    """Who counts."""

    def test_one_look_proves_nothing(self) -> None:
        """Between the driver's answer and the kernel's an id may have come to another process."""
        now = look(card({7: 1000}), foreign={7: 1})
        assert foreign_use.confirmed(look(foreign={}), now) == {CARD: 0}
        assert foreign_use.confirmed(now, now) == {CARD: 1000}

    def test_another_process_with_the_same_id_is_another(self) -> None:
        """It is new, however long the first was there."""
        before = look(card({7: 1000}), foreign={7: 1})
        assert foreign_use.confirmed(before, look(card({7: 1000}), foreign={7: 2})) == {CARD: 0}

    def test_those_of_tenants_do_not_count(self) -> None:
        """Only what foreigners hold of each card, and cards that do not answer are left out."""
        now = look(card({7: 1000, 8: 5000}), card({8: 10}, uuid=OTHER), foreign={7: 1})
        assert foreign_use.confirmed(now, now) == {CARD: 1000, OTHER: 0}

    def test_one_whose_memory_is_not_told_has_what_nobody_else_explains(self) -> None:
        """As on one machine."""
        now = look(card({7: None, 8: 5000}, used_mib=6500), foreign={7: 1})
        assert foreign_use.confirmed(now, now) == {CARD: 1500}

    def test_who_holds_nothing_is_there_all_the_same(self) -> None:
        """The card is not unused."""
        now = look(card({7: 0}), foreign={7: 1})
        assert foreign_use.confirmed(now, now) == {CARD: 1}


class TestLooking:
    """The kernel is asked about living processes."""

    @pytest.fixture
    def orphan(self) -> Iterator[int]:
        """A process that is no descendant of this one."""
        with orphans.sleeping() as pid:
            yield pid

    def test_strangers_are_found(self, orphan: int) -> None:
        """With the moment at which each started."""
        now = foreign_use.look([card({orphan: 1})], lambda _: True, taken_s=1.0)
        assert now.foreign.keys() == {orphan}

    def test_who_is_not_proven_foreign_is_not(self, orphan: int) -> None:
        """That is for others to say."""
        now = foreign_use.look([card({orphan: 1})], lambda _: False, taken_s=1.0)
        assert now.foreign == {}

    def test_children_of_this_process_are_its_own(self) -> None:
        """The agent has one that measures what a context costs."""
        with subprocess.Popen(["sleep", "600"]) as child:
            now = foreign_use.look([card({child.pid: 1})], lambda _: True, taken_s=1.0)
            child.kill()
        assert now.foreign == {}

    def test_who_has_ended_is_gone(self) -> None:
        """The driver's answer is a moment old."""
        with subprocess.Popen(["true"]) as child:
            child.wait()
        assert foreign_use.look([card({child.pid: 1})], lambda _: True, taken_s=1.0).foreign == {}


def series(*held: tuple[float, int]) -> list[tuple[float, int]]:
    """What is told after each of these moments at which so much was held: when, and how much."""
    state, changes = foreign_use.Told(), []
    for now_s, mib in held:
        before, state = state, foreign_use.told(state, {CARD: mib}, now_s)
        if state.mib != before.mib:
            changes.append((now_s, state.mib.get(CARD, 0)))
    return changes


class TestTelling:
    """How often, and in which steps."""

    def test_more_is_told_at_once_and_rounded_up(self) -> None:
        """The scheduler may grant too little for a moment, never too much for long."""
        assert series((0.0, 1000)) == [(0.0, 1024)]

    def test_small_changes_are_not_told(self) -> None:
        """Within a step there is nothing to say."""
        assert series(*((float(i), 900 + i) for i in range(60))) == [(0.0, 1024)]

    def test_what_grows_is_told_with_pauses(self) -> None:
        """Half a step a second: every five seconds, and always the most of that moment."""
        assert series(*((float(i), 128 * i) for i in range(1, 12))) == [
            (1.0, 256),
            (6.0, 768),
            (11.0, 1536),
        ]

    def test_less_is_told_after_a_while(self) -> None:
        """And only if it was less all that time."""
        assert series((0, 1000), (20, 100), (29.5, 100), (30, 100)) == [(0, 1024), (30, 256)]
        assert series((0, 1000), (20, 100), (25, 1000), (30, 100), (39.5, 100)) == [(0, 1024)]

    def test_the_end_of_the_last_process_is_told_as_nothing(self) -> None:
        """However little it was."""
        assert series((0, 1), (20, 0), (30, 0)) == [(0, 256), (30, 0)]

    def test_use_around_a_step_does_not_flutter(self) -> None:
        """Less is told only where it is less by half a step."""
        swinging = [(float(i), 250 if i % 60 < 30 else 260) for i in range(600)]
        assert series(*swinging) == [(0.0, 256), (30.0, 512)]

    def test_a_card_that_does_not_answer_stays_as_it_was(self) -> None:
        """Nobody says that it is unused."""
        state = foreign_use.told(foreign_use.Told(), {CARD: 1000, OTHER: 300}, 0.0)
        for now_s in range(10, 60):
            state = foreign_use.told(state, {OTHER: 0}, float(now_s))
        assert state.mib == {CARD: 1024}

    @hypothesis.given(
        st.lists(
            st.tuples(st.floats(0.1, 12), st.integers(0, 3000), st.integers(0, 3000)), max_size=40
        )
    )
    def test_it_is_never_too_little_for_longer_than_a_pause(
        self, looks: list[tuple[float, int, int]]
    ) -> None:
        """And two changes are never nearer to each other than that."""
        state, now_s, changes = foreign_use.Told(), 0.0, []
        for passed_s, first_mib, second_mib in looks:
            now_s += passed_s
            before = state
            state = foreign_use.told(state, {CARD: first_mib, OTHER: second_mib}, now_s)
            if state.mib != before.mib:
                changes.append(now_s)
            assert all(mib % STEP == 0 for mib in state.mib.values())
            enough = state.mib.get(CARD, 0) >= first_mib and state.mib.get(OTHER, 0) >= second_mib
            assert enough or now_s - changes[-1] < foreign_use.PAUSE_S
        pauses = [after - before for before, after in itertools.pairwise(changes)]
        assert all(pause_s >= foreign_use.PAUSE_S for pause_s in pauses)


class TestFollowing:
    """Look after look."""

    def test_changes_are_told_and_nothing_else(self) -> None:
        """All cards at once, those alone of which something is used."""
        changes: list[Mapping[str, int]] = []
        use = foreign_use.ForeignUse(changes.append)
        for i in range(4):
            cards = (card({7: 1000}), card({}, uuid=OTHER))
            use.notice(foreign_use.Look(taken_s=float(i), cards=cards, foreign={7: 1}))
        assert changes == [{CARD: 1024}]

    def test_what_was_told_before_the_agent_was_started_again_holds(self) -> None:
        """Until it has been otherwise for a while."""
        changes: list[Mapping[str, int]] = []
        use = foreign_use.ForeignUse(changes.append)
        use.recall({CARD: 1024, OTHER: 512})
        for i in range(13):
            cards = (card({7: 1000}), card({}, uuid=OTHER))
            use.notice(foreign_use.Look(taken_s=float(i), cards=cards, foreign={7: 1}))
        assert changes == [{CARD: 1024}]
