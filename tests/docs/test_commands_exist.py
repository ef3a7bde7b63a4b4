"""Every command that README and docs show: its program is known, its options and files exist."""

from __future__ import annotations

import pathlib
import re
import shlex

import click
import pytest

from cluster import __main__ as cluster
from image import __main__ as image
from partage.cli import command_group
from release import __main__ as release
from tests.docs import blocks

# Programs of others, whose options are theirs to check; files of ours that they name must exist.
OTHERS = {
    *("cat", "crane", "ctr", "docker", "git", "helm", "kubectl", "nvidia-ctk", "podman", "sacct"),
    *("sha256sum", "skopeo", "srun", "systemctl"),
}
# Blocks that are one script, and run as a whole by test_scripts_run.
SCRIPTS = ("openssl",)
TARGETS = set(
    re.findall(r"^([a-z-]+):", (blocks.ROOT / "Makefile").read_text(), flags=re.MULTILINE)
)
OURS = ("deploy/", "examples/", "scripts/")

SHELL = [block for block in blocks.of("console", "sh") if not block.text.startswith(SCRIPTS)]
COMMANDS = [command for block in SHELL for command in blocks.commands(block)]
IN_SENTENCES = sorted(
    {
        (str(page.relative_to(blocks.ROOT)), text)
        for page in blocks.PAGES
        for text in re.findall(r"`((?:sudo |\.venv/bin/)*partage [^`]+)`", page.read_text())
    }
)


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_a_command_of_a_block(command: blocks.Command) -> None:
    """Each part of a pipe, and what is started in a container."""
    for words in _parts(command.text):
        _check(words)


@pytest.mark.parametrize(("page", "text"), IN_SENTENCES)
def test_a_command_in_a_sentence(page: str, text: str) -> None:
    """There, too; what is left open in it (POD, ...) is an argument, or the value of an option."""
    for words in _parts(text.replace("...", "").replace("…", "")):
        try:
            _check(words)
        except click.BadOptionUsage:  # its value is left open
            _check([*words, "OPEN"])


@pytest.mark.parametrize("block", blocks.of(""), ids=str)
def test_a_block_without_a_language_has_no_commands(block: blocks.Block) -> None:
    """They would not be checked: such blocks are pictures, and what programs print."""
    pattern = r"^(\w+=\S+ )?(\$|make|kubectl|sudo|partage \w+ --) "
    assert not re.search(pattern, block.text, flags=re.MULTILINE)


def test_there_are_commands() -> None:
    """The patterns find them."""
    assert len(COMMANDS) > 30
    assert len(IN_SENTENCES) > 30


@pytest.mark.parametrize(
    "wrong",
    [
        "partage nope",
        "partage run --memroy 4GiB -- x",
        "partage fit --policy best",
        "partage ps train",
        "make cluster ARGS='--kublets 2'",
        "make image ARGS='--machine sparc'",
        "make release ARGS='--trail'",
    ],
)
def test_a_slip_is_found(wrong: str) -> None:
    """A check that passes everything checks nothing."""
    with pytest.raises(click.UsageError):
        _check(shlex.split(wrong))


def _parts(text: str) -> list[list[str]]:
    """The words of each command in a line."""
    words = shlex.split(re.sub(r" > \S+", "", text), comments=True)  # without where output goes
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            parts.append([])
        else:
            parts[-1].append(word)
    inner = [part[part.index("--") + 1 :] for part in parts if "exec" in part and "--" in part]
    return [_bare(part) for part in (*parts, *inner)]


def _bare(words: list[str]) -> list[str]:
    """Without what stands before the program: sudo, and variables."""
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    return words


def _check(words: list[str]) -> None:
    program, *arguments = words
    if pathlib.Path(program).name == "partage" or program == "$(command -v partage)":
        _check_options(command_group.commands, arguments)
    elif program == "make":
        _check_targets(arguments)
    else:
        assert program in (*OTHERS, "export", "grep"), f"nobody checks {program}"
    for path in (word for word in arguments if word.startswith(OURS)):
        assert (blocks.ROOT / path).exists(), path


def _check_targets(words: list[str]) -> None:
    """Those of make; what goes on to a command is read by that one."""
    targets = [word for word in words if "=" not in word]
    assert set(targets) <= TARGETS
    for word in words:
        given = word.removeprefix("ARGS=").split()
        if targets == ["cluster"] and word.startswith("ARGS="):
            _check_options(cluster.commands, ["up", *given])
        if targets == ["image"] and word.startswith("ARGS=") and given != ["--help"]:
            _check_options(image.main, given)
        if targets == ["release"] and word.startswith("ARGS=") and given != ["--help"]:
            _check_options(release.main, given)


def _check_options(command: click.Command, words: list[str]) -> None:
    """As click reads them, without calling anything."""
    context = click.Context(command, info_name=command.name)
    options, rest, _ = command.make_parser(context).parse_args(list(words))
    for parameter in command.params:
        if isinstance(parameter.type, click.Choice) and parameter.name in options:
            parameter.type_cast_value(context, options[parameter.name])
    if isinstance(command, click.Group) and rest:
        _, inner, rest = command.resolve_command(context, rest)
        assert inner is not None
        _check_options(inner, rest)
    elif rest:
        raise click.UsageError(f"{command.name}: unexpected {rest}")
