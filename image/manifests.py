"""Manifests: what the image specification wants said about layers, for one machine and for all.

The index holds the image for each machine, and for each a statement with its SBOM. That statement
is written as BuildKit writes it (an in-toto statement in a manifest of an unknown platform), so it
travels with the index whatever pushes it, and Docker's tools find it. It names the image as its
subject besides, so registries that know referrers list it there.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from image import layers, settings

_OCI = "application/vnd.oci.image."
_EMPTY = b"{}"
_ATTESTATION = "application/vnd.docker.attestation.manifest.v1+json"
_SPDX = "https://spdx.dev/Document"


class Image(msgspec.Struct, frozen=True):
    """The image for one machine: its layers, the lowest first, and what is in them."""

    machine: settings.Machine
    layers: tuple[layers.Layer, ...]
    sbom: bytes


class Bundle(msgspec.Struct, frozen=True):
    """All blobs of an image by their digests, and which of them is the index."""

    blobs: Mapping[str, bytes]
    index: Mapping[str, Any]  # the descriptor of the index of machines
    docker: tuple[
        Mapping[str, Any], ...
    ]  # for `docker load`, which before version 25 knew no index


def bundle(images: Iterable[Image], moment: dt.datetime) -> Bundle:
    """The images for some machines as one."""
    blobs: dict[str, bytes] = {}
    runnable, statements, docker = [], [], []
    for image in images:
        config = _store(blobs, f"{_OCI}config.v1+json", _config(image, moment))
        manifest = _store(blobs, f"{_OCI}manifest.v1+json", _manifest(image, config, blobs))
        runnable.append(manifest | {"platform": _platform(image.machine)})
        statements.append(_statement(image, manifest, blobs))
        docker.append(_docker(image, config["digest"]))
    index = _json(
        schemaVersion=2,
        mediaType=f"{_OCI}index.v1+json",
        manifests=[*runnable, *statements],
        annotations=_described(moment),
    )
    return Bundle(blobs, _store(blobs, f"{_OCI}index.v1+json", index), tuple(docker))


def layout(bundle: Bundle) -> dict[str, bytes]:
    """The two small files of an OCI layout."""
    names = {
        "io.containerd.image.name": settings.full_name(),
        "org.opencontainers.image.ref.name": settings.short_name().partition(":")[2],
    }
    named = {**bundle.index, "annotations": names}
    index = _json(schemaVersion=2, mediaType=f"{_OCI}index.v1+json", manifests=[named])
    return {"index.json": index, "oci-layout": _json(imageLayoutVersion="1.0.0")}


def path(digest: str) -> str:
    """Of a blob in a layout."""
    return f"blobs/{digest.replace(':', '/')}"


def _config(image: Image, moment: dt.datetime) -> bytes:
    environment = [f"{name}={value}" for name, value in settings.ENVIRONMENT.items()]
    user = f"{settings.USER}:{settings.USER}"
    return _json(
        created=settings.timestamp(moment),
        **_platform(image.machine),
        config={
            "User": user,
            "Env": environment,
            "Cmd": settings.COMMAND,
            "WorkingDir": "/",
            "Labels": _described(moment),
        },
        rootfs={"type": "layers", "diff_ids": [layer.diff_id for layer in image.layers]},
    )


def _manifest(image: Image, config: Mapping[str, Any], blobs: dict[str, bytes]) -> bytes:
    kind = f"{_OCI}layer.v1.tar+gzip"
    return _json(
        schemaVersion=2,
        mediaType=f"{_OCI}manifest.v1+json",
        config=config,
        layers=[_store(blobs, kind, layer.compressed) for layer in image.layers],
    )


def _statement(image: Image, manifest: Mapping[str, Any], blobs: dict[str, bytes]) -> Any:
    algorithm, _, value = manifest["digest"].partition(":")
    statement = _json(
        _type="https://in-toto.io/Statement/v0.1",
        predicateType=_SPDX,
        subject=[{"name": settings.short_name(), "digest": {algorithm: value}}],
        predicate=json.loads(image.sbom),
    )
    empty = _store(blobs, "application/vnd.oci.empty.v1+json", _EMPTY)
    stored = _store(blobs, "application/vnd.in-toto+json", statement)
    said = _json(
        schemaVersion=2,
        mediaType=f"{_OCI}manifest.v1+json",
        artifactType=_ATTESTATION,
        config=empty | {"data": base64.b64encode(_EMPTY).decode()},
        layers=[stored | {"annotations": {"in-toto.io/predicate-type": _SPDX}}],
        subject=manifest,
    )
    return _store(blobs, f"{_OCI}manifest.v1+json", said) | {
        "platform": {"architecture": "unknown", "os": "unknown"},
        "annotations": {
            "vnd.docker.reference.digest": manifest["digest"],
            "vnd.docker.reference.type": "attestation-manifest",
        },
    }


def _docker(image: Image, config: str) -> dict[str, Any]:
    return {
        "Config": path(config),
        "RepoTags": [settings.short_name()],
        "Layers": [path(layers.digest(layer.compressed)) for layer in image.layers],
    }


def _described(moment: dt.datetime) -> dict[str, str]:
    return settings.labels() | {"org.opencontainers.image.created": settings.timestamp(moment)}


def _platform(machine: settings.Machine) -> dict[str, str]:
    return {"architecture": machine.name, "os": "linux"}


def _store(blobs: dict[str, bytes], kind: str, blob: bytes) -> dict[str, Any]:
    digest = layers.digest(blob)
    blobs[digest] = blob
    return {"mediaType": kind, "digest": digest, "size": len(blob)}


def _json(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
