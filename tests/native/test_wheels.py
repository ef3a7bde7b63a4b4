"""Packaging: which wheel comes out, with a compiler, without one, and for a release."""

import os
import platform
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from native import compilers, libraries
from tests.leaving_out import leave_out

ROOT = libraries.SOURCES.parent
THIS_MACHINE = sysconfig.get_platform().replace("-", "_")
LIBRARIES = {
    "partage/lib/libpartage.so",
    "partage/lib/substitute/libcuda.so.1",
    "partage/lib/substitute/libnvidia-ml.so.1",
    "partage/lib/simulated/libcuda.so",
    "partage/lib/simulated/libcuda.so.1",
    "partage/lib/simulated/libnvidia-ml.so",
    "partage/lib/simulated/libnvidia-ml.so.1",
    "partage/lib/simulated/nvidia-smi",
    "partage/lib/simulated/simsmi",
}


SPANK = "partage/lib/spank/partage_spank.so"  # where the headers of Slurm are


def make(target: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Let hatchling make one, as pip does."""
    return subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", folder],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def libraries_in(wheel: Path) -> set[str]:
    """What a wheel has below `partage/lib`."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("partage/lib/")}


def test_a_wheel_is_for_every_python_of_this_platform(tmp_path: Path) -> None:
    """Built with a compiler, a wheel has the C parts, and a tag that names no version of Python."""
    made = make("wheel", tmp_path, PARTAGE_REQUIRE_NATIVE="1")

    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith(f"-py3-none-{THIS_MACHINE}.whl")
    plugin = {SPANK} if compilers.system().definitions(libraries.SPANK_HEADER) else set()
    assert libraries_in(wheel) == LIBRARIES | plugin
    with zipfile.ZipFile(wheel) as archive:
        mode = archive.getinfo("partage/lib/simulated/simsmi").external_attr >> 16
    assert mode & 0o111, "simsmi is a program"


def test_an_editable_install_finds_them_in_the_tree(tmp_path: Path) -> None:
    """An editable install builds the C parts where the product then looks, not into its wheel."""
    made = make("wheel:editable", tmp_path, PARTAGE_REQUIRE_NATIVE="1")

    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.iterdir()
    assert not libraries_in(wheel)
    assert all((ROOT / "src" / name).exists() for name in LIBRARIES)


@pytest.mark.parametrize(
    "environment",
    [{"CC": "no-such-compiler"}, {"CC": "", "PATH": "/nowhere"}],
    ids=["named", "none"],
)
def test_without_a_compiler_the_rest_is_packed(environment: dict[str, str], tmp_path: Path) -> None:
    """No compiler means no fence: the build says so, and everything else can be installed."""
    made = make("wheel", tmp_path, **environment)

    assert made.returncode == 0, made.stderr
    assert "without the fence" in made.stderr
    assert "install gcc" in made.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not libraries_in(wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert "partage/cli/main.py" in archive.namelist()


def test_a_required_fence_is_not_left_out(tmp_path: Path) -> None:
    """Who asks for the C parts gets them or an error, never a wheel without them."""
    made = make("wheel", tmp_path, CC="no-such-compiler", PARTAGE_REQUIRE_NATIVE="1")

    assert made.returncode == 1
    assert made.stderr.startswith("CC names no-such-compiler, which was not found")
    assert not list(tmp_path.iterdir())


def test_sources_hold_all_that_a_build_needs(tmp_path: Path) -> None:
    """The source archive has the C sources and what builds them, and nothing that was built."""
    made = make("sdist", tmp_path)

    assert made.returncode == 0, made.stderr
    (archive,) = tmp_path.iterdir()
    with tarfile.open(archive) as files:
        names = {name.partition("/")[2] for name in files.getnames()}
    assert {"hatch_build.py", "native/libraries.py", "native/fence/exports.map"} <= names
    assert not {name for name in names if name.startswith("src/partage/lib")}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheels of a release, made and checked by the command that makes them."""
    if not (ROOT / ".venv-release/bin/hatchling").exists():
        leave_out("the release compiler", "`make wheels` installs it (450 MB)")
    folder = tmp_path_factory.mktemp("release")
    made = subprocess.run(
        ["scripts/wheels", folder], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return folder


@pytest.mark.parametrize("machine", compilers.MACHINES)
def test_a_release_serves_old_systems(machine: str, release: Path) -> None:
    """There is a wheel for each machine, complete, tagged by the old glibc it was checked for."""
    (wheel,) = release.glob(f"partage-*-py3-none-manylinux_2_17_{machine}.whl")

    assert libraries_in(wheel) == LIBRARIES


def test_a_release_loads(release: Path, tmp_path: Path) -> None:
    """A program starts with the library of a release preloaded, and neither says a word."""
    (wheel,) = release.glob(f"partage-*_{platform.machine()}.whl")
    with zipfile.ZipFile(wheel) as archive:
        library = archive.extract("partage/lib/libpartage.so", tmp_path)

    ran = subprocess.run(
        ["/bin/true"],
        env={"LD_PRELOAD": library, "LD_BIND_NOW": "1"},
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")
