"""Bytecode: compiled by the image's own Python, as its root file system is not written to later.

Without it each start would compile all of Partage again. It says that its source is never compared
with it (PEP 552), so it depends on the source alone and not on any time. The Python for this
machine compiles for all: bytecode is the same on each. It is run from an unpacked folder, by its
own loader, so that nothing has to be installed, and no right is needed.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from image import errors, files, settings
from image.files import File

_TAG = f"cpython-{settings.PYTHON.replace('.', '')}"
_COMPILE = """
import py_compile, sys
for line in sys.stdin:
    source, result, shown = line.rstrip("\\n").split("\\t")
    py_compile.compile(source, result, shown, doraise=True, optimize=0,
                       invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
"""


class Interpreter:
    """The image's Python, unpacked into a folder of this machine."""

    def __init__(self, root: Path, unpacked: Iterable[File], machine: settings.Machine) -> None:
        self._root = root
        self._loader = root / machine.loader
        for file in files.merged(unpacked):
            _write(root, file)

    def compiled(self, sources: Iterable[File]) -> list[File]:
        """The bytecode of those that are Python."""
        modules = [file for file in sources if file.path.endswith(".py") and not file.target]
        with tempfile.TemporaryDirectory() as scratch:
            results = [Path(scratch) / f"{number}.pyc" for number in range(len(modules))]
            lines = []
            for module, result in zip(modules, results, strict=True):
                source = result.with_suffix(".py")
                source.write_bytes(module.content)
                lines.append(f"{source}\t{result}\t/{module.path}\n")
            self._run(_COMPILE, "".join(lines))
            return [
                File(_place(module.path), content=result.read_bytes())
                for module, result in zip(modules, results, strict=True)
            ]

    def _run(self, program: str, given: str) -> None:
        libraries = sorted({str(path.parent) for path in self._root.rglob("lib*.so*")})
        command = [str(self._loader), "--library-path", ":".join(libraries)]
        command += [str(self._root / f"usr/bin/python{settings.PYTHON}"), "-S", "-c", program]
        # A fixed seed: the order of a set could end up in bytecode.
        environment = {"PYTHONHOME": str(self._root / "usr"), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            command, input=given, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = done.stderr.strip()
            raise errors.CannotMake(f"the image's Python cannot compile; it says:\n{said}")


def _place(path: str) -> str:
    source = PurePosixPath(path)
    return str(source.parent / "__pycache__" / f"{source.stem}.{_TAG}.pyc")


def _write(root: Path, file: File) -> None:
    path = root / file.path
    if file.is_folder:
        path.mkdir(parents=True, exist_ok=True)
    elif file.target:
        # Relative to the folder, so that a link does not leave it.
        inside = file.target.lstrip("/") if file.target.startswith("/") else None
        path.symlink_to(os.path.relpath(root / inside, path.parent) if inside else file.target)
    else:
        path.write_bytes(file.content)
        path.chmod(file.mode)
