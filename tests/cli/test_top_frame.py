"""The frame: it fits any terminal, and shows who is selected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import cells, text

from partage.cli import ps_rows, top_drawing, top_frame, top_history, top_steering
from partage.local import views
from tests.cli import ps_views

UTF8, ASCII = top_drawing.Pen("utf-8"), top_drawing.Pen("ascii")
SIZES = st.builds(top_frame.Size, st.integers(1, 200), st.integers(1, 60))


def machine(tenants: int, waiting: int = 0) -> views.View:
    """With so many tenants, and so many who wait."""
    return ps_views.view(
        *(ps_views.tenant(f"tenant-{i:03}", granted_at=i) for i in range(tenants)),
        waiting=tuple(ps_views.waiting(f"waiter-{i:03}", place=i + 1) for i in range(waiting)),
        problems=(views.Problem("driver", "long " * 50),),
    )


def drawn(
    view: views.View, size: top_frame.Size, *, offset: int = 0, **state: Any
) -> top_frame.Frame:
    """A frame of a machine."""
    page = ps_rows.page(view, {})
    settled = top_steering.settled(top_steering.State(**state), page)
    return top_frame.frame(page, settled, size, UTF8, offset=offset)


def words(frame: top_frame.Frame) -> list[str]:
    """The lines without their styles."""
    return [line.plain for line in frame.lines]


def chosen(frame: top_frame.Frame) -> list[text.Text]:
    """The lines in reverse."""
    return [line for line in frame.lines if any("reverse" in str(s.style) for s in line.spans)]


@given(SIZES, st.integers(0, 40), st.integers(0, 5), st.integers(0, 80), st.data())
def test_who_is_selected_is_seen(
    size: top_frame.Size, tenants: int, waiting: int, offset: int, data: st.DataObject
) -> None:
    """On any terminal, from wherever the screen was scrolled to; no line is too long."""
    view = machine(tenants, waiting)
    keys = [line.key for line in ps_rows.page(view, {}).selectable]
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
    """The screen is full if there is enough; who is seen below the first line stays where he is."""
    selected = data.draw(st.integers(0, total - 1))

    at = top_frame.scrolled(offset, height, total, (selected, selected), selected)

    assert 0 <= at <= max(0, total - height)
    assert at <= selected < at + height
    if offset < selected < offset + height and offset <= total - height:
        assert at == offset


def test_the_ends_show_what_is_beyond() -> None:
    """The cards above the first tenant, the problems below the last."""
    view, size = machine(30), top_frame.Size(100, 10)
    first, *_, last = [line.key for line in ps_rows.page(view, {}).selectable]

    assert words(drawn(view, size, selected=first, offset=20))[1].startswith("CARD")
    assert words(drawn(view, size, selected=last))[-2].startswith("driver")


def test_columns_keep_their_names() -> None:
    """When the header is scrolled away it stands in for the first line."""
    view, size = machine(30), top_frame.Size(100, 10)
    keys = [line.key for line in ps_rows.page(view, {}).selectable]

    frame = drawn(view, size, selected=keys[15])

    assert frame.offset > 0
    assert words(frame)[1].startswith("NAME")
    assert words(frame)[-2].startswith("tenant-015")


@given(SIZES, st.sampled_from(top_steering.Mode))
def test_ascii_is_all_that_some_have(size: top_frame.Size, mode: top_steering.Mode) -> None:
    """Bars, arrows, history and the names of others."""
    view = ps_views.view(ps_views.tenant("tr\u00e4in"), node="h\u00f4te")
    page = ps_rows.page(view, {})
    history = top_history.History()
    history.add(page)
    state = top_steering.State(mode=mode, column=2, wanted="\u00e4")

    frame = top_frame.frame(history.shown(page), state, size, ASCII)

    assert all(line.isascii() for line in words(frame))


def test_wide_characters_keep_the_columns() -> None:
    """A name in Chinese takes two columns for each character."""
    view = ps_views.view(ps_views.tenant("漢字"), ps_views.tenant("ab"))

    lines = words(drawn(view, top_frame.Size(120, 20)))

    starts = {cells.cell_len(line.partition("alice")[0]) for line in lines if "alice" in line}
    assert len(starts) == 1


def test_the_heading_says_that_cards_are_simulated() -> None:
    """Where even a small terminal shows it, with the moment and what is wrong."""
    page = ps_rows.page(ps_views.view(simulated=True), {})

    frame = top_frame.frame(
        page, top_steering.State(), top_frame.Size(200, 9), UTF8, trouble="lost"
    )

    assert words(frame)[0].startswith("lab-1  2 cards (simulated)")
    assert words(frame)[0].endswith(" (old: lost)")


def test_nobody_there_is_said() -> None:
    """Below the cards."""
    lines = words(drawn(ps_views.view(), top_frame.Size(100, 20)))

    assert "Nothing runs under Partage here, and nobody waits." in lines


@pytest.mark.parametrize(
    ("state", "bottom"),
    [
        ({}, "h help  q quits"),
        ({"wanted": "tr"}, "h help  q quits  only /tr"),
        ({"mode": top_steering.Mode.FILTERING, "wanted": "tr"}, "/tr_"),
        ({"said": "sent\x1b[2J"}, "sent?[2J"),
    ],
)
def test_the_bottom_says_what_is_going_on(state: dict[str, Any], bottom: str) -> None:
    """And never moves the cursor."""
    assert words(drawn(machine(1), top_frame.Size(80, 20), **state))[-1] == bottom


def test_help_tells_every_key() -> None:
    """In place of the page."""
    frame = drawn(machine(1), top_frame.Size(120, 20), mode=top_steering.Mode.HELPING)

    for keys, what in top_steering.HELP:
        assert any(line.startswith(keys) and line.endswith(what) for line in words(frame))


def test_history_is_what_was_seen() -> None:
    """Of each card, the newest last; bars and history come first, for small terminals."""
    history = top_history.History()
    for percent in (0, 50, None, 100):
        page = ps_rows.page(
            ps_views.view(cards=(ps_views.card(0, utilization_percent=percent),)), {}
        )
        history.add(page)

    shown = history.shown(page).cards

    assert shown.header[:4] == ("CARD", "MEMORY", "COMPUTE", "LATELY")
    assert sorted(shown.header) == sorted((*ps_rows.CARD, "LATELY"))
    assert UTF8.trend(shown.lines[0].cells[3].trend) == "▁▅ █"
    assert ASCII.trend(shown.lines[0].cells[3].trend) == "_+ #"


def test_a_bar_never_breaks_its_frame() -> None:
    """Whatever the driver says."""
    assert [UTF8.bar(part) for part in (-1, 0.5, 7)] == ["░" * 10, "█" * 5 + "░" * 5, "█" * 10]
