"""Checks of what holds jobs to their shares: the plugin's line, and what ends a job's fence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from partage.slurm.checks import machine_facts
from partage.slurm.configuration import findings, gres, statements

PLUGIN = "partage_spank.so"
_SCRIPTS = {"Prolog": "no-prolog", "Epilog": "no-epilog"}  # and what is told if one is missing


def names_plugin(statement: statements.Statement) -> bool:
    """Whether a line of plugstack.conf is about Partage's plugin."""
    words = statement.text.split()
    return len(words) > 1 and PurePath(words[1]).name == PLUGIN


def plugin(
    slurm: statements.Document, plugstack: statements.Document
) -> Iterator[findings.Finding]:
    """Where the plugin is, it must be able to keep a task from starting; and a job must end."""
    lines = [statement for statement in plugstack.statements if names_plugin(statement)]
    for statement in lines:
        if statement.text.split()[0].lower() != "required":
            text = "jobs whose share cannot be held start all the same, without a fence"
            remedy = f"write required instead of {statement.text.split()[0]}"
            yield findings.problem("optional-plugin", statement.place, text, remedy)
    if lines and not slurm.setting("Epilog")[0]:
        text = "there is no Epilog: the fences of jobs that have ended stay, and their use is lost"
        yield findings.problem("no-epilog", slurm.place, text, "run `partage slurm install`")
    if lines and not slurm.setting("Prolog")[0]:
        text = "there is no Prolog: jobs do not start after a restart of the node, or a change of"
        remedy = "run `partage slurm install`, or `partage slurm prepare` before each slurmd"
        yield findings.note("no-prolog", slurm.place, f"{text} gres.conf", remedy)


def held(plugstack: statements.Document, nodes: list[gres.Node]) -> Iterator[findings.Finding]:
    """Slurm counts shares of cards, and nothing but the plugin holds jobs to them."""
    shared = any(node.of(*gres.SHARINGS) for node in nodes)
    if shared and not any(names_plugin(statement) for statement in plugstack.statements):
        text = "no line names Partage's plugin: a job with a share of a card can use all of it"
        remedy = "run `partage slurm install`"
        yield findings.note("not-held", plugstack.place, text, remedy)


def scripts(slurm: statements.Document, facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """A script that is missing takes the node out of use with its first job."""
    for path in script_files(slurm):
        file = facts.files.get(path)
        if file is not None and file.kind is machine_facts.Kind.MISSING:
            key = next(key for key in _SCRIPTS if slurm.setting(key)[0] == path)
            text = f"there is no file {path}, and the node is taken out of use by its first job"
            remedy = "run `partage slurm install`, or write the right file"
            yield findings.problem(_SCRIPTS[key], slurm.setting(key)[1], text, remedy)


def script_files(slurm: statements.Document) -> list[str]:
    """The scripts of a node that slurm.conf names by their whole path, and not by a pattern."""
    values = [slurm.setting(key)[0] for key in _SCRIPTS]
    return [value for value in values if value.startswith("/") and not set("*?[,") & set(value)]
