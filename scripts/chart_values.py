"""Check the values of the chart, and write their table: `python scripts/chart_values.py [--check]`.

A value stands in two files: values.yaml has its default, and values.schema.json says what it is and
what it may be. The table of the chart's README.md is made of both. What the schema lists is also
held against the code, so that a dialect that is added can be chosen.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from partage.agent.metrics import old_names
from partage.dialects import registry

_CHART = Path("deploy/chart/partage")
_PAGE = _CHART / "README.md"
_BEGIN, _END = "<!-- Made by scripts/chart_values.py; do not edit. -->\n\n", "\n<!-- To here. -->\n"
_HEAD = "| value | default | what |\n|---|---|---|\n"
_OF_HELM = "global"


def main() -> None:
    schema = json.loads((_CHART / "values.schema.json").read_text())
    described = dict(_described(schema["properties"], ""))
    defaults = dict(_defaults(yaml.safe_load((_CHART / "values.yaml").read_text()), "", described))
    problems = [*_differences(described, defaults), *_outdated(described)]
    if problems:
        sys.exit("\n".join(problems))
    written = _PAGE.read_text()
    made = _with_table(written, described, defaults)
    if sys.argv[1:] == ["--check"]:
        sys.exit(None if made == written else "run `python scripts/chart_values.py`")
    _PAGE.write_text(made)


def _described(properties: dict[str, Any], prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The values that the schema has, by their dotted names."""
    for name, value in properties.items():
        if "properties" in value:
            yield from _described(value["properties"], f"{prefix}{name}.")
        elif name != _OF_HELM:
            yield prefix + name, value


def _defaults(
    values: dict[str, Any], prefix: str, described: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and prefix + name not in described:
            yield from _defaults(value, f"{prefix}{name}.", described)
        else:
            yield prefix + name, value


def _differences(described: dict[str, Any], defaults: dict[str, Any]) -> Iterator[str]:
    for name in sorted(described.keys() ^ defaults.keys()):
        where = "values.yaml" if name in described else "values.schema.json"
        yield f"{name} is missing in {_CHART / where}"
    for name, value in described.items():
        if not value.get("description"):
            yield f"{name} has no description in {_CHART / 'values.schema.json'}"


def _outdated(described: dict[str, Any]) -> Iterator[str]:
    resources = [name for dialect in registry.DIALECTS for name in dialect.resources]
    lists = {
        "agent.dialects": registry.dialect_names(),
        "agent.oldMetrics": old_names.FAMILIES,
        "scheduler.unmanagedResources": resources,
    }
    for name, words in lists.items():
        if set(described[name]["items"]["enum"]) != set(words):
            yield f"{name} in {_CHART / 'values.schema.json'} has to list {', '.join(words)}"


def _with_table(page: str, described: dict[str, Any], defaults: dict[str, Any]) -> str:
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    rows = "".join(
        f"| `{name}` | {_shown(defaults[name])} | {_what(value)} |\n"
        for name, value in described.items()
    )
    return before + _BEGIN + _HEAD + rows + _END + after


def _shown(default: Any) -> str:
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{text}`" if text else ""


def _what(value: dict[str, Any]) -> str:
    words = value.get("enum") or []
    choices = f" One of {', '.join(f'`{word}`' for word in words)}." if words else ""
    return f"{value['description']}{choices}".replace("|", "\\|")


if __name__ == "__main__":
    main()
