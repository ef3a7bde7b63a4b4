"""What is said about an image is what is in it: manifests, the index, the SBOM, labels."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

import partage
from image import debian_lock, files, layers, layout, manifests, sbom, settings
from tests.image import small_packages

LOCK = debian_lock.read()
COMPONENTS = [
    *map(sbom.of_debian, LOCK.packages_for(settings.AMD64)),
    sbom.of_python(files.metadata(small_packages.wheel()), "ab" * 32),
]


def image(machine: settings.Machine) -> manifests.Image:
    """A small one, which differs from the other machine's."""
    contents = [files.File("etc/machine", content=machine.name.encode())]
    made = (layers.make(contents, LOCK.moment), layers.make([], LOCK.moment))
    bill = sbom.document(COMPONENTS, machine, LOCK.moment)
    return manifests.Image(machine, made, json.dumps(bill).encode())


@pytest.fixture(scope="module")
def bundle() -> manifests.Bundle:
    """The image for all machines."""
    return manifests.bundle([image(machine) for machine in settings.MACHINES], LOCK.moment)


def read(folder: Path, descriptor: dict[str, Any]) -> bytes:
    """What a descriptor leads to, in a layout; it has to be that."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    blob = Path(folder, "blobs", algorithm, digest).read_bytes()
    assert (len(blob), hashlib.sha256(blob).hexdigest()) == (descriptor["size"], digest)
    return blob


def index(folder: Path) -> dict[str, Any]:
    """The index of machines in a layout."""
    assert json.loads((folder / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    (named,) = json.loads((folder / "index.json").read_text())["manifests"]
    assert named["annotations"]["io.containerd.image.name"] == settings.full_name()
    return dict(json.loads(read(folder, named)))


@pytest.fixture
def folder(bundle: manifests.Bundle, tmp_path: Path) -> Path:
    """The image as a layout."""
    layout.write_folder(bundle, tmp_path / "layout")
    return tmp_path / "layout"


def test_each_machine_has_its_image(folder: Path) -> None:
    """All that is named is there, by its size and digest, and runs as deploy/ has it."""
    listed = index(folder)["manifests"]
    by_machine = {entry["platform"]["architecture"]: entry for entry in listed}
    for machine in settings.MACHINES:
        manifest = json.loads(read(folder, by_machine[machine.name]))
        config = json.loads(read(folder, manifest["config"]))
        assert (config["os"], config["architecture"]) == ("linux", machine.name)
        assert config["config"]["User"] == "65532:65532"
        assert config["config"]["Cmd"] == ["partage", "--help"]
        assert "Entrypoint" not in config["config"]  # args of a container are a command
        assert len(config["rootfs"]["diff_ids"]) == len(manifest["layers"])
        for layer in manifest["layers"]:
            read(folder, layer)


def test_each_image_has_its_sbom_in_the_same_index(folder: Path) -> None:
    """As BuildKit attaches it, and as a referrer."""
    listed = index(folder)["manifests"]
    images = [entry for entry in listed if entry["platform"]["os"] == "linux"]
    statements = [entry for entry in listed if entry["platform"]["os"] == "unknown"]
    for described, statement in zip(images, statements, strict=True):
        notes = statement["annotations"]
        assert notes["vnd.docker.reference.type"] == "attestation-manifest"
        assert notes["vnd.docker.reference.digest"] == described["digest"]
        manifest = json.loads(read(folder, statement))
        assert manifest["subject"]["digest"] == described["digest"]
        (layer,) = manifest["layers"]
        sbom_statement = json.loads(read(folder, layer))
        assert (
            sbom_statement["subject"][0]["digest"]["sha256"]
            == described["digest"].partition(":")[2]
        )
        assert sbom_statement["predicate"]["spdxVersion"] == "SPDX-2.3"


def test_the_archive_is_one_for_containerd_and_for_docker(
    bundle: manifests.Bundle, tmp_path: Path
) -> None:
    """Both lists name files that are in it, and writing it again gives the same bytes."""
    one, other = tmp_path / "one.tar", tmp_path / "other.tar"
    layout.write_archive(bundle, one, docker=1)
    layout.write_archive(bundle, other, docker=1)
    assert one.read_bytes() == other.read_bytes()
    with tarfile.open(one) as tar:
        names = tar.getnames()
        listed = tar.extractfile("manifest.json")
        assert listed is not None
        (docker,) = json.load(listed)
    assert {"oci-layout", "index.json", docker["Config"], *docker["Layers"]} <= set(names)
    assert docker["RepoTags"] == [f"partage:{partage.__version__}"]


def test_the_sbom_names_every_package_by_a_purl() -> None:
    """Debian's with its architecture, Python's by its canonical name and licence."""
    bill = sbom.document(COMPONENTS, settings.AMD64, LOCK.moment)
    packages = {package["name"]: package for package in bill["packages"]}
    assert set(packages) == {"partage", "Small.Thing", *debian_lock.NAMES}
    purls = {name: p["externalRefs"][0]["referenceLocator"] for name, p in packages.items()}
    assert purls["Small.Thing"] == "pkg:pypi/small-thing@1.2"
    assert purls["libc6"].startswith("pkg:deb/debian/libc6@")
    assert purls["libc6"].endswith("?arch=amd64&distro=debian-trixie")
    assert purls["libstdc++6"].startswith("pkg:deb/debian/libstdc%2B%2B6@")
    assert packages["Small.Thing"]["licenseDeclared"] == "MIT"
    contained = [r for r in bill["relationships"] if r["relationshipType"] == "CONTAINS"]
    assert len(contained) == len(COMPONENTS)


def test_the_sbom_does_not_depend_on_the_order_of_packages() -> None:
    """Nor on the moment at which it is written."""
    one, other = (
        sbom.document(components, settings.AMD64, LOCK.moment)
        for components in (COMPONENTS, COMPONENTS[::-1])
    )
    assert one == other
