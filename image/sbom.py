"""The software bill of materials (SBOM): what the image is made of, as SPDX 2.3.

Debian's licences are in the image, in usr/share/doc/*/copyright; these are texts for people, and no
expression is guessed from them.
"""

from __future__ import annotations

import datetime as dt
import email.message
import urllib.parse
import uuid
from collections.abc import Iterable
from typing import Any

import msgspec

from image import debian_lock, settings

_NOTHING = "NOASSERTION"
_IMAGE = "SPDXRef-image"


class Component(msgspec.Struct, frozen=True):
    """One package in the image."""

    name: str
    version: str
    purl: str
    licence: str = _NOTHING
    sha256: str = ""
    supplier: str = _NOTHING


def of_debian(package: debian_lock.Package) -> Component:
    """A Debian package."""
    name, version = urllib.parse.quote(package.name), urllib.parse.quote(package.version)
    distro = f"debian-{debian_lock.RELEASE}"
    purl = f"pkg:deb/debian/{name}@{version}?arch={package.machine}&distro={distro}"
    supplier = "Organization: Debian"
    return Component(package.name, package.version, purl, sha256=package.sha256, supplier=supplier)


def of_python(metadata: email.message.Message, sha256: str) -> Component:
    """A Python package, by what its wheel says about itself."""
    name, version = str(metadata["Name"]), str(metadata["Version"])
    canonical = name.lower().replace("_", "-").replace(".", "-")
    purl = f"pkg:pypi/{canonical}@{urllib.parse.quote(version)}"
    licence = str(metadata["License-Expression"] or _NOTHING)
    return Component(name, version, purl, licence, sha256)


def document(
    components: Iterable[Component], machine: settings.Machine, moment: dt.datetime
) -> dict[str, Any]:
    """The bill as SPDX has it; the same components give the same document."""
    listed = sorted(components, key=lambda component: component.purl)
    packages = [_package(number, component) for number, component in enumerate(listed, 1)]
    contained = [_relationship(_IMAGE, "CONTAINS", package["SPDXID"]) for package in packages]
    unique = uuid.uuid5(uuid.NAMESPACE_OID, msgspec.json.encode(packages).decode())
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{settings.short_name()} {machine.name}",
        "documentNamespace": f"urn:uuid:{unique}",
        "creationInfo": {
            "created": settings.timestamp(moment),
            "creators": ["Tool: partage-image"],
        },
        "packages": [_image(machine), *packages],
        "relationships": [_relationship("SPDXRef-DOCUMENT", "DESCRIBES", _IMAGE), *contained],
    }


def _image(machine: settings.Machine) -> dict[str, Any]:
    name, _, version = settings.short_name().partition(":")
    purl = f"pkg:oci/{name}?arch={machine.name}&tag={version}"
    image = Component(name, version, purl, settings.labels()["org.opencontainers.image.licenses"])
    return _package(0, image) | {"SPDXID": _IMAGE, "primaryPackagePurpose": "CONTAINER"}


def _package(number: int, component: Component) -> dict[str, Any]:
    checksums = [{"algorithm": "SHA256", "checksumValue": component.sha256}]
    return {
        "SPDXID": f"SPDXRef-{number}",
        "name": component.name,
        "versionInfo": component.version,
        "supplier": component.supplier,
        "downloadLocation": _NOTHING,
        "filesAnalyzed": False,
        **({"checksums": checksums} if component.sha256 else {}),
        "licenseConcluded": _NOTHING,
        "licenseDeclared": component.licence,
        "copyrightText": _NOTHING,
        "externalRefs": [
            {
                "referenceCategory": "PACKAGE-MANAGER",
                "referenceType": "purl",
                "referenceLocator": component.purl,
            }
        ],
    }


def _relationship(one: str, kind: str, other: str) -> dict[str, str]:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
