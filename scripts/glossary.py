"""Fail where the glossary of docs/architecture.md is not kept: one word for one thing.

Its tables have a column of words that are not used for the thing, in code, docs or output. Below
them is a list of names that say nothing about what a variable holds. Both are read from the page
itself, so that what is forbidden and what is told to newcomers cannot differ.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = Path("docs/architecture.md")
PROSE = (
    "src/**/*.py",
    "bench/**/*.py",
    "cluster/**/*.py",
    "native/**/*.py",
    "release/*.py",
    "docs/*.md",
    "docs/clusters/*.md",
    "README.md",
    "deploy/*.yaml",
    "deploy/chart/partage/**/*.*",
)
CODE = (
    "src/partage/**/*.py",
    "tests/**/*.py",
    "bench/**/*.py",
    "cluster/**/*.py",
    "native/**/*.py",
    "release/*.py",
    "scripts/*.py",
)
_ROW = re.compile(r"^\| \*\*[^|]+\|[^|]+\|(?P<never>[^|]*)\|$", re.MULTILINE)
_VARIABLES = re.compile(r"^Never a variable: (?P<names>.+)$", re.MULTILINE)
_GLOSSARY = ("| **", "Never a variable")  # the page itself has to name them
_QUOTED = re.compile(r"`([^`]+)`")


def main() -> None:
    page = PAGE.read_text()
    offences = [*_synonyms(page), *_vague_variables(page)]
    sys.exit("\n".join(offences) or 0)


def _synonyms(page: str) -> Iterator[str]:
    never = [word for row in _ROW.finditer(page) for word in _QUOTED.findall(row["never"])]
    if not never:
        sys.exit(f"{PAGE}: no row of the glossary names a word that is not used")
    any_case, in_a_name = "|".join(never), "|".join(word.capitalize() for word in never)
    words = re.compile(rf"((?<![A-Za-z])(?i:{any_case})|(?<=[a-z])(?:{in_a_name}))(?![a-z])")
    for path in _files(PROSE):
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            match = words.search(line)
            if match and not (path == PAGE and line.startswith(_GLOSSARY)):
                yield f"{path}:{number}: the glossary has another word for {match[0]!r}"


def _vague_variables(page: str) -> Iterator[str]:
    listed = _VARIABLES.search(page)
    if listed is None:
        sys.exit(f"{PAGE}: the line 'Never a variable: ...' is missing")
    vague = set(_QUOTED.findall(listed["names"]))
    for path in _files(CODE):
        for name, line in _bound(ast.parse(path.read_text())):
            if name.lstrip("_") in vague:
                yield f"{path}:{line}: {name!r} does not say what the variable holds"


def _bound(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Variables and parameters; not fields, which have a name beside their struct's."""
    fields = {
        id(statement.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.AnnAssign)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            if id(node) not in fields:
                yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno


def _files(patterns: tuple[str, ...]) -> Iterator[Path]:
    for pattern in patterns:
        yield from sorted(Path().glob(pattern))


if __name__ == "__main__":
    main()
