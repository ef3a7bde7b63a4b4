"""The command line: ``python -m image``."""

from __future__ import annotations

import datetime as dt
import errno
import sys
import time
from pathlib import Path

import click

import partage
from image import builds, cache, debian_lock, debian_packages, errors, layout, settings

_FOLDER = settings.CHECKOUT / "dist"
_LOCK = "Pin the newest Debian packages in image/debian.lock.json instead of making an image."
_EXAMPLES = """
\b
Examples (make image ARGS="..." passes options on):
  make image                                  for all machines, in dist
  make image ARGS="--machine arm64"           for one
  make image ARGS=--lock                      pin Debian's packages again
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.option(
    "--machine",
    "names",
    multiple=True,
    type=click.Choice([machine.name for machine in settings.MACHINES]),
    help="For this machine, and no other unless named too; else for all.",
)
@click.option(
    "--output",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=_FOLDER,
    help="The folder that it is put into; else dist.",
)
@click.option("--lock", "locks", is_flag=True, help=_LOCK)
def main(names: tuple[str, ...], folder: Path, *, locks: bool) -> None:
    """Make the image of Partage: an OCI layout and an archive, with an SBOM for each machine."""
    try:
        _pin() if locks else _make(names, folder)
    except errors.CannotMake as error:
        sys.exit(f"image: {error}")
    except OSError as error:
        sys.exit(f"image: {_told(error)}")


def _pin() -> None:
    _say("asking apt for the newest packages; this reads Debian's lists for each machine")
    lock = debian_packages.pin(dt.datetime.now(dt.UTC).date())
    old = {(p.machine, p.name): p.version for p in _old_packages()}
    for package in lock.packages:
        before = old.get((package.machine, package.name), "new")
        if before != package.version:
            _say(f"{package.machine}: {package.name} {before} -> {package.version}")
    debian_lock.PATH.write_bytes(debian_lock.written(lock))
    _say(f"pinned {len(lock.packages)} packages in {debian_lock.PATH}")


def _old_packages() -> tuple[debian_lock.Package, ...]:
    return debian_lock.read().packages if debian_lock.PATH.exists() else ()


def _make(names: tuple[str, ...], folder: Path) -> None:
    began = time.monotonic()
    machines = [machine for machine in settings.MACHINES if not names or machine.name in names]
    build = builds.Build(cache.root() / "image", _say)
    bundle = build.bundle(machines)
    stem = f"partage-{partage.__version__}"
    layout.write_folder(bundle, folder / f"{stem}-image")
    own = settings.this_machine()
    docker = machines.index(own) if own in machines else 0
    layout.write_archive(bundle, folder / f"{stem}-image.tar", docker=docker)
    for machine in machines:
        (folder / f"{stem}-{machine.name}.spdx.json").write_bytes(build.bill(machine))
    _say(f"made in {time.monotonic() - began:.0f} s")
    _show(folder, stem, bundle.index["digest"], build.sizes(machines))


def _show(folder: Path, stem: str, digest: str, sizes: dict[str, int]) -> None:
    archive = folder / f"{stem}-image.tar"
    rows = {
        "layout": folder / f"{stem}-image",
        "archive": f"{archive}, {_mb(archive.stat().st_size)}",
        "SBOM": folder / f"{stem}-*.spdx.json",
        **{name: f"{_mb(size)} to pull" for name, size in sizes.items()},
        "digest": digest,
    }
    for name, value in rows.items():
        click.echo(f"{name:9}{value}")


def _told(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        what = f"for {error.filename}" if error.filename else "on a disk"
        return f"there is no room left {what}; an image needs 500 MB in all, in {_places()}"
    return f"{error}; what is written is in {_places()}"


def _places() -> str:
    return f"dist, {cache.root()} and the folder of temporary files"


def _mb(size: int) -> str:
    return f"{size / 1e6:.1f} MB"


def _say(text: str) -> None:
    click.echo(f"image: {text}", err=True)


if __name__ == "__main__":
    main()
