"""Write the manifests that follow from the code: `python scripts/manifests.py [--check]`.

The API server is told the names of all dialects' resources, in expressions. They are made from the
registry, so that a family that is added there is guarded, completed and judged as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from partage.admission import guard, webhooks

_FOLDER = Path("deploy")
_MADE = "# Made by scripts/manifests.py; do not edit.\n"
_GUARD = """\
# The guard: what a pod must not be, so that nobody gets around a fence or forges a grant. It needs
# no program of Partage's to run. The label partage.dev/guard=off excepts a namespace.
# docs/admission.md has the rules. To try it first, write [Warn, Audit] for [Deny].
"""
_WEBHOOKS = """\
# By these the API server asks `partage admission` (admission.yaml), which fills in its authority.
# While it is down, pods that ask for cards are refused, and all others come in.
"""


def main() -> None:
    made = dict(_manifests())
    if sys.argv[1:] == ["--check"]:
        old = [str(path) for path, text in made.items() if path.read_text() != text]
        sys.exit(f"run `python scripts/manifests.py`: {', '.join(old)}" if old else 0)
    for path, text in made.items():
        path.write_text(text)


def _manifests() -> Iterator[tuple[Path, str]]:
    yield _FOLDER / "guard.yaml", _MADE + _GUARD + _yaml(guard.policies())
    configurations = webhooks.configurations(webhooks.Service())
    yield _FOLDER / "admission-webhooks.yaml", _MADE + _WEBHOOKS + _yaml(configurations)


class _Dumper(yaml.SafeDumper):
    """Lists are indented as everywhere in deploy, and no anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _yaml(objects: list[dict[str, Any]]) -> str:
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=120)


if __name__ == "__main__":
    main()
