"""Completion, by the shell that people use: bash calls what `partage completion bash` printed."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import leaving_out
from tests.local import sites

BIN = pathlib.Path(sys.executable).parent
WORDS = """
eval "$(partage completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
$(complete -p partage | sed 's/.*-F \\([^ ]*\\).*/\\1/') partage
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(site: sites.Site, *words: str, **environment: str) -> list[str]:
    """What bash offers for the last of the words."""
    if not shutil.which("bash"):
        leaving_out.leave_out("bash", "it is not installed")
    path = f"{BIN}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", WORDS, "bash", *words],
        env=site.environment | {"PATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_and_options(site: sites.Site) -> None:
    """All that begin so."""
    assert completed(site, "partage", "re") == ["resize"]
    assert completed(site, "partage", "run", "--mem") == ["--memory"]
    assert completed(site, "partage", "run", "--policy", "b") == ["binpack"]
    assert completed(site, "partage", "completion", "") == ["bash", "zsh", "fish"]


def test_the_program_to_run_is_completed_as_a_shell_would(
    site: sites.Site, tmp_path: pathlib.Path
) -> None:
    """First programs of the PATH; behind them, and where there is a slash, files."""
    program = tmp_path / "bin" / "a-program-of-ours"
    program.parent.mkdir()
    program.touch(mode=0o755)
    path = f"{BIN}:{program.parent}:{os.environ['PATH']}"
    variables = {"_PARTAGE_COMPLETE": "bash_complete", "PATH": path}

    def said(*words: str) -> str:
        how = variables | {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        return site.partage(env=how).stdout

    run = ("partage", "run", "--memory", "4GiB", "--")
    assert said(*run, "a-program") == "plain,a-program-of-ours\n"
    assert said(*run, "a-program-of-ours", "tra") == "file,tra\n"
    assert said(*run, "./tra") == "file,./tra\n"
    assert said("partage", "fit", "-f", "po") == "file,po\n"


def test_names_of_programs_that_run(site: sites.Site) -> None:
    """From the ledger; those who wait have no share to change."""
    site.holding("--memory", "100%", "--cards", "2", "--name", "train-1")
    site.run("--memory", "1GiB", "--name", "train-2", command=["true"])
    sites.eventually(lambda: site.queued() == ["train-2"])

    assert completed(site, "partage", "resize", "tr") == ["train-1"]
    assert completed(site, "partage", "resize", "x") == []


def test_cards(site: sites.Site) -> None:
    """By their numbers, or by their UUIDs once one is begun."""
    first, second = (card["uuid"] for card in site.view()["cards"])

    assert completed(site, "partage", "run", "--card", "") == ["0", "1"]
    assert completed(site, "partage", "fit", "--card", "GPU-") == [first, second]
    assert completed(site, "partage", "run", "--card", second[:12]) == [second]
    assert completed(site, "partage", "run", "--card", "1") == ["1"]


@pytest.mark.parametrize("harm", ["no place", "no ledger", "not mine"])
def test_what_is_wrong_is_not_told_while_one_writes(
    site: sites.Site, tmp_path: pathlib.Path, harm: str
) -> None:
    """Nothing is offered, nothing is said, and nothing is made."""
    state = tmp_path / "other"
    if harm == "no ledger":
        state.mkdir()
        (state / "leases").mkdir()
        (state / "ledger.db").write_text("a diary\n" * 1000)
    elif harm == "not mine":
        state.write_text("a diary")
    before = sorted(tmp_path.rglob("*"))

    plain = {"PARTAGE_STATE": str(state), "PARTAGE_SIMULATE": ""}
    assert completed(site, "partage", "resize", "", **plain) == []
    assert completed(site, "partage", "run", "--card", "", **plain) == []

    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("shell", "begins"),
    [("bash", "_partage_completion()"), ("zsh", "#compdef partage"), ("fish", "function")],
)
def test_each_shell_has_its_own(site: sites.Site, shell: str, begins: str) -> None:
    """In its own language."""
    done = site.partage("completion", shell)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(begins)
    assert f"{shell}_complete" in done.stdout


def test_help_says_how_to_install_it(site: sites.Site) -> None:
    """For each shell."""
    said = site.partage("completion", "--help").stdout

    assert 'eval "$(partage completion bash)"' in said
    assert "partage.fish" in said
