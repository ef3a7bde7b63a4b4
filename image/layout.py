"""The layout: an image as files, in a folder or in an archive."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from image import manifests
from image.manifests import Bundle


def write_folder(bundle: Bundle, folder: Path) -> None:
    """Write an OCI layout in place of what is there; it has its name when it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=folder.parent) as scratch:
        made = Path(scratch) / folder.name
        for name, content in _files(bundle).items():
            (made / name).parent.mkdir(parents=True, exist_ok=True)
            (made / name).write_bytes(content)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def write_archive(bundle: Bundle, archive: Path, *, docker: int = 0) -> None:
    """Write an OCI archive that `docker load` takes too: of the machines, the one of this number.

    Docker before version 25 knows one machine per name, and no index.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    listed = json.dumps([bundle.docker[docker]]).encode()
    unfinished = archive.with_name(f".unfinished-{archive.name}")
    try:
        with tarfile.open(unfinished, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, content in {**_files(bundle), "manifest.json": listed}.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        unfinished.rename(archive)
    finally:
        unfinished.unlink(missing_ok=True)


def _files(bundle: Bundle) -> Mapping[str, bytes]:
    blobs = {manifests.path(digest): blob for digest, blob in sorted(bundle.blobs.items())}
    return manifests.layout(bundle) | blobs
