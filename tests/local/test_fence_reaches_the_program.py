"""A program that the fence cannot get into is refused by ``--fence hook``, and else told."""

from __future__ import annotations

import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import pytest

from partage.local.run import fence_reach
from tests import leaving_out
from tests.local import sites, users

SOMEBODY = 65_100
STATICALLY = "it is linked statically"
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)  # version 2, CAP_NET_BIND_SERVICE


@pytest.fixture
def static(tmp_path: pathlib.Path) -> pathlib.Path:
    """A program without a loader; with arguments, it becomes the program that they name."""
    source, made = tmp_path / "static.c", tmp_path / "static"
    source.write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        "int main(int argc, char **argv) {\n"
        "  if (argc > 1) return execvp(argv[1], argv + 1);\n"
        '  puts(getenv("PARTAGE_FENCE")); fflush(stdout); getchar(); return 7;\n}\n'
    )
    compiler = shutil.which("cc")
    command = [compiler or "false", "-static", str(source), "-o", str(made)]
    if subprocess.run(command, check=False).returncode:
        leaving_out.leave_out("a program without a loader", "there is no C library for one")
    return made


@pytest.fixture
def copy() -> Iterator[pathlib.Path]:
    """A copy of a program, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).chmod(0o755)
        yield pathlib.Path(shutil.copy(shutil.which("echo") or "/bin/echo", folder))


def test_a_static_program_is_refused_where_a_fence_is_wanted(
    site: sites.Site, static: pathlib.Path
) -> None:
    """Like a fence that is not to be had; nothing is granted, and nothing runs."""
    done = site.partage("run", "--memory", "1GiB", "--fence", "hook", "--", static)

    assert (done.stdout, done.returncode) == ("", 2)
    assert f"--fence: {static} would run without its fence: {STATICALLY}" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_static_program_runs_where_no_fence_is_wanted(
    site: sites.Site, static: pathlib.Path
) -> None:
    """One line says that it is not held."""
    done = site.partage("run", "--memory", "1GiB", "--", static)

    assert (done.stdout, done.returncode) == ("advisory\n", 7)
    assert f"partage: the fence does not reach {static}: {STATICALLY}" in done.stderr


def test_a_static_program_is_shown_without_a_fence(site: sites.Site, static: pathlib.Path) -> None:
    """Nothing holds it and nobody counts what it uses; a share that is changed is only told."""
    running = site.run(
        "--memory", "1GiB", "--name", "free", command=[str(static)], stdin=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "advisory\n"

    (shown,) = site.view()["tenants"]
    resized = site.partage("resize", "free", "--memory", "2GiB")
    assert (shown["fence"], shown["used_bytes"], shown["peak_bytes"]) == ("advisory", None, None)
    assert "nothing keeps free to its share: its fence is advisory" in resized.stderr
    assert site.view()["tenants"][0]["memory_mib"] == 2048


def test_what_a_static_program_starts_is_held(site: sites.Site, static: pathlib.Path) -> None:
    """A launcher may be linked statically: the fence is there for all that it starts."""
    held = [str(static), sys.executable, str(sites.PROGRAM), "hold", "512"]
    running = site.run("--memory", "4GiB", "--name", "child", command=held)
    assert running.stdout is not None
    assert running.stdout.readline().startswith("holds")

    (shown,) = site.view()["tenants"]
    resized = site.partage("resize", "child", "--memory", "256MiB")
    assert shown["fence"] == "hook"
    assert shown["used_bytes"] >= 512 << 20
    assert resized.returncode == 2
    assert "are in use" in resized.stderr


def test_a_program_that_the_fence_reaches_is_nothing_to_tell(site: sites.Site) -> None:
    """Neither refused nor spoken of, by its name or by its path, as a script or not."""
    script = site.folder.parent / "script"
    script.write_text("#! /bin/sh -e\necho ran\n")
    script.chmod(0o755)
    for command in (["echo", "ran"], [shutil.which("echo"), "ran"], [script]):
        done = site.partage("run", "--memory", "1GiB", "--fence", "hook", "--", *command)
        assert (done.stdout, done.returncode) == ("ran\n", 0), done.stderr
        assert "the fence does not reach" not in done.stderr


def test_a_script_is_judged_by_its_interpreter(
    static: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Also by that of its interpreter, if that is a script; its own set-user-ID means nothing."""
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text(f"#!{static} -x\n")
    outer.write_text(f"#!{inner}\n")
    assert STATICALLY in fence_reach.hindrance(str(outer))

    outer.write_text("#!/bin/sh\n")
    outer.chmod(0o4755)
    assert fence_reach.hindrance(str(outer)) == ""


def test_a_program_with_other_rights_is_refused(site: sites.Site, copy: pathlib.Path) -> None:
    """The loader ignores the preload there; by the program's name too, as the shell finds it."""
    users.need_root()
    path = {"PATH": f"{copy.parent}:{os.environ['PATH']}"}
    os.chown(copy, SOMEBODY, SOMEBODY)
    for mode, words in ((0o4755, "runs as another user"), (0o2755, "runs as another group")):
        copy.chmod(mode)
        command = ["run", "--memory", "1GiB", "--fence", "hook", "--", "echo", "ran"]
        refused = site.partage(*command, env=path)
        assert (refused.stdout, refused.returncode) == ("", 2)
        assert f"{copy} would run without its fence: it {words}" in refused.stderr
    copy.chmod(0o755)
    assert site.partage(*command, env=path).stdout == "ran\n"


def test_the_judgement_is_that_of_the_loader(copy: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Which says what it cannot preload, for every program that it would preload into."""
    users.need_root()
    somebody = users.User(tmp_path, SOMEBODY)
    script = (
        "import os, subprocess, sys\n"
        "from partage.local.run import fence_reach\n"
        "done = subprocess.run(\n"
        "    [sys.argv[1]], env={'LD_PRELOAD': '/no/library'}, capture_output=True, text=True)\n"
        "print(not fence_reach.hindrance(sys.argv[1]), 'cannot be preloaded' in done.stderr)\n"
    )
    plain = somebody.python(script, copy)
    copy.chmod(0o4755)  # of root
    set_user = somebody.python(script, copy)
    os.chown(copy, SOMEBODY, SOMEBODY)
    copy.chmod(0o6755)  # of the user who runs it
    own = somebody.python(script, copy)
    copy.chmod(0o755)
    os.setxattr(copy, "security.capability", CAPABILITY)
    capable = somebody.python(script, copy)

    assert [plain, own] == ["True True"] * 2
    assert [set_user, capable] == ["False False"] * 2


def test_what_cannot_be_looked_into_is_not_trusted(
    copy: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """A program that may be executed and not read could be anything."""
    users.need_root()
    copy.chmod(0o711)
    said = users.User(tmp_path, SOMEBODY).python(
        "import sys; from partage.local.run import fence_reach\n"
        "print(fence_reach.hindrance(sys.argv[1]))",
        copy,
    )
    assert said == f"{copy} cannot be read (Permission denied)"


@pytest.mark.parametrize("size", [0, 3, 5, 30, 60, 64, 100])
def test_a_damaged_program_is_left_to_the_kernel(tmp_path: pathlib.Path, size: int) -> None:
    """Whatever part of it is there; to start it says what is wrong."""
    program = tmp_path / "program"
    whole = pathlib.Path(shutil.which("echo") or "/bin/echo").read_bytes()
    program.write_bytes(whole[:size])
    assert fence_reach.hindrance(str(program)) == ""


_HEADER = b"\x7fELF\x02\x01\x01" + bytes(57)
ODD = {
    "a table of four gigabytes": _HEADER[:32] + struct.pack("<Q14xHH", 64, 65535, 65535),
    "a table beyond any file": _HEADER[:32] + struct.pack("<Q14xHH", 1 << 63, 56, 1),
    "a script of nobody": b"#!\n",
    "a script with a null": b"#!\0/bin/sh\n",
    "a script of a folder": b"#!/\n",
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_what_was_made_to_mislead_is_left_to_the_kernel(
    tmp_path: pathlib.Path, content: bytes
) -> None:
    """It is read no further than the kernel would, and nothing is raised."""
    program = tmp_path / "program"
    program.write_bytes(content.ljust(100, b"\0"))
    assert fence_reach.hindrance(str(program)) == ""
