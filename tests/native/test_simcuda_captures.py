"""Graphs that are captured do what the calls do that they are made of."""

from __future__ import annotations

from tests.native import driver_areas
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_captures.c")


def test_what_is_captured_happens_at_each_launch_and_not_before(area: Area) -> None:
    """Kernels, settings and copies, in their order."""
    area("captured")


def test_a_second_stream_joins_a_capture_and_has_to_be_waited_for(area: Area) -> None:
    """By events, as the streams would order themselves."""
    area("joined")


def test_what_waits_makes_a_capture_worthless(area: Area) -> None:
    """It cannot be recorded, and the end of the capture says so."""
    area("spoiled")


def test_a_captured_allocation_may_be_left_to_the_next_launch(area: Area) -> None:
    """It outlives its graph, and is freed by the next launch if that was asked for."""
    area("captured memory")


def test_a_graph_takes_as_long_as_its_kernels(area: Area) -> None:
    """By the card's own time."""
    area("timed")
