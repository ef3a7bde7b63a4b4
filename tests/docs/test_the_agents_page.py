"""Documentation of the agent: its flags, resources and texts are those of the code."""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

import click
import pytest

from partage.cli.commands import agent
from partage.core import cards
from partage.dialects import contract, registry
from partage.kubelet import device_lists, errors

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "agent.md").read_text(encoding="utf-8")
SOURCES = sorted((ROOT / "src" / "partage").rglob("*.py"))
_SYMPTOMS = PAGE.partition("## Something is wrong")[2]
TEXTS = [
    text
    for row in re.findall(r"^\|([^|]+)\|", _SYMPTOMS, flags=re.MULTILINE)
    for text in re.findall(r"`([^`]+)`", row)
]


def test_every_flag_is_there() -> None:
    """In one of its spellings."""
    options = [option for option in agent.agent.params if isinstance(option, click.Option)]
    written = set(re.findall(r"`(--?[a-z0-9-]+)", PAGE))
    missing = [option.opts for option in options if written.isdisjoint(option.opts)]
    assert missing == []


def test_every_resource_that_is_offered_is_in_the_table() -> None:
    """By its name, or by its last part after another of its family."""
    card = cards.Card(uuid="GPU-0", index=0, memory_mib=16384)
    names = [dialect.name for dialect in registry.DIALECTS]
    node = cards.Node(name="n", cards=(card,))
    table = PAGE.partition("## What it offers")[2].partition("## What a container gets")[0]
    for resource in registry.offered(node, contract.Settings(), names):
        domain, _, rest = resource.partition("/")
        assert f"`{resource}`" in table or (f"`{domain}/" in table and f"`{rest}`" in table)


def test_the_number_of_units_that_the_kubelet_takes_is_as_written() -> None:
    """One more does not go through."""
    (written,) = set(re.findall(r"([\d,]+) units", PAGE))
    most = int(written.replace(",", ""))
    units = [device_lists.Unit(f"p{number}") for number in range(most + 100)]
    device_lists.checked("r", units[:most])
    with pytest.raises(errors.BadListing):
        device_lists.checked("r", units)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_of_troubles_are_those_of_the_code(text: str) -> None:
    """People who look for a text that they were shown find it."""
    assert any(text in string for path in SOURCES for string in _strings(path))


def test_there_are_texts() -> None:
    """The patterns above find them."""
    assert len(TEXTS) > 10


def _strings(path: pathlib.Path) -> Iterator[str]:
    """All texts of a module, with what is filled in left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            yield "".join(_constant(part) for part in node.values)
        else:
            yield _constant(node)


def _constant(node: ast.AST) -> str:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return str(node.value) if is_text and isinstance(node, ast.Constant) else ""
