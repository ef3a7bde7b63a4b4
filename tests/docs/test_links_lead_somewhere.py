"""Documentation: every relative link leads to a file that is there."""

from __future__ import annotations

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page: pathlib.Path) -> None:
    """A page that is named exists, and so does the heading."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path, _, heading = target.partition("#")
        if path.startswith("http"):
            continue
        linked = (page.parent / path) if path else page
        assert linked.exists(), f"{page.name} links to {target}"
        if heading:
            assert heading in _headings(linked), f"{page.name} links to {target}"


def _headings(page: pathlib.Path) -> set[str]:
    lines = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_there_are_pages() -> None:
    """The patterns above find them."""
    assert ROOT / "README.md" in PAGES
    assert ROOT / "docs" / "architecture.md" in PAGES
