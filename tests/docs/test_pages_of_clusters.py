"""Pages of other clusters: each shows the values that tests render, and says what was tried."""

from __future__ import annotations

import pathlib

import pytest
import yaml

from tests.docs import blocks

PAGES = sorted(
    page for page in (blocks.ROOT / "docs/clusters").glob("*.md") if page.stem != "README"
)
VALUES = blocks.ROOT / "deploy/chart/clusters"


def test_each_page_has_a_file_of_values() -> None:
    """And each file a page, and all are listed."""
    names = {page.stem for page in PAGES}
    assert {path.stem for path in VALUES.iterdir()} == names
    listed = (blocks.ROOT / "docs/clusters/README.md").read_text()
    assert all(f"]({name}.md)" in listed for name in names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_shows_its_values(page: pathlib.Path) -> None:
    """What it shows is what the file has, and the command names that file."""
    (shown,) = (b for b in blocks.of("yaml") if b.page == f"docs/clusters/{page.name}")
    values = VALUES / f"{page.stem}.yaml"
    assert yaml.safe_load(shown.text) == yaml.safe_load(values.read_text())
    assert f"--values {values.relative_to(blocks.ROOT)}\n" in page.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_that_it_was_not_tried(page: pathlib.Path) -> None:
    """In its first sentence, until somebody has tried it."""
    assert page.read_text().split("\n")[2].startswith("**Not tried")
