"""What hatchling runs when it makes a wheel: builds the C parts and puts them into it.

They are plain shared objects and no extension modules, so one wheel serves every Python 3 of a
platform, and its tag says so. Where they cannot be built, for want of a compiler or of headers, the
wheel is made without them and fits every platform: whoever only schedules needs no fence. That
must not happen unseen to a release or an image, so PARTAGE_REQUIRE_NATIVE=1 makes it an error.

PARTAGE_RELEASE_FOR=x86_64 (or aarch64) builds with the release compiler; `make wheels` and `make
image` do that. What it built stays in build/release, so that the next wheel compiles what changed.
"""

import contextlib
import functools
import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))  # hatchling loads this file by its path

from native import compilers, parts

REQUIRE_NATIVE = "PARTAGE_REQUIRE_NATIVE"
RELEASE_FOR = "PARTAGE_RELEASE_FOR"
RELEASE = Path(__file__).parent / "build" / "release"


class NativeParts(BuildHookInterface[Any]):
    """Adds `partage/lib` and a platform's tag to a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the parts: for an editable install in the tree, which the product then reads."""
        try:
            if version == "editable":
                _build(parts.LIB, compilers.system())  # just as `python -m native`
            else:
                self._fill(build_data, *_compiler_and_platform())
        except compilers.CannotBuild as error:
            self._do_without(error)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel now holds."""
        self._scratch.cleanup()

    @functools.cached_property
    def _scratch(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory()

    def _fill(
        self, build_data: dict[str, Any], compiler: compilers.Compiler, platform: str
    ) -> None:
        machine = os.environ.get(RELEASE_FOR)
        lib = RELEASE / machine if machine else Path(self._scratch.name)
        _build(lib, compiler)
        build_data["force_include"] |= _contents(lib)
        build_data |= {"tag": f"py3-none-{platform}", "pure_python": False}

    def _do_without(self, error: compilers.CannotBuild) -> None:
        if os.environ.get(REQUIRE_NATIVE) or os.environ.get(RELEASE_FOR):
            self.app.abort(str(error))
        self.app.display_warning(f"partage is installed without the fence: {error}")


def _compiler_and_platform() -> tuple[compilers.Compiler, str]:
    if machine := os.environ.get(RELEASE_FOR):
        glibc = "_".join(map(str, compilers.GLIBC))
        return compilers.release(machine), f"manylinux_{glibc}_{machine}"
    # A warning that only a newer compiler knows must not cost a user the fence.
    return compilers.system("-Wno-error"), _this_platform()


def _build(lib: Path, compiler: compilers.Compiler) -> None:
    for part in parts.PARTS:
        with contextlib.suppress(compilers.LeftOut):  # what is for one Slurm alone
            parts.refresh(part, lib, compiler)


def _this_platform() -> str:
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def _contents(lib: Path) -> dict[str, str]:
    files = [part.out(lib) / file for part in parts.PARTS for file in part.files]
    return {str(file): f"partage/lib/{file.relative_to(lib)}" for file in files if file.exists()}
