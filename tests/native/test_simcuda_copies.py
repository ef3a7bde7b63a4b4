"""Device memory of the simulated driver really holds bytes."""

from __future__ import annotations

from tests.native import driver_areas
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_copies.c")


def test_bytes_survive_copies_between_host_and_device(area: Area) -> None:
    """To the device, within it, and back; at once or on a stream."""
    area("linear")


def test_what_lies_outside_of_an_allocation_cannot_be_reached(area: Area) -> None:
    """Before it, behind it, and after it was freed."""
    area("outside")


def test_settings_change_their_elements_and_nothing_between_rows(area: Area) -> None:
    """Of 8, 16 and 32 bits, in one row and in several."""
    area("settings")


def test_rows_are_copied_between_different_pitches(area: Area) -> None:
    """From the middle of one piece of memory to the middle of another."""
    area("rows")


def test_planes_are_copied_between_different_heights(area: Area) -> None:
    """The same with a third dimension."""
    area("planes")


def test_arrays_hold_bytes_and_cost_memory(area: Area) -> None:
    """From and to the host, the device and another array."""
    area("arrays")


def test_arrays_are_copied_by_rows_and_planes(area: Area) -> None:
    """Into the middle and out of it, and never beyond the shape."""
    area("shaped arrays")


def test_levels_of_a_mipmap_hold_bytes_of_their_own(area: Area) -> None:
    """Each half as large as the one before."""
    area("mipmaps")
