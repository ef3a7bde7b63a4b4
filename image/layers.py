"""Layers: files as a tar archive that depends on nothing but them, compressed the same everywhere.

Compression is GNU gzip's, because two builds of zlib need not give the same bytes, and gzip has not
changed what it gives in decades. Without equal bytes there are no equal digests.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterable

import msgspec

from image import errors
from image.files import File


class Layer(msgspec.Struct, frozen=True):
    """A layer as it is stored, and the digest of what it unpacks to."""

    compressed: bytes
    diff_id: str


def make(files: Iterable[File], moment: dt.datetime) -> Layer:
    """A layer of these files, in their order, all of them of this moment."""
    archive = tar(files, moment)
    return Layer(_gzip(archive), digest(archive))


def tar(files: Iterable[File], moment: dt.datetime) -> bytes:
    """The files as an archive, all of them root's."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as opened:
        for file in files:
            entry = tarfile.TarInfo(file.path)
            entry.type, entry.linkname, entry.mode = _type(file), file.target, file.mode
            entry.size, entry.mtime = len(file.content), int(moment.timestamp())
            opened.addfile(entry, io.BytesIO(file.content))
    return made.getvalue()


def digest(content: bytes) -> str:
    """As images name what they are made of."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def _type(file: File) -> bytes:
    if file.is_folder:
        return tarfile.DIRTYPE
    return tarfile.SYMTYPE if file.target else tarfile.REGTYPE


def _gzip(content: bytes) -> bytes:
    command = ["gzip", "--no-name", "-6", "--stdout"]  # -9 takes thrice the time, and saves 0.8 %
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise errors.CannotMake("there is no gzip, which compresses layers: install it") from None
    if done.returncode:
        raise errors.CannotMake(f"gzip failed; it says: {done.stderr.decode().strip()}")
    return done.stdout
