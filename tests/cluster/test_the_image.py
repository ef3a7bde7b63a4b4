"""The image that users get, on a real node: it runs as deploy/ says, locked up, and as nobody."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import partage
from cluster import api, objects
from cluster.node import partage_image
from cluster.node.node import Node
from image import cache, settings
from native import elf
from tests.cluster import making

# As deploy/extender.yaml and admission.yaml have them.
LOCKED_UP = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
LOOK = """
import json, os
import partage.admission.service, partage.agent.service, partage.scheduler.service
def is_writable(path):
    try:
        open(path, "w").close()
    except OSError:
        return False
    return True
print(json.dumps({"user": [os.getuid(), os.getgid()], "writable": is_writable("/tmp/x"),
                  "compiled": os.path.exists(partage.agent.service.__cached__)}))
"""
# All that an image is made of, but for what is fetched.
SOURCES = (
    *("LICENSE", "README.md", "hatch_build.py", "image", "native", "pyproject.toml"),
    *("requirements", "src"),
)


def said(node: Node, name: str, *args: str) -> str:
    """What the image writes with these arguments, in a pod that is locked up; it must end well."""
    main: dict[str, Any] = {
        "name": "main",
        "image": partage_image.NAME,
        "imagePullPolicy": "Never",
        "args": list(args),
        "securityContext": LOCKED_UP,
    }
    pod = objects.running_pod(name, main, node_name=node.name, restartPolicy="Never")
    node.plane.client.create(pod)
    ended = making.eventually(
        lambda: _ended(node, name), patience_s=90, why=lambda: str(making.events(node.plane, name))
    )
    text = node.logs(name, "main")
    assert ended["status"]["phase"] == "Succeeded", text
    return text


def _ended(node: Node, name: str) -> api.Object | None:
    pod = node.plane.client.get("Pod", name)
    return pod if pod["status"].get("phase") in {"Succeeded", "Failed"} else None


def contents(archive: Path) -> Iterator[tuple[str, bytes]]:
    """The files and links of an image."""
    with tarfile.open(archive) as outer:
        manifest = json.loads(_read(outer, "manifest.json"))[0]
        for name in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(_read(outer, name)))) as layer:
                for member in layer:
                    yield member.name, _read(layer, member.name) if member.isreg() else b""


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    stream = tar.extractfile(name)
    assert stream is not None
    return stream.read()


@pytest.fixture
def node_with_image(nodes_with_image: tuple[Node, Node], clean_nodes: tuple[Node, Node]) -> Node:
    """A node without pods."""
    return nodes_with_image[0]


def test_its_arguments_are_a_command(node_with_image: Node) -> None:
    """As deploy/ writes them, with no command before them."""
    text = said(node_with_image, "version", "partage", "--version")
    assert text.strip() == f"partage {partage.__version__}"


def test_it_runs_as_nobody_on_a_file_system_that_is_read_only(node_with_image: Node) -> None:
    """All three services can be imported, and nothing has to be compiled for it."""
    looked = json.loads(said(node_with_image, "look", f"python{settings.PYTHON}", "-c", LOOK))
    assert looked == {"user": [65532, 65532], "writable": False, "compiled": True}


def test_every_program_has_its_libraries(partage_archive: Path) -> None:
    """Packages are chosen by hand, so one could be missing that a module of Python needs."""
    files = dict(contents(partage_archive))
    names = {path.rpartition("/")[2] for path in files}
    missing = {
        path: needed
        for path, content in files.items()
        if content.startswith(elf.MAGIC)
        # What stands in the driver's place has the driver behind it, by a link where it is used.
        for needed in elf.File(content).libraries()
        if needed not in names and not needed.startswith("libpartage-")
    }
    assert missing == {}


def test_it_is_small(partage_archive: Path) -> None:
    """Nodes pull it before they can serve; half of it again would have to be noticed."""
    assert partage_archive.stat().st_size < 65_000_000


@pytest.mark.slow  # it makes all of an image but for its downloads: C, bytecode, compression
def test_the_same_inputs_give_the_same_digest(partage_archive: Path, tmp_path: Path) -> None:
    """In another folder, by a user with other settings, at another time, with nothing kept."""
    machine = settings.this_machine()
    assert machine is not None
    done = subprocess.run(
        [sys.executable, "-m", "image", "--machine", machine.name, "--output", tmp_path / "made"],
        cwd=_copied_checkout(tmp_path / "elsewhere"),
        env=os.environ | {"PARTAGE_CACHE": str(_downloads(tmp_path)), "TZ": "Asia/Tokyo"},
        umask=0o077,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert partage_archive.stem.replace("-", ":") in done.stdout, done.stdout


def _copied_checkout(folder: Path) -> Path:
    folder.mkdir()
    for name in SOURCES:
        source = settings.CHECKOUT / name
        if source.is_file():
            shutil.copy(source, folder)
        else:
            ignored = shutil.ignore_patterns("__pycache__", "lib")
            shutil.copytree(source, folder / name, ignore=ignored)
    (folder / ".venv-release").symlink_to(settings.CHECKOUT / ".venv-release")
    return folder


def _downloads(folder: Path) -> Path:
    """A cache with nothing but what was fetched."""
    kept, other = cache.root() / "image", folder / "cache" / "image"
    other.mkdir(parents=True)
    for fetched in (kept / "debian", *kept.glob("wheels-*")):
        (other / fetched.name).symlink_to(fetched)
    return other.parent
