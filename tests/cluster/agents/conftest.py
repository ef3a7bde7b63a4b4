"""One site for all tests of this folder; each test finds it without pods, and all of it running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.node import node
from cluster.node.node import Node
from tests.cluster.agents.site import Site


@pytest.fixture(scope="module")
def whole_site(
    nodes: tuple[Node, Node], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The site, started once for the tests of a file: that takes seconds."""
    made = Site(nodes, tmp_path_factory.mktemp("site"))
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def site(whole_site: Site, nodes: tuple[Node, Node]) -> Iterator[Site]:
    """The site without pods, whatever the test before did to it."""
    node.clear(nodes)
    whole_site.start()
    yield whole_site
    whole_site.plane.stop_scheduler()
