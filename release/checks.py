"""Checks: each part of a release, as its users get it, in a place that has nothing of the checkout.

They look at the files of the folder alone, and at tools: pip, Helm, sha256sum. Where something
cannot be tried here, such as programs of another machine, that is said and not passed over.
"""

from __future__ import annotations

import json
import re
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from cluster.chart import helm
from image import python_packages, settings
from release import makers, programs, unpacked_image
from release.contents import SUMS, Contents
from release.errors import LeftOut, Wrong

# It asks the driver, through the fence, how large the card is, and for more than its share.
_USE_A_SHARE = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value >> 20, cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(6 << 30)))
"""
_SHARE = "4096 2"  # MiB, and CUDA's code for out of memory
IN_THE_IMAGE = """
import ctypes
import partage.admission.service, partage.agent.service, partage.scheduler.service
from partage.fence.library import libpartage
libpartage.check(libpartage.find())
ctypes.CDLL(str(libpartage.find().path))
print("complete")
"""


def sums(contents: Contents) -> str:
    """All files are listed, and are what was made."""
    listed = [line.partition("  ")[2] for line in contents.sums.read_text().splitlines()]
    present = [str(path.relative_to(contents.folder)) for path in contents.files()]
    if listed != present:
        odd = ", ".join(sorted({*listed} ^ {*present}))
        raise Wrong(f"{SUMS} does not list what is in the folder: {odd}")
    programs.run(["sha256sum", "--check", "--strict", "--quiet", SUMS], folder=contents.folder)
    return f"{len(listed)} files"


def wheel(root: Path, contents: Contents) -> str:
    """In a fresh environment pip takes it, it says its version, and its library holds a share."""
    made = contents.wheels[_this_machine().python]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        python = _environment(root, made, place)
        environment = programs.clean_environment(place, PARTAGE_STATE=str(place / "state"))
        command = python.with_name("partage")
        said = programs.run([command, "--version"], folder=place, environment=environment)
        _same("partage --version", said.strip(), f"partage {contents.version}")
        run = ["--simulate", "1x16GiB", "run", "--memory", "4GiB", "--"]
        use = [*run, str(python), "-c", _USE_A_SHARE]
        held = programs.run([str(command), *use], folder=place, environment=environment)
        _same("a program with 4 GiB of a card", held.strip(), _SHARE)
    return "installed; a program was held to its share"


def other_wheels(contents: Contents) -> str:
    """pip takes the wheel for each other machine as if it were there."""
    others = [m for m in settings.MACHINES if m != _this_machine()]
    for machine in others:
        made = contents.wheels[machine.python]
        with tempfile.TemporaryDirectory() as target:
            platform = f"--platform=manylinux_2_17_{machine.python}"
            options = ["--no-deps", "--only-binary=:all:", platform, "--target", target]
            programs.run(_pip("install", *options, str(made)), folder=Path(target))
            version = (Path(target) / "partage/__init__.py").read_text()
            if f'"{contents.version}"' not in version:
                raise Wrong(f"{made.name} is not of version {contents.version}")
    return f"{', '.join(m.python for m in others)}: installed, not run"


def sources(root: Path, contents: Contents) -> str:
    """The source archive gives the very same wheels."""
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(contents.sources) as tar:
            tar.extractall(scratch, filter="data")
        (unpacked,) = Path(scratch).iterdir()
        for machine, released in contents.wheels.items():
            folder = Path(scratch) / machine
            folder.mkdir()
            same_wheel(makers.wheel_of(root, unpacked, machine, folder), released)
    return "gives the same wheels"


def same_wheel(made: Path, released: Path) -> None:
    """Raise an error that names what differs."""
    if made.read_bytes() == released.read_bytes():
        return
    with zipfile.ZipFile(made) as one, zipfile.ZipFile(released) as other:
        differ = {i.filename for i in one.infolist()} ^ {i.filename for i in other.infolist()}
        both = {i.filename: i.CRC for i in one.infolist()}
        differ |= {i.filename for i in other.infolist() if both.get(i.filename, i.CRC) != i.CRC}
    names = ", ".join(sorted(differ)) or "how they are packed"
    raise Wrong(f"the wheel that {released.name} gives from the source archive differs in {names}")


def image(contents: Contents, machine: settings.Machine) -> str:
    """Its programs start, and it holds the wheel of this release."""
    bill = json.loads(contents.bills[machine.name].read_text())
    (partage,) = [p for p in bill["packages"] if _purl(p).startswith("pkg:pypi/partage@")]
    released = makers.sha256(contents.wheels[machine.python])
    _same("the wheel in the image", partage["checksums"][0]["checksumValue"], released)
    with tempfile.TemporaryDirectory() as root:
        unpacked = unpacked_image.UnpackedImage(contents.image, machine, Path(root))
        python = f"/usr/bin/python{settings.PYTHON}"
        said = unpacked.run(python, "/usr/local/bin/partage", "--version")
        _same("partage --version in the image", said.strip(), f"partage {contents.version}")
        _same("its services", unpacked.run(python, "-c", IN_THE_IMAGE).strip(), "complete")
    return "runs; has the same wheel"


def chart(contents: Contents) -> str:
    """It renders with its defaults, and all that it says of itself is this version."""
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(contents.chart) as tar:
        tar.extractall(scratch, filter="data")
        about = yaml.safe_load((Path(scratch) / "partage/Chart.yaml").read_text())
    for name in ("version", "appVersion"):
        _same(f"{name} of the chart", about[name], contents.version)
    text = helm.run("template", "partage", contents.chart, "--namespace", "partage-system")
    _same("images", _ours(yaml.safe_load_all(text)), {f"partage:{contents.version}"})
    return "renders, with this version's image"


def manifests(contents: Contents) -> str:
    """They are of this version."""
    files = sorted(contents.manifests.glob("*.yaml"))
    objects = (made for file in files for made in yaml.safe_load_all(file.read_text()))
    _same("images", _ours(objects), {f"partage:{contents.version}"})
    return f"{len(files)} files with this version's image"


def _environment(root: Path, made: Path, place: Path) -> Path:
    """A fresh environment with the wheel and what it needs, by the pins; its Python."""
    programs.run([sys.executable, "-m", "venv", "--without-pip", "environment"], folder=place)
    python = place / "environment/bin/python"
    pins = ["--require-hashes", "--only-binary=:all:", "-r", str(root / "requirements/runtime.txt")]
    for options in (pins, ["--no-deps", "--no-index", str(made)]):
        programs.run(_pip("--python", str(python), "install", *options), folder=place)
    programs.run(_pip("--python", str(python), "check"), folder=place)
    return python


def _pip(*words: str) -> list[str]:
    return [*python_packages.pip(), "--disable-pip-version-check", "--quiet", *words]


def _this_machine() -> settings.Machine:
    machine = settings.this_machine()
    if machine is None:
        raise LeftOut("there is no wheel for this kind of machine")
    return machine


def _ours(objects: Iterable[Any]) -> set[str]:
    """The images of Partage that objects name."""
    used = {image for made in objects for image in _images(made)}
    return {image for image in used if re.match(r"(.*/)?partage[:@]", image)}


def _images(made: Any) -> Iterator[str]:
    if isinstance(made, dict):
        if isinstance(made.get("image"), str):
            yield made["image"]
        for inner in made.values():
            yield from _images(inner)
    elif isinstance(made, list):
        for inner in made:
            yield from _images(inner)


def _purl(package: dict[str, Any]) -> str:
    return next((ref["referenceLocator"] for ref in package.get("externalRefs", ())), "")


def _same(what: str, one: object, other: object) -> None:
    if one != other:
        raise Wrong(f"{what}: {one} instead of {other}")
