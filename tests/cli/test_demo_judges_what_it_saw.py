"""What ``partage demo`` makes of what it saw: a promise that was not kept must not look kept."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from partage.cli.commands.demo import roles, verdict
from partage.core import errors
from partage.local.view import views
from tests.cli import ps_views

TURN = verdict.Turn(
    waiter="serve",
    holder="sweep",
    asked_s=10.0,
    left_s=11.0,
    granted_s=11.04,
    ran_s=11.3,
    same_card=True,
)
KILLED = msgspec.structs.replace(TURN, waiter="late", holder="serve")
ALLOCATION = verdict.Allocation("train", 6144, 4096, verdict.OUT_OF_MEMORY)
EXITS = {
    "sweep": verdict.Exit(0, 7, 7),
    "serve": verdict.Exit(verdict.KILLED, 8, 8),
}


def facts(**other: object) -> verdict.Facts:
    """A run in which all went well, but for what is said."""
    good = {
        "views": 143,
        "exclusive": "bench",
        "allocation": ALLOCATION,
        "went_on": {"sweep": 212, "notebook": 380},
        "ended": TURN,
        "killed": KILLED,
        "exits": EXITS,
        "left": (),
    }
    return verdict.Facts(**(good | other))  # type: ignore[arg-type]


def test_a_good_run_keeps_everything() -> None:
    """Each promise with the numbers of this run."""
    promises = verdict.judged(facts())

    assert all(promise.kept for promise in promises)
    texts = "\n".join(promise.text for promise in promises)
    assert "no card was given more than it has (checked 143 times)" in texts
    assert "train asked 6144 of 4096 MiB, CUDA_ERROR_OUT_OF_MEMORY" in texts
    assert "kernels since: sweep 212, notebook 380" in texts
    assert "late got it 40 ms after `kill -9` of serve, and ran after 300 ms" in texts


@pytest.mark.parametrize(
    ("broken", "bad"),
    [
        ("capacity", {"excesses": (verdict.Excess("capacity", "card 0"),)}),
        ("share", {"excesses": (verdict.Excess("share", "train"),)}),
        ("exclusive", {"excesses": (verdict.Excess("exclusive", "card 1"),)}),
        ("exclusive", {"exclusive": ""}),
        ("out-of-memory", {"allocation": None}),
        ("out-of-memory", {"allocation": msgspec.structs.replace(ALLOCATION, code="CUDA_SUCCESS")}),
        ("out-of-memory", {"allocation": msgspec.structs.replace(ALLOCATION, asked_mib=4096)}),
        ("neighbours", {"went_on": {"sweep": 212, "notebook": 0}}),
        ("neighbours", {"went_on": {}}),
        ("neighbours", {"went_on": None}),
        ("waiting", {"ended": None}),
        ("waiting", {"ended": msgspec.structs.replace(TURN, granted_s=10.9)}),
        ("waiting", {"ended": msgspec.structs.replace(TURN, same_card=False)}),
        ("killed", {"killed": msgspec.structs.replace(KILLED, granted_s=10.9)}),
        ("killed", {"killed": msgspec.structs.replace(KILLED, same_card=False)}),
        ("program", {"exits": {}}),
        ("program", {"exits": EXITS | {"sweep": verdict.Exit(1, 7, 7)}}),
        ("program", {"exits": EXITS | {"sweep": verdict.Exit(0, 7, 9)}}),
        ("program", {"exits": EXITS | {"serve": verdict.Exit(0, 8, 8)}}),
        ("left", {"left": ("late",)}),
        ("left", {"left": None}),
    ],
)
def test_what_went_wrong_breaks_its_promise(broken: str, bad: dict[str, object]) -> None:
    """That one, and no other."""
    promises = verdict.judged(facts(**bad))

    assert [promise.name for promise in promises if not promise.kept] == [broken]


def test_who_saw_nothing_has_kept_nothing() -> None:
    """A story that ended before it began."""
    assert not any(promise.kept for promise in verdict.judged(verdict.Facts()))


def test_without_a_second_card_nobody_promises_a_whole_one() -> None:
    """It is left out, not called kept."""
    names = [promise.name for promise in verdict.judged(facts(exclusive=None))]

    assert "exclusive" not in names
    assert len(names) == len(verdict.judged(facts())) - 1


def view(
    *tenants: views.TenantView, cards: tuple[views.CardView, ...] = (ps_views.card(),)
) -> views.View:
    """A machine."""
    return views.View(
        node="vm",
        taken_ns=1,
        simulated=True,
        ledger="/ledger",
        shared=False,
        cards=cards,
        tenants=tenants,
    )


def wrong(seen: views.View, foreign_mib: int = 0) -> list[str]:
    """Which promises a view breaks, if this was foreign on the first card before."""
    before = {ps_views.FIRST: foreign_mib}
    return [excess.promise for excess in verdict.excesses(seen, before)]


def test_a_full_card_is_not_too_much() -> None:
    """To the last MiB and the last percent, by what was granted and not by what a card says."""
    three = (
        ps_views.tenant("a"),
        ps_views.tenant("b"),
        ps_views.tenant("c", memory_mib=8192, compute_percent=40),
    )

    assert wrong(view(*three)) == []
    assert wrong(
        view(*three, ps_views.tenant("d", memory_mib=1, compute_percent=0, used_bytes=0))
    ) == ["capacity"]
    assert wrong(
        view(*three, ps_views.tenant("d", memory_mib=0, compute_percent=1, used_bytes=0))
    ) == ["capacity"]


def test_what_was_foreign_before_cannot_be_granted() -> None:
    """What came later took what was granted, and nobody gave it away twice."""
    most = ps_views.tenant("a", memory_mib=16384)

    assert wrong(view(most, cards=(ps_views.card(foreign_mib=100),)), 100) == ["capacity"]
    assert wrong(view(most, cards=(ps_views.card(foreign_mib=100),))) == []
    assert wrong(view(most), 100) == []  # it has ended


def test_a_whole_card_with_two_on_it_is_too_much() -> None:
    """Even if there is room for both."""
    whole = ps_views.tenant("bench", exclusive=True, memory_mib=8192, compute_percent=50)

    assert wrong(view(whole)) == []
    assert wrong(view(whole, ps_views.tenant("a"))) == ["exclusive"]


def test_a_program_past_its_share_is_seen() -> None:
    """By a byte; what nobody can tell is no excess."""
    assert wrong(view(ps_views.tenant("a", used_bytes=(4096 << 20) + 1))) == ["share"]
    assert wrong(view(ps_views.tenant("a", used_bytes=None))) == []


@given(
    total_mib=st.integers(4096, 200 * 1024),
    foreign_mib=st.integers(0, 200 * 1024),
)
def test_the_sizes_make_the_story_on_every_card(total_mib: int, foreign_mib: int) -> None:
    """Three fit; the fourth fits when the second has ended, the fifth when that one is gone."""
    free_mib = total_mib - foreign_mib
    assume(free_mib >= 4096)
    shared = ps_views.card(memory_mib=total_mib, foreign_mib=foreign_mib, free_mib=free_mib)
    cast = roles.cast(view(cards=(shared,)))
    ending, waiting = cast.ending.memory_mib, cast.waiting.memory_mib
    stay = cast.greedy.memory_mib + cast.other.memory_mib

    assert cast.whole is None
    assert stay + ending <= free_mib < stay + ending + waiting
    assert stay + waiting <= free_mib < stay + waiting + cast.next.memory_mib
    assert cast.next.memory_mib <= waiting


def test_on_two_cards_that_are_alike_nobody_names_one() -> None:
    """As in the README; where they differ, or others are there, everybody does."""
    alike = roles.cast(view(cards=(ps_views.card(0), ps_views.card(1))))
    differ = roles.cast(
        view(cards=(ps_views.card(0), ps_views.card(1, memory_mib=8192, free_mib=8192)))
    )

    assert alike.greedy.options == ("--memory", "4GiB", "--compute", "30%")
    assert alike.whole == roles.Role("bench", ("--exclusive",), 16384)
    assert differ.greedy.options[-2:] == ("--card", "1")
    assert differ.whole == roles.Role("bench", ("--exclusive", "--card", "0"), 16384)


def test_a_card_with_a_foreign_process_is_nobodys_own() -> None:
    """A display takes no memory to speak of, and is somebody."""
    display = views.ForeignView(
        index=1, uuid=ps_views.SECOND, pid=9, user="root", command="Xorg", used_bytes=None
    )
    seen = msgspec.structs.replace(
        view(cards=(ps_views.card(0), ps_views.card(1))), foreign=(display,)
    )

    assert roles.cast(seen).whole is None


def test_cards_that_are_all_ill_are_told() -> None:
    """There is nothing to show."""
    with pytest.raises(errors.DeviceError, match="partage doctor"):
        roles.cast(view(cards=(ps_views.card(healthy=False),)))
