"""``make lint`` finds words and variables that the glossary forbids, and nothing else."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: pathlib.Path) -> pathlib.Path:
    """The page alone, with nothing wrong in it."""
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "docs/architecture.md", tmp_path / "docs")
    return tmp_path


def _complaints(checkout: pathlib.Path, module: str, folder: str = "src/partage") -> str:
    (checkout / folder).mkdir(parents=True)
    (checkout / folder / "module.py").write_text(module)
    command = [sys.executable, str(ROOT / "scripts/glossary.py")]
    return subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=False
    ).stderr.strip()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ("def f(each): ...", "module.py:1: 'each' does not say what the variable holds"),
        ("_known = 1", "module.py:1: '_known' does not say what the variable holds"),
        ("print('the card is sick')", "module.py:1: the glossary has another word for 'sick'"),
        ("class SickList: ...", "module.py:1: the glossary has another word for 'Sick'"),
        ("class NodeWorld: ...", "module.py:1: the glossary has another word for 'World'"),
    ],
)
def test_what_is_forbidden_is_found(checkout: pathlib.Path, module: str, complaint: str) -> None:
    """In strings, in names, and in what is bound."""
    assert _complaints(checkout, module).endswith(complaint)


@pytest.mark.parametrize(
    "module",
    [
        '"""Each card that was found there is known."""',
        "class Shortage:\n    asked: int = 0\n",
        "unhealthy_card = classic = 1",
    ],
)
def test_what_is_allowed_is_left_alone(checkout: pathlib.Path, module: str) -> None:
    """English sentences, fields of structs, and words that contain another."""
    assert _complaints(checkout, module) == ""


@pytest.mark.parametrize(
    "folder",
    ["src/partage/core/policies", "tests", "tests/local", "bench", "cluster", "native", "scripts"],
)
def test_variables_are_checked_in_all_code(checkout: pathlib.Path, folder: str) -> None:
    """However deep a module is."""
    complaint = f"{folder}/module.py:1: 'found' does not say what the variable holds"
    assert _complaints(checkout, "found = 1", folder) == complaint
