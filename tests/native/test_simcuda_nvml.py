"""NVML of the simulated driver finds and describes cards as the real one does."""

from __future__ import annotations

from tests.native import driver_areas
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_nvml.c")


def test_users_begin_and_end_for_themselves(area: Area) -> None:
    """The library is there from the first that begins to the last that ends."""
    area("users")


def test_a_card_has_one_handle_however_it_is_found(area: Area) -> None:
    """By index, identity or place on the bus, as CUDA tells it."""
    area("handles")


def test_a_text_that_does_not_fit_is_not_begun(area: Area) -> None:
    """Names, serial numbers, versions; and words for errors, also for unknown ones."""
    area("texts")


def test_older_versions_of_a_struct_are_not_written_beyond(area: Area) -> None:
    """And one that says to be of another version is refused."""
    area("versions")


def test_what_is_set_on_a_card_is_told_of_it(area: Area) -> None:
    """Its compute mode and its persistence."""
    area("modes")


def test_cards_are_connected_over_pci_alone(area: Area) -> None:
    """Two below one switch, without NVLink, and near all processors."""
    area("topology")


def test_a_list_of_processes_is_written_whole_or_not_at_all(area: Area) -> None:
    """One who asks without room is told how many there are."""
    area("processes")


def test_events_are_waited_for_as_long_as_was_said(area: Area) -> None:
    """Those of a kind that cards do not have are refused."""
    area("events")
