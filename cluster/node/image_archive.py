"""Archives of container images: OCI, of one layer, made without any tool or registry."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from typing import Any

_OCI = "application/vnd.oci.image."
_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


def packed(name: str, layer: bytes, settings: dict[str, Any]) -> bytes:
    """An archive, ready for ``ctr images import``, of an image with this name.

    ``settings`` are what a container of it begins with, in OCI's words.
    """
    config = _json(
        architecture=_MACHINES.get(platform.machine(), platform.machine()),
        os="linux",
        config=settings,
        rootfs={"type": "layers", "diff_ids": [_digest(layer)]},
    )
    manifest = _json(
        schemaVersion=2,
        mediaType=_OCI + "manifest.v1+json",
        config=_described("config.v1+json", config),
        layers=[_described("layer.v1.tar", layer)],
    )
    named = {"annotations": {"io.containerd.image.name": name}}
    index = _json(schemaVersion=2, manifests=[_described("manifest.v1+json", manifest) | named])
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        add(tar, "oci-layout", _json(imageLayoutVersion="1.0.0"))
        add(tar, "index.json", index)
        for blob in (config, manifest, layer):
            add(tar, "blobs/sha256/" + _digest(blob).removeprefix("sha256:"), blob)
    return made.getvalue()


def add(
    tar: tarfile.TarFile,
    name: str,
    content: bytes = b"",
    *,
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    link: str = "",
) -> None:
    """Add a file, folder or link to a layer, which belongs to root."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(content), mode, kind, link
    tar.addfile(entry, io.BytesIO(content))


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": _OCI + kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(**fields: Any) -> bytes:
    return json.dumps(fields).encode()
