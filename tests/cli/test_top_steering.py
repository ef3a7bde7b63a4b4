"""Steering: what keys do to a page, and that nothing but ``y`` sends a signal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.cli.commands.top import key_actions
from partage.cli.commands.top.key_actions import Act, Mode, State
from partage.cli.display import machine_page, pages
from partage.local.view import views
from tests.cli import ps_views
from tests.cli.ps_views import MIB

LEAP = 2
NAMES = ("a", "b", "c", "d")
KEYS = [
    *("up", "down", "left", "right", "page up", "page down", "home", "end", "escape", "enter"),
    *("backspace", "j", "k", ",", ".", "r", "/", "h", "?", "T", "K", "I", "y", "Y", "n", "x"),
    *("[", "]", "ctrl-a"),
]


def page(*names: str, waiting: tuple[views.WaitingView, ...] = ()) -> pages.Page:
    """A machine with these tenants; each uses more than the one before."""
    tenants = (
        ps_views.tenant(name, used_bytes=i * MIB, granted_at=ps_views.NOW_S - i)
        for i, name in enumerate(names)
    )
    return machine_page.page(ps_views.view(*tenants, waiting=waiting), {})


def after(keys: list[str], shown: pages.Page, state: State | None = None) -> State:
    """The state after these keys, none of which acts on a program."""
    state = state or State()
    for key in keys:
        seen = key_actions.shown(state, shown)
        state, act = key_actions.pressed(key_actions.settled(state, seen), key, seen, LEAP)
        assert act is Act.NOTHING
    return key_actions.settled(state, key_actions.shown(state, shown))


def chosen(state: State, shown: pages.Page) -> str | None:
    """The name of whom is selected."""
    line = key_actions.selected(state, key_actions.shown(state, shown))
    return line.cells[0].text if line else None


def names(state: State, shown: pages.Page) -> list[str]:
    """The tenants as they are shown."""
    return [line.cells[0].text for line in key_actions.shown(state, shown).tenants.lines]


@pytest.mark.parametrize(
    ("keys", "name"),
    [
        ([], None),
        *((["down"], "d"), (["j"], "d"), (["up"], "d"), (["end"], "a"), (["home"], "d")),
        *((["down", "down"], "c"), (["down", "down", "up"], "d"), (["j", "j", "k"], "d")),
        *((["down", "page down"], "b"), (["end", "page up"], "c"), (["end", "down"], "a")),
        *((["home", "up"], "d"), (["down", "escape"], None), (["down", "escape", "down"], "d")),
    ],
)
def test_arrows_move(keys: list[str], name: str | None) -> None:
    """Through the tenants as they are shown: here the oldest first."""
    shown = page(*NAMES)

    assert chosen(after(keys, shown), shown) == name


def test_the_queue_comes_after_the_tenants() -> None:
    """Programs that wait can be selected too, and so can be reached on a small screen."""
    shown = page("a", waiting=(ps_views.waiting("later"),))

    state = after(["down", "down"], shown)

    assert state.selected == ("waiting", "token-of-later")


def test_who_is_selected_stays_selected() -> None:
    """Whichever program comes, goes, or is sorted elsewhere."""
    state = after(["down", "down"], page(*NAMES))
    for more in (page("x", *NAMES), page("c"), page(*reversed(NAMES))):
        assert chosen(key_actions.settled(state, more), more) == "c"
    assert chosen(after(["right", "r"], page(*NAMES), state), page(*NAMES)) == "c"


def test_the_selection_goes_with_whom_it_was() -> None:
    """No neighbour is selected in its place; the next arrow goes on from there."""
    less = page("a", "b", "d")
    state = key_actions.settled(after(["down", "down"], page(*NAMES)), less)

    assert chosen(state, less) is None
    assert chosen(after(["down"], less, state), less) == "b"
    assert chosen(after(["up"], less, state), less) == "d"


def test_nobody_to_select() -> None:
    """Arrows do nothing then."""
    assert after(["down", "end", "up", "page up"], page()).selected is None


def test_columns_to_sort_by_go_round() -> None:
    """One more than there are: the order in which they come is one of them."""
    shown = page(*NAMES)
    columns = [after(["right"] * i, shown).column for i in range(len(machine_page.TENANT) + 2)]

    assert columns == [-1, *range(len(machine_page.TENANT)), -1]
    assert after(["left"], shown).column == len(machine_page.TENANT) - 1
    assert after([".", "right", ",", "left"], shown).column == -1


@pytest.mark.parametrize(
    ("column", "order"),
    [
        *(("NAME", "abcd"), ("USED(MiB)", "dcba"), ("AGE", "dcba")),
        ("USER", "dcba"),  # all alike: as they come
    ],
)
def test_numbers_begin_with_the_largest_and_names_with_a(column: str, order: str) -> None:
    """Until somebody reverses it."""
    shown = page(*NAMES)
    state = after(["right"] * (machine_page.TENANT.index(column) + 1), shown)

    assert names(state, shown) == list(order)
    if column != "USER":
        assert names(after(["r"], shown, state), shown) == list(reversed(order))


@pytest.mark.parametrize(
    ("keys", "aside"),
    [
        *((["["], 0), (["]"], 8), (["]", "]", "["], 8), (["]", "]", "ctrl-a"], 0)),
        (["]", "home", "right"], 8),  # these select and sort
    ],
)
def test_brackets_move_the_table(keys: list[str], aside: int) -> None:
    """Not to the left of its beginning."""
    assert after(keys, page(*NAMES)).aside == aside


def test_what_nobody_can_tell_is_sorted_last() -> None:
    """In either direction."""
    view = ps_views.view(ps_views.untold("a"), ps_views.tenant("b"), ps_views.tenant("c"))
    shown = machine_page.page(view, {})
    state = after(["right"] * (machine_page.TENANT.index("USED(MiB)") + 1), shown)

    assert names(state, shown)[-1] == "a"
    assert names(after(["r"], shown, state), shown)[-1] == "a"


@given(st.permutations(NAMES), st.integers(-1, len(machine_page.TENANT) - 1), st.booleans())
def test_sorting_loses_nobody(order: list[str], column: int, descending: bool) -> None:
    """And keeps the columns."""
    shown = page(*order)
    sorted_page = pages.ordered(shown, column, descending=descending)

    assert sorted(line.key for line in sorted_page.tenants.lines) == sorted(
        line.key for line in shown.tenants.lines
    )
    assert sorted_page.tenants.header == shown.tenants.header


def test_a_filter_is_typed() -> None:
    """By name or user, whatever the case; letters are letters then, not commands."""
    shown = page("train", "quick", waiting=(ps_views.waiting("trial"), ps_views.waiting("q")))
    typing = after(["/", "T", "q", "backspace", "R"], shown)

    assert (typing.mode, typing.filter) == (Mode.FILTERING, "TR")
    assert names(typing, shown) == ["train"]
    assert len(key_actions.shown(typing, shown).selectable) == 2
    assert names(after(["/", "a", "l", "i", "c"], shown), shown) == ["quick", "train"]
    assert after(["enter"], shown, typing).mode is Mode.BROWSING
    assert names(after(["enter", "down"], shown, typing), shown) == ["train"]
    assert names(after(["enter", "escape"], shown, typing), shown) == ["quick", "train"]
    assert names(after(["escape"], shown, typing), shown) == ["quick", "train"]


@pytest.mark.parametrize("key", ["h", "?"])
def test_help_is_left_by_any_key(key: str) -> None:
    """That key does nothing else."""
    shown = page(*NAMES)

    assert after([key], shown).mode is Mode.HELPING
    assert after([key, "down"], shown) == after([], shown)
    assert after([key, "K"], shown).mode is Mode.BROWSING


@pytest.mark.parametrize("key", ["q", "Q", "interrupt", "end of input"])
def test_quitting(key: str) -> None:
    """By a key, and by what ends the input."""
    assert key_actions.pressed(State(), key, page(), LEAP)[1] is Act.QUIT


@pytest.mark.parametrize("mode", Mode)
def test_an_interrupt_quits_everywhere(mode: Mode) -> None:
    """Also while something is asked."""
    assert key_actions.pressed(State(mode=mode), "interrupt", page(), LEAP)[1] is Act.QUIT


@given(st.lists(st.sampled_from(KEYS), max_size=40))
def test_only_y_sends(keys: list[str]) -> None:
    """Whatever was pressed before: a signal is sent by y, right after the question."""
    shown, state, is_asking = page(*NAMES), State(), False
    for key in keys:
        seen = key_actions.shown(state, shown)
        state, act = key_actions.pressed(key_actions.settled(state, seen), key, seen, LEAP)
        assert (act is Act.SEND) == (is_asking and key in ("y", "Y"))
        assert (act is Act.DROP) == (is_asking and key not in ("y", "Y"))
        is_asking = act is Act.ASK
        if is_asking:
            assert state.signal is key_actions.SIGNALS[key]
            state = key_actions.asked(state, "?")
