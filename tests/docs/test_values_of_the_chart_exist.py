"""Values of the chart that pages, notes and messages tell to set are values that it has."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.docs import blocks

CHART = blocks.ROOT / "deploy/chart/partage"
TEXTS = sorted(
    [
        *(blocks.ROOT / "docs").glob("**/*.md"),
        *(blocks.ROOT / "src/partage/cli/cluster").glob("**/*.py"),
        *(blocks.ROOT / "README.md", CHART / "README.md", CHART / "templates/NOTES.txt"),
        CHART / "templates/_checks.tpl",
    ]
)


def _names(properties: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in properties.items():
        yield prefix + name
        yield from _names(value.get("properties", {}), f"{prefix}{name}.")


NAMES = set(_names(json.loads((CHART / "values.schema.json").read_text())["properties"]))
GROUPS = "|".join(sorted({name.partition(".")[0] for name in NAMES if "." in name}))
CHOICE = re.compile(rf"\b(?:{GROUPS})(?:\.[A-Za-z]+)+(?==)")


def _choices(path: pathlib.Path) -> set[str]:
    return set(CHOICE.findall(path.read_text()))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(blocks.ROOT)))
def test_what_is_told_to_be_set_can_be_set(path: pathlib.Path) -> None:
    """Helm refuses a name that the chart does not have, at the worst moment."""
    assert _choices(path) <= NAMES


def test_there_are_choices() -> None:
    """Otherwise the pattern would find nothing."""
    assert len(set().union(*map(_choices, TEXTS))) > 10
