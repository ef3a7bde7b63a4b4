"""Write the version to where others read it: `python scripts/versions.py [--check]`.

It stands in `src/partage/__init__.py`. Helm, Docker and people read it elsewhere: in the chart, in
names of images, and in pages that show commands. What is rendered from the chart has it by
`make manifests`, which begins with this.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import partage

_NUMBER = r"\d+\.\d+\.\d+"
_EVERYWHERE = (
    rf"(\bpartage[:-])({_NUMBER})",  # an image, or a file of a release
    rf"(\bpartage-{_NUMBER}-image:)({_NUMBER})",
)
_IN_FILES = {
    "deploy/chart/partage/Chart.yaml": (rf"(?m)^((?:appV|v)ersion: )({_NUMBER})$",),
    "deploy/Containerfile": (rf'(image\.version=")({_NUMBER})',),
}
_DROP_IN = "src/partage/cli/cluster/adoption/gpushare-drop-in.yaml"
_READ = ("README.md", "SECURITY.md", "deploy", "docs", "examples", _DROP_IN)
_NOT_OURS = ("docs/decisions/",)  # they say what was true on their day


def main() -> None:
    made = {path: changed(text, str(path), partage.__version__) for path, text in _texts()}
    old = {path: text for path, text in made.items() if text != path.read_text()}
    if sys.argv[1:] == ["--check"]:
        names = ", ".join(map(str, old))
        sys.exit(f"run `make manifests`: another version is in {names}" if old else 0)
    for path, text in old.items():
        path.write_text(text)


def changed(text: str, name: str, version: str) -> str:
    """A file's text with this version in the place of any other one of Partage's."""
    for pattern in (*_EVERYWHERE, *_IN_FILES.get(name, ())):
        text = re.sub(pattern, lambda match: match[1] + version, text)
    return text


def _texts() -> Iterator[tuple[Path, str]]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *_READ]
    for name in subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.splitlines():
        if not name.startswith(_NOT_OURS) and Path(name).is_file():
            yield Path(name), Path(name).read_text()


if __name__ == "__main__":
    main()
