"""The image of Partage, as users get it, for tests that run it on real nodes.

It is made once into the cache, for this machine alone. When the product changes, the layer that
holds it is made anew, which takes seconds; the layer below it stays.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from cluster import locks, progress
from image import builds, cache, errors, layout, settings

NAME = settings.full_name()

_UNUSED_SECONDS = 24 * 3600  # each change of src gives new ones, and they are large
_WAITING = "another image is being made, waiting for it"


class CannotMake(Exception):
    """The image cannot be made on this machine; the text says why."""


def ensure() -> Path:
    """The archive for this machine, ready for ``ctr images import``; made if need be."""
    machine = settings.this_machine()
    if machine is None:
        raise CannotMake("there is no image for this kind of machine")
    folder = cache.root() / "image"
    shown = progress.Progress("image")
    with locks.exclusive(folder / "lock", on_wait=lambda: shown.note(_WAITING)):
        try:
            bundle = builds.Build(folder, shown.note).bundle([machine])
        except errors.CannotMake as error:
            raise CannotMake(str(error)) from error
        archive = folder / "archives" / f"{bundle.index['digest'].replace(':', '-')}.tar"
        if not archive.exists():
            layout.write_archive(bundle, archive)
        os.utime(archive)
        old = [*archive.parent.iterdir(), *folder.glob("partage-*")]
        cache.forget(old, unused_since=time.time() - _UNUSED_SECONDS)
    return archive
