"""Checks of what holds for all nodes: plugins of Slurm, cgroups, accounting, several cards."""

from __future__ import annotations

from collections.abc import Iterator

from partage.slurm.checks import machine_facts
from partage.slurm.configuration import findings, gres, statements, submit_rule

_YES = ("yes", "up", "true", "1")  # as Slurm reads it
_OPEN = "a job can open every card of its node"


def written_well(document: statements.Document) -> Iterator[findings.Finding]:
    """What is neither a key nor a value stops Slurm."""
    for statement in document.statements:
        if statement.unreadable:
            text = f"{statement.unreadable[:80]!r} is not Key=Value"
            remedy = "write Key=Value, with quotes around a value that has blanks"
            yield findings.problem("bad-line", statement.place, text, remedy)


def devices_constrained(
    slurm: statements.Document, cgroup: statements.Document
) -> Iterator[findings.Finding]:
    """Without these a job can open every card of its node."""
    value, place = slurm.setting("TaskPlugin")
    plugins = statements.words(value)
    if "task/cgroup" not in plugins and "cgroup" not in plugins:
        written = f"TaskPlugin={value} has no task/cgroup" if value else "TaskPlugin is not set"
        kept = [plugin for plugin in plugins if plugin != "task/none"]
        remedy = f"write TaskPlugin={','.join([*kept, 'task/cgroup'])}"
        yield findings.problem("task-plugin", place, f"{written}: {_OPEN}", remedy)
    value, place = cgroup.setting("ConstrainDevices")
    if value.lower() not in _YES:
        written = f"ConstrainDevices={value}" if value else "ConstrainDevices is not set"
        remedy = "write ConstrainDevices=yes"
        yield findings.problem("constrain-devices", place, f"{written}: {_OPEN}", remedy)


def selection(slurm: statements.Document) -> Iterator[findings.Finding]:
    """Only one plugin counts what is shared."""
    value, place = slurm.setting("SelectType")
    if value.lower() not in ("select/cons_tres", "cons_tres"):
        written = f"SelectType={value}" if value else "SelectType is not set"
        text = f"{written}: shards and mps are counted by select/cons_tres only"
        yield findings.problem("select-type", place, text, "write SelectType=select/cons_tres")


def accounting(slurm: statements.Document) -> Iterator[findings.Finding]:
    """slurmctld does not start with one and without the other."""
    value, place = slurm.setting("AccountingStorageTRES")
    resources = [word for word in statements.words(value) if word.startswith("gres/")]
    storage = slurm.setting("AccountingStorageType")[0].lower()
    if resources and storage != "accounting_storage/slurmdbd":
        text = f"{resources[0]} is to be accounted without slurmdbd, and slurmctld does not start"
        remedy = "remove gres/... here, or write AccountingStorageType=accounting_storage/slurmdbd"
        yield findings.problem("accounting", place, text, remedy)


def several_cards(
    slurm: statements.Document, nodes: list[gres.Node], facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """A job that asks for more than one card has waits for ever, unless Slurm may use several."""
    value, place = slurm.setting("SelectTypeParameters")
    allowed = submit_rule.SEVERAL in statements.words(value)
    old = facts.version is not None and facts.version < submit_rule.SEVERAL_CARDS_SINCE
    if allowed and old:
        text = (
            f"Slurm {facts.version} does not know {submit_rule.SEVERAL.upper()}, and does not start"
        )
        remedy = "remove it: a job has shards of one card only before 23.11"
        yield findings.problem("several-cards", place, text, remedy)
    if allowed or not any(len(node.files) > 1 and node.of(*gres.SHARINGS) for node in nodes):
        return
    text = "a job that asks for more shards, or more mps, than one card has waits for ever"
    if not old:
        parameters = f"{value}," if value else ""
        remedy = f"write SelectTypeParameters={parameters}{submit_rule.SEVERAL.upper()}"
        yield findings.note("several-cards", place, text, remedy)
    elif not slurm.setting("JobSubmitPlugins")[0]:
        remedy = "run `partage slurm install` where slurmctld runs: its rule refuses such a job"
        yield findings.note("several-cards", place, text, remedy)


def preload(facts: machine_facts.Facts) -> Iterator[findings.Finding]:
    """A fence around a job is bound over this file; nothing is bound over a file that is not."""
    if not facts.preload:
        text = "there is no such file, over which the fence of a job is mounted"
        remedy = "run `partage slurm prepare` on each node, which makes an empty one"
        place = statements.Place(str(machine_facts.PRELOAD))
        yield findings.note("no-preload-file", place, text, remedy)


def plugins(
    plugstack: statements.Document, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """Jobs do not start where a required plugin is missing."""
    for statement in plugstack.statements:
        words = statement.text.split()
        if words[0].lower() not in ("required", "optional") or len(words) < 2:
            text = f"{statement.text[:80]!r} is not a line of plugstack.conf"
            remedy = "write: required FILE [ARGUMENT...]"
            yield findings.problem("bad-line", statement.place, text, remedy)
            continue
        missing = (
            facts.files.get(words[1], machine_facts.File(machine_facts.Kind.OTHER)).kind
            is machine_facts.Kind.MISSING
        )
        if words[0].lower() == "required" and missing:
            text = f"there is no file {words[1]}, and no job starts without it"
            remedy = "install the plugin, or remove this line"
            yield findings.problem("no-plugin", statement.place, text, remedy)
        yield from _build(words[1], statement.place, facts)


def _build(
    plugin: str, place: statements.Place, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """Slurm loads what was built for the same year and month."""
    version = facts.built_for.get(plugin)
    if version is not None and facts.version is not None and version != facts.version:
        text = f"{plugin} is built for Slurm {version}, and Slurm {facts.version} does not load it"
        remedy = "build it with the headers of this Slurm, and install it again"
        yield findings.problem("other-slurm", place, text, remedy)


def plugin_files(plugstack: statements.Document) -> list[str]:
    """The files that plugstack.conf names by their whole path."""
    lines = [statement.text.split() for statement in plugstack.statements]
    return [words[1] for words in lines if len(words) > 1 and words[1].startswith("/")]
