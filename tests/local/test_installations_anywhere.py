"""Partage holds programs wherever it is installed, whatever signs are in the path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import partage
from tests.local import sites

RUN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from partage.cli import main; main.main()"


@pytest.mark.parametrize("name", ["with a blank", "with:a:colon", "with; both: of them"])
def test_a_limit_holds(tmp_path: Path, name: str) -> None:
    """The loader's lists cannot quote; so what they name is not where the installation is."""
    state = tmp_path / name
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(partage.__file__).parent, state / "partage", ignore=ignored)
    site = sites.Site(tmp_path)

    def run(mib: int) -> subprocess.CompletedProcess[str]:
        program = [sys.executable, str(sites.PROGRAM), "try", str(mib)]
        return subprocess.run(
            [sys.executable, "-c", RUN, str(state), "run", "--memory", "1GiB", "--", *program],
            env=site.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=sites.PATIENCE_S,
        )

    assert run(500).stdout == "got it\n"
    assert run(3000).stdout == "error 2\n"
