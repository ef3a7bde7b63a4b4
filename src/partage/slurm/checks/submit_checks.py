"""Checks of the rule for submissions, where slurmctld runs: it is there, called, and not old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from partage.slurm.checks import machine_facts
from partage.slurm.configuration import config_files, findings, gres, statements, submit_rule


def rule(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """What slurmctld asks; on other machines nobody asks it."""
    if not submit_rule.is_controller(configuration.slurm, facts.hosts):
        return
    if facts.submit_rule is not None:
        yield from _age(configuration, facts)
    if submit_rule.is_asked(configuration.slurm):
        yield from _script(configuration, facts)


def _age(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    """It is what the configuration says now."""
    try:
        right = submit_rule.rule(configuration, facts.version)
    except gres.Malformed:
        return  # which is told elsewhere
    if facts.version is not None and facts.submit_rule != right:
        place = statements.Place(str(_beside(configuration, submit_rule.NAME)))
        text = (
            "the rule for submissions is not the one for slurm.conf and gres.conf as they are now"
        )
        yield findings.problem("submit-rule", place, text, "run `partage slurm install`")


def _script(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    place = configuration.slurm.setting(submit_rule.SETTING)[1]
    path = _beside(configuration, submit_rule.SCRIPT)
    if facts.submit_script is None:
        text = f"there is no file {path}, and slurmctld does not start without it"
        remedy = f"run `partage slurm install`, or remove {submit_rule.PLUGIN} from this line"
        yield findings.problem("no-submit-script", place, text, remedy)
    elif facts.submit_rule is not None and submit_rule.NAME not in facts.submit_script:
        text = f"it does not call {submit_rule.NAME}, and jobs that can never run are taken"
        remedy = f"write in slurm_job_submit: {submit_rule.call(path)}"
        yield findings.note("submit-rule", statements.Place(str(path)), text, remedy)


def _beside(configuration: config_files.Configuration, name: str) -> Path:
    return Path(configuration.slurm.path).with_name(name)
