"""The rule for submissions: what slurmctld refuses at once, as it would never run.

Slurm takes a job that asks for more shards than one card has, and lets it wait for ever. The rule
is a file of Lua that is made from slurm.conf and gres.conf, so that no number is written twice. It
is in a file of its own: a site that has a job_submit.lua calls it from there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from partage.slurm import slurm_programs
from partage.slurm.configuration import config_files, gres, statements

NAME = "partage_job_submit.lua"  # beside slurm.conf
SCRIPT = "job_submit.lua"  # likewise: slurmctld looks for it there
SETTING, PLUGIN = "JobSubmitPlugins", "lua"
SEVERAL = "multiple_sharing_gres_pj"
SEVERAL_CARDS_SINCE = slurm_programs.Version(23, 11)
_TYPES_WORK_SINCE = slurm_programs.Version(23, 11)


def rule(configuration: config_files.Configuration, version: slurm_programs.Version | None) -> str:
    """The file, for all nodes of a cluster; raises gres.Malformed."""
    slurm = configuration.slurm
    most: dict[str, int] = {}
    if not may_have_several_cards(slurm, version):
        most = largest(gres.kinds(slurm, configuration.gres))
    types_fail = version is not None and version < _TYPES_WORK_SINCE
    return _filled(
        NAME,
        FILE=_quoted(Path(slurm.path).with_name(NAME)),
        LARGEST=", ".join(f"{name} = {count}" for name, count in most.items()),
        TYPES_FAIL="true" if types_fail else "false",
    )


def script(main: Path) -> str:
    """The job_submit.lua of a site that has none."""
    return _filled(SCRIPT, FILE=_quoted(main.with_name(NAME)))


def call(main: Path) -> str:
    """What the job_submit.lua of a site has to do."""
    return (
        f"local answer = dofile({_quoted(main.with_name(NAME))})(job_desc); "
        "if answer ~= slurm.SUCCESS then return answer end"
    )


def is_ours(text: str) -> bool:
    """Whether a job_submit.lua is the one that is written here, if an older one."""
    return text.startswith(_template(SCRIPT).partition("\n")[0])


def is_asked(slurm: statements.Document) -> bool:
    """Whether slurmctld runs a job_submit.lua."""
    plugins = statements.words(slurm.setting(SETTING)[0])
    return PLUGIN in plugins or f"job_submit/{PLUGIN}" in plugins


def is_controller(slurm: statements.Document, hosts: Iterable[str]) -> bool:
    """Whether slurmctld runs on this machine: slurm.conf may be here for others than it."""
    own = {host.lower() for host in (*hosts, "localhost")}
    lines = [
        value
        for key in ("SlurmctldHost", "ControlMachine", "BackupController")
        for statement in slurm.with_key(key)
        if (value := statement.get(key)) is not None
    ]
    return any(value.partition("(")[0].lower() in own for value in lines)


def may_have_several_cards(
    slurm: statements.Document, version: slurm_programs.Version | None
) -> bool:
    """Whether a job can have parts of more than one card of a node."""
    allowed = SEVERAL in statements.words(slurm.setting("SelectTypeParameters")[0])
    return allowed and (version is None or version >= SEVERAL_CARDS_SINCE)


def largest(nodes: Iterable[gres.Node]) -> dict[str, int]:
    """What the largest card of any node has, of each resource that is shared."""
    most: dict[str, int] = {}
    for node in nodes:
        for name in gres.SHARINGS:
            count = _of_largest_card(node, name)
            if count > most.get(name, 0):
                most[name] = count
    return most


def _of_largest_card(node: gres.Node, name: str) -> int:
    """A bound: where gres.conf does not tell, it is all that the node has."""
    in_slurm = _amount(node, name)
    if not node.of(name) and not node.files:  # gres.conf of this machine is not about that node
        return in_slurm
    cards = len(node.files) or _amount(node, gres.GPU) or 1
    shares = [(line.files, line.total) for line in node.of(name)] or [((), in_slurm)]
    of_each = sum(-(-total // cards) for files, total in shares if not files)
    of_file: dict[str, int] = {}
    for files, total in shares:
        for file in files:
            of_file[file] = of_file.get(file, 0) + -(-total // len(files))
    return of_each + max(of_file.values(), default=0)


def _amount(node: gres.Node, name: str) -> int:
    return sum(amount.count for amount in node.amounts if amount.name == name)


def _filled(name: str, **values: str) -> str:
    text = _template(name)
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


@functools.cache
def _template(name: str) -> str:
    return Path(__file__).with_name(name).read_text()


def _quoted(path: Path) -> str:
    """As a string of Lua."""
    plain = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{plain}"'
