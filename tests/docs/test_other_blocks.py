"""Blocks of README and docs that are neither YAML nor commands: Python, settings, scripts."""

from __future__ import annotations

import ast
import importlib
import json
import pathlib
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from partage.admission import settings as admission_settings
from partage.dialects import nodes
from partage.scheduler import settings as extender_settings
from tests.docs import blocks
from tests.leaving_out import leave_out

LANGUAGES = {"", "console", "json", "promql", "python", "sh", "toml", "yaml"}
KUBECTL = """kubectl() {
    for word; do case $word in --from-file=*) test -s "${word#*=}" || exit 9 ;; esac; done
}"""
SCRIPTS = [block for block in blocks.of("sh") if block.text.startswith("openssl")]


def test_languages_are_known() -> None:
    """A language that no test here knows is checked by nobody."""
    assert {block.language for block in blocks.every()} == LANGUAGES


@pytest.mark.parametrize("block", blocks.of("toml"), ids=str)
def test_settings_are_all_there_with_their_defaults(
    block: blocks.Block, tmp_path: pathlib.Path
) -> None:
    """But for those whose default depends on others, and is shown as it usually is."""
    path = tmp_path / "settings.toml"
    path.write_text(block.text)
    load = _loader(block)
    shown = dict(_leaves(msgspec.to_builtins(load(str(path)))))
    defaults = dict(_leaves(msgspec.to_builtins(load(""))))
    assert {name for name, _ in _leaves(tomllib.loads(block.text))} == shown.keys()
    assert {name: value for name, value in shown.items() if defaults[name] is not None} == {
        name: value for name, value in defaults.items() if value is not None
    }


@pytest.mark.parametrize("block", blocks.of("json"), ids=str)
def test_the_record_of_a_node_can_be_read(block: blocks.Block) -> None:
    """Its cards are those that it names."""
    written = json.loads(block.text)
    node = nodes.Node(metadata=nodes.Metadata(annotations={nodes.CARDS: block.text}))
    cards = nodes.published(node) or ()
    assert [card.uuid for card in cards] == [card["uuid"] for card in written["cards"]]


@pytest.mark.parametrize("block", blocks.of("python"), ids=str)
def test_what_python_names_is_there(block: blocks.Block) -> None:
    """What it imports, and what it takes from a module."""
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    tree: ast.Module = compile(block.text, str(block), "exec", flags=flags)
    imported = dict(_imported(tree))
    assert imported, "a block says where its names are from"
    for part in ast.walk(tree):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            owner = imported.get(part.value.id)
            assert owner is None or hasattr(owner, part.attr), ast.unparse(part)


@pytest.mark.parametrize("block", SCRIPTS, ids=str)
def test_scripts_run(block: blocks.Block, tmp_path: pathlib.Path) -> None:
    """The certificates are made; kubectl, which would need a cluster, gets files that exist."""
    if shutil.which("openssl") is None:
        leave_out("certificates", "install openssl")
    script = f"set -e\n{KUBECTL}\n{block.text}"
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert {"ca.crt", "client.crt", "client.key"} <= {path.name for path in tmp_path.iterdir()}


def test_the_tables_of_partage_inspect_are_those_of_its_tests() -> None:
    """But for lines that the page shortens."""
    (shown,) = (block for block in blocks.of("console") if block.page == "docs/inspect.md")
    golden = (blocks.ROOT / "tests" / "cli" / "golden" / "inspect.table").read_text()
    (command,) = blocks.commands(shown)
    lines = [line for line in command.output.splitlines() if "..." not in line]
    assert [line for line in golden.splitlines() if line in lines] == lines


def test_there_are_scripts() -> None:
    """The pattern finds them."""
    assert SCRIPTS


def _loader(block: blocks.Block) -> Callable[[str], msgspec.Struct]:
    """What reads the settings of the program that the block's page is about."""
    if block.page.endswith("admission.md"):
        return lambda path: admission_settings.load(path, {})
    return lambda path: extender_settings.load(path, {}, {})


def _leaves(table: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings of a table and those inside it, by dotted names."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _imported(tree: ast.Module) -> Iterator[tuple[str, object]]:
    """The names that imports bind, and what they are bound to."""
    for statement in ast.walk(tree):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.asname or alias.name, importlib.import_module(alias.name)
        elif isinstance(statement, ast.ImportFrom) and statement.module:
            for alias in statement.names:
                yield alias.asname or alias.name, _member(statement.module, alias.name)


def _member(module: str, name: str) -> object:
    try:
        return importlib.import_module(f"{module}.{name}")
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), name)
