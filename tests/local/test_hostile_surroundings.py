"""Surroundings that a program may be started in: few files, nothing open, odd paths, no home."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tests.local import sites, users

RUN = ("run", "--memory", "1GiB", "--")


def test_it_runs_where_few_files_may_be_open(site: sites.Site) -> None:
    """A user may have a limit below the number that we would like for the lease."""
    command = [str(sites.PARTAGE), *RUN, "sh", "-c", "exec 9>&1; echo runs >&9"]
    done = _with_files(60, command, site)

    assert (done.returncode, done.stdout) == (0, "runs\n"), done.stderr


@pytest.mark.parametrize("files", [6, 8, 10, 11, 12])
def test_a_limit_of_files_that_is_too_low_is_told(site: sites.Site, files: int) -> None:
    """As what it is, with the command that raises it: nothing is wrong with the ledger."""
    # Not by its script: in a path with a blank that is one of the shell's, which needs files, too.
    program = "from partage.cli.main import main; main()"
    done = _with_files(files, [sys.executable, "-c", program, *RUN, "true"], site)

    assert done.returncode == 1
    assert f"this process may not have more than {files} files open; raise the limit" in done.stderr
    assert "`ulimit -n 1024`" in done.stderr


def test_it_runs_without_standard_files(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Those that are closed for us are no reason not to start, and no file of ours is in them."""
    seen = tmp_path / "seen"
    script = f"readlink /proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 > {seen}; exit 3"
    closing = 'exec "$@" <&- >&- 2>&-'
    done = subprocess.run(
        ["sh", "-c", closing, "sh", sites.PARTAGE, *RUN, "sh", "-c", script],
        env=site.environment,
        check=False,
    )

    assert done.returncode == 3
    assert str(site.folder) not in seen.read_text()


@pytest.mark.parametrize("command", [("ps",), ("ps", "-o", "json"), ("doctor",)])
def test_nobody_has_to_listen(site: sites.Site, command: tuple[str, ...]) -> None:
    """Without standard output there is nothing to say, and nothing to complain about."""
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", sites.PARTAGE, *command],
        env=site.environment,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert "Traceback" not in done.stderr


def test_it_runs_where_nothing_can_be_told(site: sites.Site) -> None:
    """A full disk under standard error keeps nobody from starting, nor from waiting."""
    holder = site.holding("--exclusive", "--cards", "2")
    with pathlib.Path("/dev/full").open("w") as full:
        waiting = site.start("run", "--exclusive", "--", "echo", "runs", stderr=full)
    sites.eventually(site.queued)
    holder.kill()

    assert waiting.communicate(timeout=sites.PATIENCE_S)[0] == "runs\n"


@pytest.mark.parametrize(
    "name", ["a\udcff", "a\x1b[2J", "a" * 250 + "/" + "b" * 250], ids=["bytes", "escape", "long"]
)
@pytest.mark.parametrize(
    "command", [(*RUN, "true"), ("ps", "-o", "json"), ("fit", "--memory=1GiB")]
)
def test_a_path_that_cannot_be_used_is_refused(
    site: sites.Site, tmp_path: pathlib.Path, name: str, command: tuple[str, ...]
) -> None:
    """It is told which, and what to write instead; nothing is made there."""
    path = tmp_path / name
    done = site.partage(*command, env={"PARTAGE_STATE": str(path)})

    assert done.returncode == 1
    assert "cannot be used" in done.stderr
    assert "PARTAGE_STATE" in done.stderr
    assert "Traceback" not in done.stderr
    assert not path.exists()


def test_any_other_path_will_do(site: sites.Site, tmp_path: pathlib.Path) -> None:
    """Blanks, colons, quotes and what is special in addresses are letters."""
    path = tmp_path / "a b:c?d#e%20é'\""
    done = site.partage(
        *RUN,
        "sh",
        "-c",
        'test -f "$PARTAGE_LIMITS" && echo fenced',
        env={"PARTAGE_STATE": str(path)},
    )

    assert (done.returncode, done.stdout) == (0, "fenced\n"), done.stderr


def test_a_fence_is_found_wherever_the_program_goes(
    site: sites.Site, tmp_path: pathlib.Path
) -> None:
    """A home that is no full path is taken from where the command was started."""
    done = site.partage(
        *RUN,
        *("sh", "-c", 'cd / && test -f "$PARTAGE_LIMITS" && echo fenced'),
        env={"PARTAGE_STATE": "", "XDG_STATE_HOME": "", "HOME": "here"},
        cwd=tmp_path,
    )

    assert (done.returncode, done.stdout) == (0, "fenced\n"), done.stderr


def test_a_user_without_home_is_told_what_to_do(site: sites.Site) -> None:
    """Neither HOME nor the user database may know one."""
    users.need_root()
    user = users.User(site.folder.parent, 54_009)
    for name in ("HOME", "PARTAGE_STATE", "XDG_STATE_HOME"):
        user.environment.pop(name, None)
    done = user.partage("ps")
    user.end()

    assert done.returncode == 1
    assert "has no home; name a folder in PARTAGE_STATE" in done.stderr


def test_a_model_that_is_no_text_is_refused(site: sites.Site) -> None:
    """It could be written to no ledger."""
    done = site.partage(
        "run", "--memory", "1GiB", "--model", os.fsdecode(b"[!\xff]*"), "--", "true"
    )

    assert done.returncode == 2
    assert "--model" in done.stderr


def _with_files(
    files: int, command: list[str], site: sites.Site
) -> subprocess.CompletedProcess[str]:
    """Run a command that may have so many files open.

    By a program of its own: code between fork and exec is not safe in a process with threads, and
    gRPC, which other tests load into this one, ends such a child.
    """
    limited = ["prlimit", f"--nofile={files}:{files}", "--", *command]
    return subprocess.run(
        limited, env=site.environment, capture_output=True, text=True, check=False
    )
