"""``partage run`` with something that only a shell would start: it suggests what to write."""

from __future__ import annotations

import os
import pathlib
import shutil

import pytest

from tests.local.sites import Site

SHARE = ("--memory", "1GiB")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where the user stands, with files of many kinds."""
    made = tmp_path / "my work"
    made.mkdir()
    (made / "train.py").write_text("print('never')\n")
    for name, text in {
        "without.py": "print('never')\n",
        "without": "echo never\n",
        "empty": "",
        "with.sh": "#!/bin/sh\necho started\n",
    }.items():
        (made / name).write_text(text)
        (made / name).chmod(0o755)
    shutil.copyfile(shutil.which("true") or "/bin/true", made / "binary")
    (made / "binary").chmod(0o755)
    (made / "notes.txt").write_text("buy milk\n")
    return made


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        (["train.py", "--lr", "1"], 127, "train.py is in this folder, but not in the PATH; "),
        (["train.py", "--lr", "1 2"], 127, "; write `python train.py --lr '1 2'`\n"),
        (["./train.py"], 126, "./train.py cannot be executed; write `python ./train.py`\n"),
        (["without.py"], 127, "; write `python without.py`\n"),
        (["./without.py"], 126, "is a script without a #! line; write `python ./without.py`\n"),
        (["./without", "x"], 126, "is a script without a #! line; write `sh ./without x`\n"),
        (["./empty"], 126, "is a script without a #! line"),
        (["with.sh"], 127, "; write `./with.sh`\n"),
        (["binary"], 127, "; write `./binary`\n"),
        (["FOO=1", "python", "x"], 127, "FOO=1 sets a variable, and no shell reads it here; "),
        (["FOO=a b", "python"], 127, "; write `env 'FOO=a b' python`\n"),
        (["notes.txt"], 127, "there is no program notes.txt; check"),
        (["./notes.txt"], 126, "`chmod +x ./notes.txt`, or name its interpreter"),
        (["=x"], 127, "there is no program =x"),
    ],
)
def test_the_line_that_works_is_suggested(
    site: Site, folder: pathlib.Path, command: list[str], code: int, says: str
) -> None:
    """Before anything is granted, or waited for."""
    done = site.partage("run", *SHARE, "--", *command, cwd=folder)

    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (site.folder / "ledger.db").exists()


@pytest.mark.parametrize("command", [["./with.sh"], ["./binary"], ["env", "FOO=1", "./with.sh"]])
def test_what_can_be_started_is(site: Site, folder: pathlib.Path, command: list[str]) -> None:
    """Scripts with an interpreter, and binaries."""
    done = site.partage("run", *SHARE, "--", *command, cwd=folder)

    assert done.returncode == 0, done.stderr


def test_a_script_in_the_path_is_suggested_with_its_folder(
    site: Site, folder: pathlib.Path
) -> None:
    """An interpreter does not look into the PATH."""
    done = site.partage("run", *SHARE, "--", "without.py", env={"PATH": str(folder)})

    assert done.returncode == 126
    assert f"write `python '{folder}/without.py'`" in done.stderr


def test_a_pipe_is_not_read(site: Site, tmp_path: pathlib.Path) -> None:
    """Nobody may ever write to it."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o755)

    done = site.partage("run", *SHARE, "--fence", "advisory", "--", pipe)

    assert done.returncode == 126
