"""Building the C parts for this machine: what is built, when, and what happens where it fails."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from native import libraries

NATIVE = libraries.SOURCES
SMALL_FENCE = "int cuInit(unsigned flags) { return (int)flags; }\n"
# Gets half of its work done, and ends the build that runs it.
KILLING_COMPILER = """#!/bin/sh
for folder in lib/.unfinished-*; do touch "$folder/half"; done
kill -9 $PPID
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What builds the C parts, with a fence of one line, as the way of building is tested here."""
    ignored = shutil.ignore_patterns("*.c", "__pycache__")
    shutil.copytree(NATIVE, tmp_path / "native", ignore=ignored)
    (tmp_path / "native/fence/small.c").write_text(SMALL_FENCE)
    (tmp_path / "native/fence/exports.map").write_text("{ global: cuInit; local: *; };\n")
    return tmp_path


def start(checkout: Path, **environment: str) -> subprocess.Popen[str]:
    """Start `python -m native fence` there, which builds into the folder `lib`."""
    return subprocess.Popen(
        [sys.executable, "-m", "native", "--out", "lib", "fence"],
        cwd=checkout,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """What came of it."""
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def build(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Build, and wait for it."""
    return finish(start(checkout, **environment))


def library(checkout: Path) -> Path:
    """What was built."""
    return checkout / "lib/libpartage.so"


def change(checkout: Path, name: str, text: str) -> None:
    """Add a line to a file of the checkout."""
    with (checkout / "native" / name).open("a") as file:
        file.write(f"{text}\n")


def test_a_second_build_finds_nothing_to_do(checkout: Path) -> None:
    """What is up to date is neither built nor touched, however new the files' times are."""
    assert build(checkout).stdout.startswith("native: fence: built")
    before = library(checkout).stat()
    (checkout / "native/fence/small.c").touch()

    assert build(checkout).stdout == "native: fence: up to date\n"
    assert library(checkout).stat() == before


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("fence/small.c", "int more(void) { return 1; } int more(void);"),
        ("fence/new.h", "/* a new file */"),
        ("compilers.py", "# other flags"),
        ("libraries.py", "# another way of building"),
    ],
    ids=["source", "header", "flags", "way"],
)
def test_a_change_is_built(checkout: Path, name: str, text: str) -> None:
    """A change of a source, of a header or of the way of building makes the library anew."""
    build(checkout)
    before = library(checkout).stat()
    change(checkout, name, text)

    assert build(checkout).stdout.startswith("native: fence: built")
    assert library(checkout).stat().st_ino != before.st_ino


def test_another_compiler_builds_anew(checkout: Path) -> None:
    """The compiler's command line is part of what decides."""
    build(checkout, CC="cc")

    assert build(checkout, CC="cc -DOTHER").stdout.startswith("native: fence: built")


def test_a_removed_library_is_built_again(checkout: Path) -> None:
    """Being up to date means that the library is there, not only that it once was."""
    build(checkout)
    library(checkout).unlink()

    assert build(checkout).stdout.startswith("native: fence: built")
    assert library(checkout).exists()


def test_a_failed_build_leaves_the_old_library(checkout: Path) -> None:
    """An error of the compiler is shown, and what was there stays and still counts as stale."""
    build(checkout)
    before = library(checkout).read_bytes()
    change(checkout, "fence/small.c", "#error not yet")

    for _ in range(2):
        failed = build(checkout)
        assert failed.returncode == 1
        assert failed.stderr.startswith("native: fence: small.c does not compile:\n")
        assert "not yet" in failed.stderr
    assert library(checkout).read_bytes() == before


def test_a_killed_build_leaves_the_old_library(checkout: Path) -> None:
    """A build that ends in the middle changes nothing, and the next one cleans up after it."""
    build(checkout)
    before = library(checkout).read_bytes()
    killing = checkout / "killing-compiler"
    killing.write_text(KILLING_COMPILER)
    killing.chmod(0o755)

    assert build(checkout, CC=str(killing)).returncode < 0
    assert library(checkout).read_bytes() == before
    assert list(library(checkout).parent.glob(".unfinished-*/half"))

    assert build(checkout).stdout.startswith("native: fence: built")
    assert not list(library(checkout).parent.glob(".unfinished-*"))


def test_of_two_builds_at_once_one_does_the_work(checkout: Path) -> None:
    """Builds of the same checkout wait for each other, and the second finds all done."""
    both = [finish(process) for process in (start(checkout), start(checkout))]

    assert sorted(done.stdout.split()[2] for done in both) == ["built", "up"]
    assert [done.returncode for done in both] == [0, 0]


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"CC": "no-such-compiler"}, "CC names no-such-compiler, which was not found"),
        ({"CC": "", "PATH": "/nowhere"}, "no C compiler was found"),
    ],
    ids=["named", "none"],
)
def test_a_missing_compiler_is_one_clear_line(
    checkout: Path, environment: dict[str, str], reason: str
) -> None:
    """Who has no compiler reads what is missing and what to install."""
    failed = build(checkout, **environment)

    assert failed.returncode == 1
    assert failed.stderr.startswith(f"native: {reason}")
    assert "install gcc" in failed.stderr
    assert failed.stderr.count("\n") == 1


def test_a_part_without_sources_is_said_to_be_missing(checkout: Path) -> None:
    """A checkout that lacks the sources gets no empty library."""
    (checkout / "native/fence/small.c").unlink()

    failed = build(checkout)

    assert failed.returncode == 1
    assert failed.stderr.startswith("native: fence: native/fence has no source in C")


def test_the_plugin_of_slurm_is_left_out_without_its_headers(checkout: Path) -> None:
    """That is no failure: most machines have no Slurm."""
    compiler = checkout / "compiler"
    compiler.write_text('#!/bin/sh\nexec cc -nostdinc "$@"\n')
    compiler.chmod(0o755)
    shutil.copy(NATIVE / "spank/plugin.c", checkout / "native/spank")
    done = subprocess.run(
        [sys.executable, "-m", "native", "--out", "lib", "spank"],
        cwd=checkout,
        env=os.environ | {"CC": str(compiler)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("native: spank: left out: there is no slurm/spank.h")
    assert not (checkout / "lib/spank" / libraries.SPANK).exists()
