"""deploy/Containerfile makes an image of the same settings, of the same wheel and requirements."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from image import settings

DEPLOY = settings.CHECKOUT / "deploy"
TEXT = (DEPLOY / "Containerfile").read_text().replace("\\\n", " ")
_, LAST_STAGE = re.split(r"^FROM .* AS build$", TEXT, flags=re.MULTILINE)[1].split("\nFROM ")


def words(instruction: str) -> list[str]:
    """What follows an instruction in the last stage, wherever it stands."""
    return re.findall(rf"^{instruction} +(.*)$", LAST_STAGE, flags=re.MULTILINE)


def test_it_runs_the_same_as_the_same_user() -> None:
    """With no entry point, so that args in deploy/ are a command in both."""
    assert words("USER") == [f"{settings.USER}:{settings.USER}"]
    assert [json.loads(command) for command in words("CMD")] == [settings.COMMAND]
    assert words("ENTRYPOINT") == []


def test_it_has_the_same_labels() -> None:
    """But for the date, which the one of `make image` has from its lock."""
    (labels,) = words("LABEL")
    assert dict(re.findall(r'(\S+)="([^"]*)"', labels)) == settings.labels()


def test_it_installs_the_same_requirements_on_the_same_python() -> None:
    """And the wheel of a release above them."""
    assert set(re.findall(r"requirements/\S+\.txt", LAST_STAGE)) == set(settings.REQUIREMENTS)
    assert set(re.findall(r"python:([\d.]+)-slim", TEXT)) == {settings.PYTHON}
    assert "PARTAGE_RELEASE_FOR=$(uname -m) hatchling build --target wheel" in TEXT


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("*.yaml")), ids=lambda file: file.name)
def test_manifests_name_the_image_and_its_user(file: Path) -> None:
    """By its short name and version, and a command that it has; root works on nodes only."""
    for manifest in yaml.safe_load_all(file.read_text()):
        pod = manifest.get("spec", {}).get("template", {}).get("spec", {})
        for container in pod.get("containers", []):
            assert container["image"] == settings.short_name()
            program = (container.get("command") or container["args"])[0]
            assert program in ("partage", "python3.13")
            user = pod.get("securityContext", {}).get("runAsUser", settings.USER)
            on_node = any("hostPath" in volume for volume in pod.get("volumes", []))
            assert user == settings.USER or (user == 0 and on_node)
