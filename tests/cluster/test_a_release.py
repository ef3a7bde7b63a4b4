"""Parts of a release, checked as `make release` does it, of what these tests have made anyway."""

from __future__ import annotations

from pathlib import Path

import pytest

import partage
from cluster.chart import helm
from image import settings
from release import checks, makers, unpacked_image
from release.contents import Contents
from release.errors import Wrong


@pytest.mark.usefixtures("helm_program")
def test_the_chart_that_is_published_is_of_this_version(tmp_path: Path) -> None:
    """Its package renders, and one of another version is told."""
    contents = Contents(tmp_path, partage.__version__)
    makers.chart(settings.CHECKOUT, contents)
    assert checks.chart(contents) == "renders, with this version's image"
    other = Contents(tmp_path, "99.0.0")
    helm.run("package", helm.CHART, "--destination", tmp_path, "--version", other.version)
    with pytest.raises(Wrong, match=r"appVersion of the chart"):
        checks.chart(other)


@pytest.mark.usefixtures("helm_program")
def test_the_manifests_that_are_published_are_of_this_version(tmp_path: Path) -> None:
    """All of them are there, with one image."""
    contents = Contents(tmp_path, partage.__version__)
    makers.manifests(settings.CHECKOUT, contents)
    assert checks.manifests(contents).endswith("with this version's image")
    assert (contents.manifests / "agent.yaml").exists()
    makers.values(settings.CHECKOUT, contents)
    assert (contents.values / "k3s.yaml").exists()


def test_the_image_starts_from_its_archive(partage_archive: Path, tmp_path: Path) -> None:
    """Unpacked without a container runtime, its Python is complete, and is nobody."""
    machine = settings.this_machine()
    assert machine is not None
    unpacked = unpacked_image.UnpackedImage(partage_archive, machine, tmp_path)
    python = f"/usr/bin/python{settings.PYTHON}"
    said = unpacked.run(python, "/usr/local/bin/partage", "--version")
    assert said.strip() == f"partage {partage.__version__}"
    assert unpacked.run(python, "-c", checks.IN_THE_IMAGE).strip() == "complete"
    who = "import os; print(os.getuid(), [n for n in os.listdir('/proc') if n.isdigit()])"
    assert unpacked.run(python, "-c", who).strip() == f"{settings.USER} ['1']"
