"""Checks of what holds jobs to their shares: the plugin's line, and what ends a job's fence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from partage.slurm import findings, statements

PLUGIN = "partage_spank.so"


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
