"""One control plane for all tests of this folder, and what to do where it cannot be had.

It is started once, as that takes seconds, and emptied before each test. Building its programs takes
minutes the first time and needs Go. Where they cannot be built the tests are left out.

Tests of real nodes have another one, with its controllers and two nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cluster.control_plane.control_plane import APISERVER, ControlPlane
from cluster.node import node, partage_image
from cluster.node.node import Node
from cluster.partage_processes import extender_process
from cluster.programs import kubernetes_build
from tests.leaving_out import leave_out


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> Path:
    """The folder of the programs, built if need be."""
    # pytest shows what a fixture prints only if it fails, but a build of minutes has to be seen.
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    try:
        with capture.global_and_fixture_disabled():
            return kubernetes_build.ensure()
    except kubernetes_build.CannotBuild as error:
        leave_out("the control plane", error)


@pytest.fixture(scope="session")
def helm_program(request: pytest.FixtureRequest) -> Path:
    """The program helm, built if need be."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    try:
        with capture.global_and_fixture_disabled():
            return kubernetes_build.ensure_helm()
    except kubernetes_build.CannotBuild as error:
        leave_out("the chart", error)


@pytest.fixture(scope="session")
def control_plane(
    programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane]:
    """The control plane that all tests share, whatever the one before left in it."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane")) as started:
        yield started


@pytest.fixture
def clean_cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """The same without pods, nodes or scheduler; a test may stop and start its parts at will."""
    control_plane.client.clear()
    yield control_plane
    control_plane.stop_scheduler()
    if APISERVER not in control_plane.pids():
        control_plane.start_apiserver()


@pytest.fixture(scope="session")
def nodes(programs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    """Two real nodes, one with cards of different sizes.

    Their ``plane`` has no scheduler until one is started.
    """
    try:
        node.check_machine()
        kubernetes_build.ensure_runc()
    except (node.CannotRun, kubernetes_build.CannotBuild) as error:
        leave_out("real nodes", error)
    folder = tmp_path_factory.mktemp("nodes")
    with ControlPlane(folder / "control-plane", controllers=True) as plane:
        started = (
            Node(plane, folder / "1", 1),
            Node(plane, folder / "2", 2, cards="24GiB,12GiB,60GiB,8GiB"),
        )
        try:
            node.start_all(started)
            yield started
        finally:
            for real_node in started:
                real_node.stop()


@pytest.fixture(scope="session")
def partage_archive(request: pytest.FixtureRequest) -> Path:
    """The archive of Partage's image, made if need be."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    try:
        with capture.global_and_fixture_disabled():
            return partage_image.ensure()
    except partage_image.CannotMake as error:
        leave_out("the image of Partage", error)


@pytest.fixture(scope="session")
def nodes_with_image(nodes: tuple[Node, Node], partage_archive: Path) -> tuple[Node, Node]:
    """The same nodes, which have Partage's image besides the one of tests."""
    for real_node in nodes:
        real_node.import_archive(partage_archive)
    return nodes


@pytest.fixture
def clean_nodes(nodes: tuple[Node, Node]) -> tuple[Node, Node]:
    """The same nodes without pods or containers."""
    node.clear(nodes)
    return nodes


@pytest.fixture
def new_extender(
    clean_cluster: ControlPlane, tmp_path: Path
) -> Iterator[Callable[..., extender_process.Extender]]:
    """Makes replicas of the extender, which are gone when the test ends."""
    made: list[extender_process.Extender] = []

    def new(*options: str) -> extender_process.Extender:
        name = f"extender-{len(made)}"
        extender = extender_process.Extender(
            tmp_path, clean_cluster.kubeconfig, name=name, options=options
        )
        made.append(extender)
        return extender

    yield new
    for extender in made:
        extender.close()


@pytest.fixture
def extender(new_extender: Callable[..., extender_process.Extender]) -> extender_process.Extender:
    """One replica, started when the test says so."""
    return new_extender()
