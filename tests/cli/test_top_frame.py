"""The frame: it fits any terminal, and shows who is selected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import cells, text

from partage.cli.commands.top import frames, history, key_actions
from partage.cli.display import drawing, machine_page
from partage.core.problems import Problem
from partage.local.view import views
from tests.cli import ps_views

UTF8, ASCII = drawing.Pen("utf-8"), drawing.Pen("ascii")
SIZES = st.builds(frames.Size, st.integers(1, 200), st.integers(1, 60))


def machine(tenants: int, waiting: int = 0) -> views.View:
    """With so many tenants, and so many who wait."""
    return ps_views.view(
        *(ps_views.tenant(f"tenant-{i:03}", granted_at=i) for i in range(tenants)),
        waiting=tuple(ps_views.waiting(f"waiter-{i:03}", place=i + 1) for i in range(waiting)),
        problems=(Problem("driver", "long " * 50),),
    )


def drawn(view: views.View, size: frames.Size, *, offset: int = 0, **state: Any) -> frames.Frame:
    """A frame of a machine."""
    page = machine_page.page(view, {})
    settled = key_actions.settled(key_actions.State(**state), page)
    return frames.frame(page, settled, size, UTF8, offset=offset)


def words(frame: frames.Frame) -> list[str]:
    """The lines without their styles."""
    return [line.plain for line in frame.lines]


def chosen(frame: frames.Frame) -> list[text.Text]:
    """The lines in reverse."""
    return [line for line in frame.lines if any("reverse" in str(s.style) for s in line.spans)]


@given(SIZES, st.integers(0, 40), st.integers(0, 5), st.integers(0, 80), st.data())
def test_who_is_selected_is_seen(
    size: frames.Size, tenants: int, waiting: int, offset: int, data: st.DataObject
) -> None:
    """On any terminal, from wherever the screen was scrolled to; no line is too long."""
    view = machine(tenants, waiting)
    keys = [line.key for line in machine_page.page(view, {}).selectable]
    selected = data.draw(st.sampled_from([None, *keys]))

    frame = drawn(view, size, offset=offset, selected=selected)

    assert len(frame.lines) <= size.height
    assert all(cells.cell_len(line) <= size.width for line in words(frame))
    if selected is not None and size.height >= 3:
        assert len(chosen(frame)) == 1
    if selected is not None and size.height >= 4 and size.width >= 40:
        at = frame.lines.index(chosen(frame)[0])
        above = words(frame)[1:at]
        header = "PLACE" if selected[0] == "waiting" else "NAME"
        assert any(line.startswith(header) for line in above)


@given(st.integers(0, 100), st.integers(2, 50), st.integers(1, 150), st.data())
def test_scrolling_is_no_further_than_needed(
    offset: int, height: int, total: int, data: st.DataObject
) -> None:
    """The screen is full if there is enough; a row seen below the first line stays where it is."""
    selected = data.draw(st.integers(0, total - 1))

    at = frames.scrolled(offset, height, total, (selected, selected), selected)

    assert 0 <= at <= max(0, total - height)
    assert at <= selected < at + height
    if offset < selected < offset + height and offset <= total - height:
        assert at == offset


def test_the_ends_show_what_is_beyond() -> None:
    """The cards above the first tenant, the problems below the last."""
    view, size = machine(30), frames.Size(100, 10)
    first, *_, last = [line.key for line in machine_page.page(view, {}).selectable]

    assert words(drawn(view, size, selected=first, offset=20))[1].startswith("CARD")
    assert words(drawn(view, size, selected=last))[-2].startswith("driver")


def test_columns_keep_their_names() -> None:
    """When the header is scrolled away it stands in for the first line."""
    view, size = machine(30), frames.Size(100, 10)
    keys = [line.key for line in machine_page.page(view, {}).selectable]

    frame = drawn(view, size, selected=keys[15])

    assert frame.offset > 0
    assert words(frame)[1].startswith("NAME")
    assert words(frame)[-2].startswith("tenant-015")


@given(SIZES, st.sampled_from(key_actions.Mode))
def test_ascii_is_all_that_some_have(size: frames.Size, mode: key_actions.Mode) -> None:
    """Bars, arrows, history and the names of others."""
    view = ps_views.view(ps_views.tenant("tr\u00e4in"), node="h\u00f4te")
    page = machine_page.page(view, {})
    seen = history.History()
    seen.add(page)
    state = key_actions.State(mode=mode, column=2, filter="\u00e4")

    frame = frames.frame(seen.shown(page), state, size, ASCII)

    assert all(line.isascii() for line in words(frame))


def test_wide_characters_keep_the_columns() -> None:
    """A name in Chinese takes two columns for each character."""
    view = ps_views.view(ps_views.tenant("漢字"), ps_views.tenant("ab"))

    lines = words(drawn(view, frames.Size(120, 20)))

    starts = {cells.cell_len(line.partition("alice")[0]) for line in lines if "alice" in line}
    assert len(starts) == 1


def test_the_heading_says_that_cards_are_simulated() -> None:
    """Where even a small terminal shows it, with the moment and what is wrong."""
    page = machine_page.page(ps_views.view(simulated=True), {})

    frame = frames.frame(page, key_actions.State(), frames.Size(200, 9), UTF8, trouble="lost")

    assert words(frame)[0].startswith("lab-1  2 cards (simulated)")
    assert words(frame)[0].endswith(" (old: lost)")


def test_nobody_there_is_said() -> None:
    """Below the cards."""
    lines = words(drawn(ps_views.view(), frames.Size(100, 20)))

    assert "Nothing runs under Partage here, and nobody waits." in lines


@pytest.mark.parametrize(
    ("state", "bottom"),
    [
        ({}, "h help  q quit  [ ] move the table"),
        ({"filter": "tr"}, "h help  q quit  [ ] move the table  only /tr"),
        ({"mode": key_actions.Mode.FILTERING, "filter": "tr"}, "/tr_"),
        ({"said": "sent\x1b[2J"}, "sent?[2J"),
    ],
)
def test_the_bottom_says_what_is_going_on(state: dict[str, Any], bottom: str) -> None:
    """And never moves the cursor."""
    assert words(drawn(machine(1), frames.Size(80, 20), **state))[-1] == bottom


def test_a_table_with_room_is_not_moved() -> None:
    """And nobody is told of keys that would do nothing."""
    frame = drawn(ps_views.view(ps_views.tenant()), frames.Size(200, 20), aside=80)

    assert frame.aside == 0
    assert words(frame)[-1] == "h help  q quit"
    assert any(line.startswith("NAME") for line in words(frame))


def test_what_was_cut_off_is_seen_aside() -> None:
    """All rows move alike, and no further than to their end; the heading stays where it is."""
    view = ps_views.view(ps_views.tenant(), waiting=(ps_views.waiting(),))
    size = frames.Size(40, 20)
    before, after = drawn(view, size), drawn(view, size, aside=16)
    end = drawn(view, size, aside=10_000)

    whole = words(drawn(view, frames.Size(500, 20)))
    assert words(after)[1:-1] == [line[16:56] for line in whole[1:-1]]
    assert words(after)[0] == words(before)[0]
    assert end.aside == max(map(len, whole[1:-1])) - 40
    assert any(line.endswith("TENANTS") for line in words(end))  # the widest table's last column


def test_half_a_character_is_a_blank() -> None:
    """One in Chinese takes two columns; those behind it stay in theirs."""
    view, size = ps_views.view(ps_views.tenant("漢字"), ps_views.tenant("ab")), frames.Size(50, 20)

    lines = words(drawn(view, size, aside=3))

    starts = {cells.cell_len(line.partition("alice")[0]) for line in lines if "alice" in line}
    assert starts == {3}


def test_help_tells_every_key() -> None:
    """In place of the page, and whole on a usual terminal."""
    frame = drawn(machine(1), frames.Size(80, 24), mode=key_actions.Mode.HELPING)

    for keys, what in key_actions.HELP:
        assert any(line.startswith(keys) and line.endswith(what) for line in words(frame))


def test_history_is_what_was_seen() -> None:
    """Of each card, the newest last; bars and history come first, for small terminals."""
    seen = history.History()
    for percent in (0, 50, None, 100):
        page = machine_page.page(
            ps_views.view(cards=(ps_views.card(0, utilization_percent=percent),)), {}
        )
        seen.add(page)

    shown = seen.shown(page).cards

    assert shown.header[:4] == ("CARD", "MEMORY", "COMPUTE", "LATELY")
    assert sorted(shown.header) == sorted((*machine_page.CARD, "LATELY"))
    assert UTF8.trend(shown.lines[0].cells[3].trend) == "▁▅ █"
    assert ASCII.trend(shown.lines[0].cells[3].trend) == "_+ #"


def test_a_bar_never_breaks_its_frame() -> None:
    """Whatever the driver says."""
    assert [UTF8.bar(part) for part in (-1, 0.5, 7)] == ["░" * 10, "█" * 5 + "░" * 5, "█" * 10]
