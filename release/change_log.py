"""The change log of a release, from fragments: `python -m release.change_log [--release DATE]`.

Without options it prints what the next version will say. With `--release 2026-12-01` it writes that
into CHANGELOG.md, under the version of `src/partage/__init__.py`, and deletes the fragments.
"""

from __future__ import annotations

import argparse
import datetime as dt
import re
import sys
from pathlib import Path

LOG = "CHANGELOG.md"
FRAGMENTS = "changelog.d"
KINDS = ("added", "changed", "fixed", "removed")
_UNRELEASED = "## [Unreleased]\n"
_NAME = re.compile(rf"[a-z0-9-]+\.({'|'.join(KINDS)})\.md")


class Problem(Exception):
    """What is wrong with a fragment, or with the log."""


def main() -> None:
    options = _options()
    try:
        texts = fragments(options.folder / FRAGMENTS)
        version = version_of((options.folder / "src/partage/__init__.py").read_text())
        if options.release is None:
            sys.stdout.write(section(version, "not released", texts))
            return
        log = options.folder / LOG
        date = options.release.isoformat()
        log.write_text(with_section(log.read_text(), version, section(version, date, texts)))
    except (Problem, OSError) as problem:
        sys.exit(f"changelog: {problem}")
    for path in texts:
        path.unlink()


def fragments(folder: Path) -> dict[Path, str]:
    """The texts of all fragments, each one paragraph."""
    paths = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    wrong = [path.name for path in paths if not _NAME.fullmatch(path.name)]
    if wrong:
        raise Problem(f"{wrong[0]}: a fragment is called <slug>.<{'|'.join(KINDS)}>.md")
    texts = {path: " ".join(path.read_text().split()) for path in paths}
    empty = [path.name for path, text in texts.items() if not text]
    if empty:
        raise Problem(f"{empty[0]} is empty: write what is different for users")
    return texts


def version_of(module: str) -> str:
    """The version, from the one place where it stands."""
    match = re.search(r'^__version__ = "([^"]+)"$', module, re.MULTILINE)
    if match is None:
        raise Problem('src/partage/__init__.py has no line __version__ = "..."')
    return match[1]


def section(version: str, date: str, texts: dict[Path, str]) -> str:
    """What the log says of a version: the fragments by their kind."""
    lines = [f"## [{version}] - {date}", ""]
    for kind in KINDS:
        chosen = [text for path, text in texts.items() if path.name.endswith(f".{kind}.md")]
        if chosen:
            lines += [f"### {kind.capitalize()}", "", *(f"- {text}" for text in chosen), ""]
    return "\n".join(lines) + "\n"


def with_section(log: str, version: str, added: str) -> str:
    """The log with a new version on top, below what is not released."""
    if f"## [{version}]" in log:
        raise Problem(f"{LOG} has {version} already: change __version__ first")
    before, heading, after = log.partition(_UNRELEASED)
    if not heading:
        raise Problem(f"{LOG} has no heading '## [Unreleased]'")
    return f"{before}{heading}\n{added}{after.lstrip()}"


def of_version(log: str, version: str) -> str:
    """What the log says of a version that was released; empty if it says nothing."""
    heading = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n"
    match = re.search(rf"{heading}(.*?)(?=^## \[|\Z)", log, re.MULTILINE | re.DOTALL)
    return match[0] if match else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Make the change log of a release.")
    parser.add_argument("--release", metavar="DATE", type=dt.date.fromisoformat)
    parser.add_argument("--folder", type=Path, default=Path(), help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
