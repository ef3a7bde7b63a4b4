"""Small packages: a wheel, a Debian package, and a mirror of Debian that apt takes for real."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from image import debian_lock, debian_packages, settings

METADATA = "Metadata-Version: 2.4\nName: Small.Thing\nVersion: 1.2\nLicense-Expression: MIT\n"
_LISTED = "Package: listed\nVersion: 1\nArchitecture: amd64\n"  # apt ignores empty lists


def wheel(extra: Mapping[str, str] | None = None, *, executable: str = "") -> bytes:
    """A wheel of one module, with more files if need be, of which one may be executable."""
    texts = {"small/__init__.py": "", "small-1.2.dist-info/METADATA": METADATA, **(extra or {})}
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for name, text in texts.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (0o100755 if name == executable else 0o100644) << 16
            opened.writestr(info, text)
    return made.getvalue()


def deb(folder: Path, contents: Mapping[str, str]) -> bytes:
    """A Debian package of these files."""
    control = "Package: small\nVersion: 1\nArchitecture: all\nMaintainer: nobody\nDescription: -\n"
    tree = folder / "tree"
    for name, text in {**contents, "DEBIAN/control": control}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        (tree / name).write_text(text)
    made = folder / "small.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", tree, made], check=True, capture_output=True
    )
    return made.read_bytes()


def package(content: bytes, path: str = "pool/s/small_1_all.deb") -> debian_lock.Package:
    """As the lock has it."""
    checksum = hashlib.sha256(content).hexdigest()
    machine = settings.AMD64.name
    return debian_lock.Package("small", "1", machine, "Debian", path, len(content), checksum)


def mirror(folder: Path, contents: Mapping[str, bytes]) -> dict[str, str]:
    """A mirror with files; what a program needs in its environment so that apt knows no other."""
    for label, suite in debian_packages.REPOSITORIES.items():
        release = folder / label / "dists" / suite
        (release / "main" / "binary-amd64").mkdir(parents=True)
        (release / "main" / "binary-amd64" / "Packages").write_text(_LISTED)
        checksum = hashlib.sha256(_LISTED.encode()).hexdigest()
        (release / "Release").write_text(
            f"Origin: Debian\nLabel: {label}\nSuite: {suite}\nCodename: {suite}\n"
            f"Architectures: amd64\nComponents: main\n"
            f"SHA256:\n {checksum} {len(_LISTED)} main/binary-amd64/Packages\n"
        )
    for path, content in contents.items():
        (folder / "Debian" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "Debian" / path).write_bytes(content)
    return {"APT_CONFIG": str(_settings(folder))}


def _settings(folder: Path) -> Path:
    (folder / "sources.list").write_text(
        "".join(
            f"deb [trusted=yes arch=amd64] file:{folder / label}/ {suite} main\n"
            for label, suite in debian_packages.REPOSITORIES.items()
        )
    )
    (folder / "state" / "lists" / "partial").mkdir(parents=True)
    written = folder / "apt.conf"
    written.write_text(
        f'Dir::Etc::sourcelist "{folder}/sources.list";\n'
        'Dir::Etc::sourceparts "/dev/null";\n'
        f'Dir::State::lists "{folder}/state/lists";\n'
    )
    return written
