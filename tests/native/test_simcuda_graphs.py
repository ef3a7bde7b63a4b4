"""Graphs of the simulated driver run, change and allocate as they were built."""

from __future__ import annotations

from tests.native import driver_areas
from tests.native.driver_areas import Area

area = driver_areas.fixture("sim_graphs.c")


def test_nodes_run_after_those_they_depend_on(area: Area) -> None:
    """In whatever order they were added; a circle cannot run at all."""
    area("ordered")


def test_a_graph_may_contain_graphs_functions_and_objects(area: Area) -> None:
    """A child is a copy, and the last one who holds an object lets go of it."""
    area("nested")


def test_what_is_launched_can_be_changed(area: Area) -> None:
    """A node's parameters, whether it runs, or all at once if the shape is the same."""
    area("changed")


def test_memory_of_a_graph_is_there_from_launch_to_free(area: Area) -> None:
    """At the same address each time; afterwards it stays reserved until it is asked back."""
    area("memory")


def test_an_upload_takes_the_memory_of_all_graphs_within(area: Area) -> None:
    """So that the launch need not."""
    area("uploaded")


def test_an_upload_takes_nothing_for_what_the_graph_has(area: Area) -> None:
    """What it left allocated is at the addresses that it would be uploaded to."""
    area("uploaded again")


def test_a_graph_with_memory_moves_instead_of_being_copied(area: Area) -> None:
    """It has one owner and one executable graph, as CUDA documents it."""
    area("owned")


def test_an_update_changes_the_memory_of_all_graphs_within(area: Area) -> None:
    """From a graph that is not instantiated elsewhere; single memory nodes cannot be changed."""
    area("updated")


def test_what_a_node_cannot_do_shows_at_the_launch(area: Area) -> None:
    """With an error, whatever its numbers add up to."""
    area("impossible")
