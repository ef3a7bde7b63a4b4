"""Strategies for limits and changes of them."""

from __future__ import annotations

from hypothesis import strategies as st

from partage.fence.store import layout, limits
from tests.fence.small_limits import GIB, uuid


@st.composite
def card_limits(draw: st.DrawFn, number: int) -> limits.CardLimits:
    """All that can be said about one card."""
    mode = draw(st.sampled_from(limits.Mode))
    least = 0 if mode is limits.Mode.BEST_EFFORT else 1
    part = 0 if mode is limits.Mode.NONE else draw(st.integers(least, layout.WHOLE))
    burst = mode is limits.Mode.BURST
    return limits.CardLimits(
        uuid=uuid(number),
        memory_bytes=draw(st.integers(1, limits.NO_QUOTA)),
        context_bytes=draw(st.integers(0, 4 * GIB)),
        mode=mode,
        share_millionths=part,
        ceiling_millionths=draw(st.integers(part, layout.WHOLE)) if burst else 0,
        paused=draw(st.booleans()),
        yields_to=draw(st.frozensets(st.integers(0, layout.FIRST_SEATS))),
    )


@st.composite
def all_limits(draw: st.DrawFn, *, most_cards: int = 3) -> limits.Limits:
    """Limits of a tenant with a few cards."""
    count = draw(st.integers(1, most_cards))
    cards = tuple(draw(card_limits(number)) for number in range(count))
    return limits.Limits(cards, draw(st.sampled_from(limits.OnFailure)))


def changes() -> st.SearchStrategy[limits.Change]:
    """What can be asked for, sensible or not."""
    percent = st.none() | st.integers(-1, 101)
    return st.builds(
        limits.Change,
        memory_bytes=st.none() | st.integers(0, limits.NO_QUOTA),
        compute_percent=percent,
        ceiling_percent=percent,
        mode=st.none() | st.sampled_from(limits.Mode),
        paused=st.none() | st.booleans(),
    )
