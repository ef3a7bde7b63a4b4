"""Debian packages: found, fetched and read by the programs of Debian, with this machine's settings.

Which mirror, which proxy and which credentials there are is what apt of this machine knows; nothing
here names a host. Packages are of the release in the lock, whatever this machine is. They are
fetched by their place on a mirror and checked against the lock, so no lists are needed for that.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import tempfile
import urllib.parse
from collections.abc import Iterable, Mapping
from pathlib import Path

from image import debian_lock, errors, settings
from image.debian_lock import Lock, Package

REPOSITORIES = {
    "Debian": debian_lock.RELEASE,
    "Debian-Security": f"{debian_lock.RELEASE}-security",
}
_HELPER = "/usr/lib/apt/apt-helper"
_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_PRINTED = re.compile(r"'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]+)")
_NO_PROGRAM = "there is no {}: images are made on a Debian, or in a container of it"
_NO_MIRROR = (
    "apt of this machine knows no mirror of {}; images are made of Debian's packages: name one in "
    "/etc/apt/sources.list.d, and run apt-get update"
)
_GONE = (
    "this machine's mirror of Debian does not have {} as it was locked. Debian removes a version "
    "when there is a newer one: pin the present ones with `make image ARGS=--lock`, and commit "
    "image/debian.lock.json. apt says: {}"
)
_UNREACHABLE = (
    "{} cannot be fetched, as this machine's mirror of Debian cannot be reached: see if there is a "
    "network, and if `apt-get update` works. apt says: {}"
)
_OF_NETWORKS = ("connect", "resolve", "timed out", "unreachable")  # apt's words, in small letters


def fetch(packages: Iterable[Package], folder: Path) -> None:
    """Have all of them in the folder; those that are there stay."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [package for package in packages if not _is_there(package, folder)]
    if not missing:
        return
    mirrors = _mirrors()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        wishes = [wish for package in missing for wish in _wish(package, mirrors, Path(scratch))]
        done = _run(_HELPER, "download-file", *_sandbox(), *wishes)
        for package in missing:
            _take(package, Path(scratch), folder, done)


def content(package: Package, folder: Path) -> bytes:
    """The package as it was fetched."""
    return (folder / file_name(package)).read_bytes()


def file_name(package: Package) -> str:
    """Of a package in a folder of packages."""
    return f"{package.sha256[:16]}-{package.name}.deb"


def data(package: Package, folder: Path) -> bytes:
    """The files of a package, as a tar archive."""
    return _read("--fsys-tarfile", package, folder)


def control(package: Package, folder: Path) -> bytes:
    """What a package says about itself."""
    return _read("--field", package, folder)


def pin(day: dt.date) -> Lock:
    """The newest versions that there are now, signed by Debian."""
    mirrors = _mirrors()
    with tempfile.TemporaryDirectory() as scratch:
        lines = {machine: _newest(machine, mirrors, Path(scratch)) for machine in settings.MACHINES}
    packages = [
        _package(line, machine, mirrors) for machine in settings.MACHINES for line in lines[machine]
    ]
    return Lock(
        debian_lock.RELEASE, day, tuple(sorted(packages, key=lambda p: (p.machine, p.name)))
    )


def _is_there(package: Package, folder: Path) -> bool:
    try:
        return debian_lock.is_intact(package, content(package, folder))
    except FileNotFoundError:
        return False


def _wish(package: Package, mirrors: Mapping[str, str], scratch: Path) -> list[str]:
    """As apt-helper takes it: from where, to where, and what it has to be."""
    where = mirrors[package.repository] + urllib.parse.quote(package.path)
    return [where, str(scratch / file_name(package)), f"SHA256:{package.sha256}"]


def _take(
    package: Package, scratch: Path, folder: Path, done: subprocess.CompletedProcess[bytes]
) -> None:
    if not _is_there(package, scratch):
        said = _said_of(package, done.stderr.decode(errors="replace"))
        is_network = any(word in said.lower() for word in _OF_NETWORKS)
        message = _UNREACHABLE if is_network else _GONE
        raise errors.CannotMake(message.format(f"{package.name} {package.version}", said))
    # A copy: of a mirror on this machine's disk, apt gives a link to it.
    copied = shutil.copyfile(scratch / file_name(package), scratch / "copied")
    copied.rename(folder / file_name(package))


def _said_of(package: Package, text: str) -> str:
    """What apt says of one package, among others."""
    name = package.path.rpartition("/")[2]
    lines = text.splitlines()
    return next((line for line in lines if name in urllib.parse.unquote(line)), text.strip())


def _mirrors() -> dict[str, str]:
    """Where this machine has Debian and its security updates from."""
    mirrors = _listed_mirrors()
    if len(mirrors) < len(REPOSITORIES):  # apt's lists may have been removed
        with tempfile.TemporaryDirectory() as scratch:
            options = _private(Path(scratch))
            _run("apt-get", "update", *options)
            mirrors = _listed_mirrors(*options)
    for label in REPOSITORIES:
        if label not in mirrors:
            raise errors.CannotMake(_NO_MIRROR.format(label))
    return mirrors


def _listed_mirrors(*options: str) -> dict[str, str]:
    """By label; those of which apt has lists."""
    form = "$(ORIGIN) $(LABEL) $(REPO_URI)"
    listed = _run("apt-get", "indextargets", f"--format={form}", *options).stdout.decode()
    rows = [line.split() for line in listed.splitlines() if line.startswith("Debian ")]
    return {row[1]: row[2] for row in rows if len(row) == 3 and row[1] in REPOSITORIES}


def _newest(machine: settings.Machine, mirrors: Mapping[str, str], scratch: Path) -> list[str]:
    """A line of apt for each package: from where, how large, by which checksum."""
    sources = scratch / "sources.list"
    sources.write_text(
        "".join(
            f"deb [signed-by={_KEYS}] {mirrors[label]} {suite} main\n"
            for label, suite in REPOSITORIES.items()
        )
    )
    options = [*_private(scratch), *_only(machine, sources)]
    _checked("apt-get", "update", "--option=APT::Update::Error-Mode=any", *options)
    names = [*options, "--option=Acquire::ForceHash=SHA256", *debian_lock.NAMES]
    return _checked("apt-get", "download", "--print-uris", *names).decode().splitlines()


def _package(line: str, machine: settings.Machine, mirrors: Mapping[str, str]) -> Package:
    printed = _PRINTED.fullmatch(line.strip())
    if printed is None:
        raise errors.CannotMake(f"apt says what was not expected of it: {line}")
    uri, file = urllib.parse.unquote(printed["uri"]), urllib.parse.unquote(printed["file"])
    label = next(label for label, mirror in mirrors.items() if uri.startswith(mirror))
    name, version, _ = file.split("_")
    path = uri.removeprefix(mirrors[label])
    size, sha256 = int(printed["size"]), printed["sha256"]
    return Package(name, version, machine.name, label, path, size, sha256)


def _private(scratch: Path) -> list[str]:
    """Options for apt to read this machine's settings, and to write nothing but in the folder."""
    (scratch / "state" / "lists" / "partial").mkdir(parents=True, exist_ok=True)
    (scratch / "state" / "status").touch()
    settings_of_apt = {
        "Dir::State": scratch / "state",
        "Dir::State::status": scratch / "state" / "status",
        "Dir::Cache": scratch / "cache",
        "Acquire::Languages": "none",
    }
    return [*_sandbox(), *(f"--option={name}={value}" for name, value in settings_of_apt.items())]


def _only(machine: settings.Machine, sources: Path) -> list[str]:
    settings_of_apt = {
        "APT::Architecture": machine.name,
        "APT::Architectures": machine.name,
        "Dir::Etc::sourcelist": sources,
        "Dir::Etc::sourceparts": "/dev/null",
    }
    return [f"--option={name}={value}" for name, value in settings_of_apt.items()]


def _sandbox() -> list[str]:
    """As root, apt would fetch as a user who cannot write where we want it."""
    return ["--option=APT::Sandbox::User=root"] if os.geteuid() == 0 else []


def _read(what: str, package: Package, folder: Path) -> bytes:
    return _checked("dpkg-deb", what, str(folder / file_name(package)))


def _checked(*command: str) -> bytes:
    done = _run(*command)
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()
        raise errors.CannotMake(f"{command[0]} failed; it says: {said}")
    return done.stdout


def _run(*command: str) -> subprocess.CompletedProcess[bytes]:
    environment = os.environ | {"LC_ALL": "C.UTF-8"}
    try:
        return subprocess.run(command, capture_output=True, check=False, env=environment)
    except FileNotFoundError:
        raise errors.CannotMake(_NO_PROGRAM.format(command[0])) from None
