"""The version: it stands in one place, and is written from there to where others read it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    """The script that writes it; scripts are not a package."""
    spec = importlib.util.spec_from_file_location("versions", ROOT / "scripts/versions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("name", "line", "changed"),
    [
        ("docs/image.md", "oci:dist/partage-1.2.3-image:1.2.3 x/partage:1.2.3@sha256:", "10.0.1"),
        ("deploy/agent.yaml", "image: localhost/partage:1.2.3 # docs/image.md", "10.0.1"),
        ("deploy/chart/partage/Chart.yaml", "appVersion: 1.2.3", "10.0.1"),
        ("deploy/Containerfile", 'image.version="1.2.3" \\', "10.0.1"),
    ],
)
def test_each_kind_of_place_gets_it(
    versions: ModuleType, name: str, line: str, changed: str
) -> None:
    """Every time that it stands there."""
    assert versions.changed(line, name, changed) == line.replace("1.2.3", changed)


@pytest.mark.parametrize(
    "line", ["registry.k8s.io/kube-scheduler:v1.36.3", "version: 1.2.3", "containerd 2.3.7"]
)
def test_versions_of_others_stay(versions: ModuleType, line: str) -> None:
    """Whatever they look like."""
    assert versions.changed(line, "docs/image.md", "10.0.1") == line


def test_no_place_has_another_one() -> None:
    """`make lint` says so, too; here it is said what to do."""
    command = [sys.executable, "scripts/versions.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
